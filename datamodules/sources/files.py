"""Files that several processes share: one lock, one way to write a file whole, one to write a large one in chunks."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from datamodules.sources.folders import cache_folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the kernel releases the lock of one that dies, so a killed worker blocks nobody."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        yield


def write_whole(path: Path, content: bytes | Callable[[Path], object]) -> None:
    """Write a file so that a reader sees all of it or nothing, whenever we are killed.

    Args:
        content: The bytes, or a function that fills the path it is given.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    incoming = path.with_name(f".incoming-{uuid.uuid4().hex}{path.suffix}")
    try:
        if isinstance(content, bytes):
            incoming.write_bytes(content)
        else:
            content(incoming)
        with incoming.open("rb+") as file:
            settle(file)
        os.replace(incoming, path)
    finally:
        incoming.unlink(missing_ok=True)


def content_of(files: Sequence[Path]) -> str:
    """Hash of the contents of files, in order; of files that nobody has touched since it was taken it is known.

    Size and time of change can be those of another content; when the file's entry was last changed (`st_ctime`)
    nobody can set.
    """
    known = cache_folder() / "contents" / hashlib.sha256("\n".join(map(entry_of, files)).encode()).hexdigest()
    if known.is_file():
        return known.read_text()
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    write_whole(known, digest.hexdigest().encode())
    return digest.hexdigest()


def entry_of(path: Path) -> str:
    """What tells a file from all others, and from itself after it was changed."""
    facts = path.stat()
    return f"{str(path.absolute())!r} {facts.st_ino} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}"


def settle(file: IO[bytes]) -> None:
    """What is written is on disk."""
    file.flush()
    os.fsync(file.fileno())


def write_rows(
    path: Path,
    shape: tuple[int, ...],
    dtype: str,
    produce: Callable[[slice], NDArray[Any]],
    chunk: int,
    advance: Callable[[int], object] = lambda rows: None,
) -> None:
    """Write a .npy file chunk by chunk; a killed job goes on where it was. The caller holds the lock.

    The file has a provisional name, and a note beside it says how many rows are safely on disk, until it is whole.

    Args:
        produce: The rows of a slice.
        chunk: Rows between two notes.
        advance: Told how many rows are done: those of an earlier try first, then those of each chunk.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial, note = path.with_suffix(".partial"), path.with_suffix(".progress")
    with partial.open("r+b" if partial.is_file() else "w+b") as file:
        start, offset = _resume(file, note, shape, np.dtype(dtype))
        advance(start)
        for first in range(start, shape[0], chunk):
            last = min(first + chunk, shape[0])
            rows, expected = produce(slice(first, last)), (last - first, *shape[1:])
            if rows.shape != expected:
                raise ValueError(f"{path.name}: rows must have the shape {expected}, got {rows.shape}")
            file.write(np.ascontiguousarray(rows, dtype=dtype).tobytes())
            settle(file)
            write_whole(note, json.dumps({"rows": last, "offset": offset}).encode())
            advance(last - first)
        settle(file)
    os.replace(partial, path)
    note.unlink(missing_ok=True)


def _resume(file: IO[bytes], note: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, int]:
    """Rows that are safely on disk, and where they begin; the file is cut to them and ready for the next."""
    offset, rows = 0, 0
    try:
        said = json.loads(note.read_text())
        offset, rows = int(said["offset"]), int(said["rows"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none, or half of one: from the beginning
    end = offset + rows * prod(shape[1:]) * dtype.itemsize
    if 0 < rows <= shape[0] and file.seek(0, os.SEEK_END) >= end:
        file.truncate(end)
        file.seek(end)
        return rows, offset
    file.truncate(0)
    file.seek(0)
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return 0, file.tell()
