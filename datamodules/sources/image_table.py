"""Images decoded once into a memory-mapped table of the cache: sets larger than memory, shared by all workers."""

from __future__ import annotations

import hashlib
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from datamodules.base import Gathered
from datamodules.sources.files import content_of, locked, write_rows
from datamodules.sources.folders import cache_folder

BLOCK = 256  # images between two notes of how far the table is
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")

Side = Annotated[int, Meta(ge=8)]  # of a square image, in pixels
Pixels = NDArray[np.uint8]


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
    """Image files of a folder; the hash is that of their contents, in order."""

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
        files = [self.folder / name for name in self.names]
        for file in files:
            if not file.is_file():
                raise FileNotFoundError(f"there is no image {file}, which the annotations name")
        return content_of(files)


def square(image: Image.Image, size: int) -> Pixels:
    """The whole image, `[3, size, size]`."""
    return np.asarray(image.resize((size, size), Image.Resampling.BICUBIC)).transpose(2, 0, 1)


class TableImages(Gathered):
    """A modality of images in a table: row i is image `index[i]`, 0 to 1."""

    def prepare(self, x: Tensor) -> Tensor:
        return x.div_(255)


class ImageTable:
    """All images of a source, `[N, ..., size, size]` bytes.

    Decoded in blocks, so memory stays bounded; a killed job goes on where it was; of two workers one decodes and the
    other waits. A reader sees the whole table or none.

    Args:
        size: Side of the squares.
        views: What is kept of an RGB image.
    """

    def __init__(self, source: ImageSource, size: int, views: Callable[[Image.Image, int], Pixels] = square) -> None:
        self.content = hashlib.sha256(f"{source.fingerprint()}/{size}/{views.__name__}".encode()).hexdigest()
        self.file = cache_folder() / "images" / f"table-{size}-{self.content[:24]}.npy"

        def produce(part: slice) -> Pixels:
            positions = range(len(source))[part]
            return np.stack([views(decode(source.read(i), size, source.where(i)), size) for i in positions])

        if not self.file.exists():
            with locked(self.file):
                if not self.file.exists():
                    shape = views(Image.new("RGB", (size, size)), size).shape
                    write_rows(self.file, (len(source), *shape), "uint8", produce, BLOCK)
        # Copy on write: pages are read when a batch asks for them, and shared by the workers of one machine.
        self.table = torch.from_numpy(np.load(self.file, mmap_mode="c", allow_pickle=False))

    def rows(self, index: Tensor) -> TableImages:
        """The modality whose row i shows image `index[i]`."""
        return TableImages(self.table, index, content=self.content)


def decode(content: bytes, size: int, where: str) -> Image.Image:
    """The image in RGB, a JPEG at a reduced size of at least twice `size`; an error names `where`."""
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            image.draft("RGB", (2 * size, 2 * size))
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{where} is not an image that can be decoded: {error}") from None
