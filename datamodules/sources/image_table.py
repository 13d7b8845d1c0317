"""Images decoded once into a memory-mapped table of the cache: sets larger than memory, shared by all workers."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from datamodules.sources.cache_folder import cache_folder

BLOCK = 256  # images between two notes of how far the table is
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")


class ImageSource(ABC):
    """Encoded images, by position."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, position: int) -> bytes:
        """The file's content."""

    @abstractmethod
    def where(self, position: int) -> str:
        """What to call it in an error."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash that changes with the content."""


class ImageFiles(ImageSource):
    """Image files of a folder; the hash is that of names, sizes and times of change."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder = folder
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def read(self, position: int) -> bytes:
        return (self.folder / self.names[position]).read_bytes()

    def where(self, position: int) -> str:
        return str(self.folder / self.names[position])

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for name in self.names:
            try:
                facts = (self.folder / name).stat()
            except OSError:
                raise FileNotFoundError(f"there is no image {self.folder / name}, which the annotations name") from None
            digest.update(f"{name}\t{facts.st_size}\t{facts.st_mtime_ns}\n".encode())
        return digest.hexdigest()


class Pixels:
    """A modality of images in a table: row i is image `index[i]`, 0 to 1. Rows are read when a batch asks for them."""

    def __init__(self, table: Tensor, index: Tensor, content: str) -> None:
        self.table = table
        self.index = index
        self.content = content

    def __len__(self) -> int:
        return len(self.index)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.index), *self.table.shape[1:]))

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        return self.table[self.index[rows]].float().div_(255)

    def fingerprint(self) -> str:
        """Of the images' content and of which row shows which."""
        return hashlib.sha256(self.content.encode() + self.index.numpy().tobytes()).hexdigest()


class ImageTable:
    """All images of a source as squares of one size, `[N, 3, size, size]` bytes.

    Decoded in blocks, so memory stays bounded; a killed job goes on where it was; of two workers one decodes and the
    other waits. A reader sees the whole table or none.
    """

    def __init__(self, source: ImageSource, size: int) -> None:
        if size < 8:
            raise ValueError(f"`image_size` must be at least 8, got {size}")
        self.content = hashlib.sha256(f"{source.fingerprint()}/{size}/1".encode()).hexdigest()
        self.file = cache_folder() / "images" / f"table-{size}-{self.content[:24]}.npy"
        if not self.file.exists():
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with (self.file.parent / f".{self.file.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # released by the kernel when the process dies
                if not self.file.exists():
                    _write(self.file, source, size)
        # Copy on write: pages are read when a batch asks for them, and shared by the workers of one machine.
        self.table = torch.from_numpy(np.load(self.file, mmap_mode="c", allow_pickle=False))

    def rows(self, index: Tensor) -> Pixels:
        """The modality whose row i shows image `index[i]`."""
        return Pixels(self.table, index, self.content)


def _write(file: Path, source: ImageSource, size: int) -> None:
    partial, note = file.with_suffix(".partial"), file.with_suffix(".done")
    table, done = _resume(partial, note, (len(source), 3, size, size))
    for start in range(done, len(source), BLOCK):
        for position in range(start, min(start + BLOCK, len(source))):
            table[position] = decode(source.read(position), size, source.where(position))
        table.flush()  # on disk before the note says so
        _replace(note, str(min(start + BLOCK, len(source))))
    del table
    os.replace(partial, file)
    note.unlink(missing_ok=True)


def _resume(partial: Path, note: Path, shape: tuple[int, ...]) -> tuple[np.memmap, int]:
    if partial.exists() and note.exists():
        return np.lib.format.open_memmap(partial, mode="r+"), int(note.read_text())
    return np.lib.format.open_memmap(partial, mode="w+", dtype=np.uint8, shape=shape), 0


def _replace(path: Path, text: str) -> None:
    incoming = path.with_suffix(".incoming")
    incoming.write_text(text)
    os.replace(incoming, path)


def decode(content: bytes, size: int, where: str) -> NDArray[np.uint8]:
    """The whole image as a square, `[3, size, size]`.

    Raises:
        ValueError: If it is no image, naming `where`.
    """
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            image.draft("RGB", (2 * size, 2 * size))  # a JPEG decodes at reduced size
            pixels = image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{where} is not an image that can be decoded: {error}") from None
    return np.asarray(pixels).transpose(2, 0, 1)
