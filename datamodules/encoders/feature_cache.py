"""Tables of features on disk: computed once by whoever comes first, read by every process through memory maps.

A table is a folder named by the hash of everything that decides its content. A killed job goes on where it was. The
folder's lock is exclusive while a table is made or deleted and shared for as long as it is read.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from datamodules.sources.files import write_rows, write_whole
from datamodules.sources.folders import cache_folder

if TYPE_CHECKING:
    from rich.progress import Progress

CHUNK = 256  # rows between two notes of progress
DEFAULT_GB = 50.0
_FINAL, _ABOUT, _INDEX, _MOMENTS = "features.npy", "about.json", "index.npy", "moments.npy"


class CacheError(OSError):
    """The cache cannot hold what is asked for; the message says what to do."""


@dataclass(frozen=True)
class TableSpec:
    """How a table is made.

    Attributes:
        identity: Everything that decides the content; its hash is the name.
        about: For people, shown by `polymodal data cache`.
        shape: Of one item.
        index: Row -> item, where rows share items; else None.
        items: Number of items.
        produce: The items of a slice, `[n, *shape]`.
    """

    identity: Mapping[str, Any]
    about: Mapping[str, Any]
    shape: tuple[int, ...]
    dtype: str
    items: int
    index: NDArray[np.int64] | None
    produce: Callable[[slice], NDArray[Any]]

    @property
    def key(self) -> str:
        """The table's name."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:40]

    @property
    def title(self) -> str:
        """What is computed, for people."""
        return f"features: {' '.join(str(value) for value in self.about.values())}"

    @property
    def bytes(self) -> int:
        """Size of the table on disk."""
        return self.items * math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Table:
    """A whole table, memory-mapped, and locked against deletion for as long as this object lives."""

    def __init__(self, folder: Path, lock: IO[str]) -> None:
        self.folder = folder
        self.values: NDArray[Any] = np.load(folder / _FINAL, mmap_mode="c", allow_pickle=False)
        index = folder / _INDEX
        self.index = np.load(index, allow_pickle=False) if index.is_file() else None
        self._lock = lock
        with suppress(OSError):  # a shared cache may be read-only
            os.utime(folder / _ABOUT)

    @property
    def key(self) -> str:
        """Hash of everything that decides the content."""
        return self.folder.name

    def __len__(self) -> int:
        return len(self.values if self.index is None else self.index)

    def moments(self, compute: Callable[[NDArray[Any]], NDArray[np.float64]]) -> NDArray[np.float64]:
        """What `compute` makes of the values; computed once and kept beside them."""
        file = self.folder / _MOMENTS
        if not file.is_file():
            write_whole(file, lambda path: np.save(path, compute(self.values), allow_pickle=False))
        return np.load(file, allow_pickle=False)


def table(spec: TableSpec, advance: Callable[[int], None] | None = None) -> Table:
    """The table of a specification, made now if nobody has made it yet.

    Of several processes that ask at once one computes and the others wait.

    Args:
        advance: Told the number of items of each chunk that is done; None shows a bar on standard error.
    """
    folder = features_folder() / spec.key
    while True:
        lock = _locked(folder, fcntl.LOCK_SH)
        if _is_whole(folder, spec):
            return Table(folder, lock)
        lock.close()
        with _locked(folder, fcntl.LOCK_EX):
            if not _is_whole(folder, spec):
                _make_room(spec)
                _write(folder, spec, advance)


def exists(spec: TableSpec) -> bool:
    """Whether the table is there already."""
    return _is_whole(features_folder() / spec.key, spec)


@dataclass(frozen=True)
class Kept:
    """A table as `polymodal data cache` lists it."""

    key: str
    about: dict[str, Any]
    bytes: int
    used: float
    whole: bool


def kept() -> list[Kept]:
    """Every table, the longest unused first."""
    root = features_folder()
    found = [_kept(folder) for folder in root.iterdir() if folder.is_dir()] if root.is_dir() else []
    return sorted((k for k in found if k is not None), key=lambda k: k.used)


def prune(limit: int, spare: str = "") -> list[Kept]:
    """Delete the longest unused tables until the rest is within `limit` bytes; one in use, or `spare`, stays."""
    tables = kept()
    total = sum(k.bytes for k in tables)
    gone: list[Kept] = []
    for k in tables:
        if total <= limit:
            break
        if k.key != spare and _delete(features_folder() / k.key):
            total -= k.bytes
            gone.append(k)
    return gone


def bound() -> int:
    """The most bytes the cache may hold: `POLYMODAL_CACHE_GB`."""
    text = os.environ.get("POLYMODAL_CACHE_GB", str(DEFAULT_GB))
    try:
        size = float(text)
    except ValueError:
        size = math.nan
    if not size > 0:
        raise CacheError(f"POLYMODAL_CACHE_GB must be a number of gigabytes > 0, got {text!r}")
    return int(size * 1e9)


def features_folder() -> Path:
    """Where the tables are."""
    return cache_folder() / "features"


def _locked(folder: Path, how: int) -> IO[str]:
    """The open lock file of a table; closing it, or dying, lets go.

    Not `files.locked`: many read at once, and the lock goes with the table.
    """
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = (folder / "lock").open("a")
        except FileNotFoundError:  # deleted in between
            continue
        except OSError as error:
            raise CacheError(
                f"cannot write to the cache {folder.parent} ({error.strerror}): set POLYMODAL_CACHE"
            ) from error
        try:
            fcntl.flock(file, how)
            # Whoever deletes a table holds its lock: who waited for it meanwhile now holds a file that is no more.
            if os.fstat(file.fileno()).st_ino == (folder / "lock").stat().st_ino:
                return file
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()


def _is_whole(folder: Path, spec: TableSpec) -> bool:
    try:
        values = np.load(folder / _FINAL, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):  # not there, or not what it says it is
        return False
    indexed = spec.index is None or (folder / _INDEX).is_file()
    return indexed and values.shape == (spec.items, *spec.shape) and values.dtype == np.dtype(spec.dtype)


def _make_room(spec: TableSpec) -> None:
    limit = bound()
    prune(limit - spec.bytes, spare=spec.key)
    others = sum(k.bytes for k in kept() if k.key != spec.key)
    if others + spec.bytes > limit:
        raise CacheError(
            f"features of {spec.about.get('dataset', 'this dataset')} need {spec.bytes / 1e9:.2g} GB, and of the "
            f"{limit / 1e9:.3g} GB of the cache {others / 1e9:.2g} are in use: raise POLYMODAL_CACHE_GB"
        )


def _write(folder: Path, spec: TableSpec, advance: Callable[[int], None] | None) -> None:
    facts = {**spec.about, "rows": spec.items, "bytes": spec.bytes, "identity": spec.identity}
    write_whole(folder / _ABOUT, json.dumps(facts, default=str).encode())
    if spec.index is not None:
        index = spec.index
        write_whole(folder / _INDEX, lambda path: np.save(path, index, allow_pickle=False))
    for stale in (_FINAL, _MOMENTS):
        (folder / stale).unlink(missing_ok=True)

    def produce(part: slice) -> NDArray[Any]:
        values = spec.produce(part).astype(spec.dtype, copy=False)
        if not np.isfinite(values).all():
            raise ValueError(f"{spec.title}: the encoder's output must be finite (and not too large for {spec.dtype})")
        return values

    with _told(spec, advance) as tell:
        write_rows(folder / _FINAL, (spec.items, *spec.shape), spec.dtype, produce, CHUNK, tell)


def _kept(folder: Path) -> Kept | None:
    try:
        about = json.loads((folder / _ABOUT).read_text())
        used = (folder / _ABOUT).stat().st_mtime
    except (OSError, ValueError):
        about, used = {}, 0.0
    try:
        size = sum(file.stat().st_size for file in folder.iterdir())
    except OSError:  # deleted meanwhile
        return None
    whole = (folder / _FINAL).is_file()
    # One that is being made counts as what it will be: two at once must not both take the last room.
    return Kept(folder.name, about, size if whole else max(size, about.get("bytes", 0)), used, whole)


def _delete(folder: Path) -> bool:
    """Delete a table unless somebody uses it."""
    try:
        with (folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            names = [file for file in folder.iterdir() if file.name != "lock"]
            # The final name goes first: what is half deleted must not look whole.
            for file in sorted(names, key=lambda file: file.name != _FINAL):
                file.unlink(missing_ok=True)
            (folder / "lock").unlink()
            folder.rmdir()
    except OSError:
        return False
    return True


@contextmanager
def _told(spec: TableSpec, advance: Callable[[int], None] | None) -> Iterator[Callable[[int], None]]:
    """Who is told of progress: the caller, or a bar of our own."""
    if advance is not None:
        yield advance
        return
    with bar() as progress:
        task = progress.add_task(spec.title, total=spec.items)
        yield lambda rows: progress.update(task, advance=rows)


def bar() -> Progress:
    """A bar with the time to go, on standard error; none in a worker, whose terminal is its parent's."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    hidden = not console.is_terminal or multiprocessing.parent_process() is not None
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn("ETA"))
    return Progress(*columns, TimeRemainingColumn(), console=console, disable=hidden, transient=True)


def age(used: float) -> str:
    """How long ago a table was used, for people."""
    seconds = max(0.0, time.time() - used)
    for name, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {name} ago"
    return "now"
