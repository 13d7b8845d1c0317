"""Image retrieval by class on unseen classes: what the published metric-learning sets have in common."""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from datamodules.base import DataModule, Gathered, Split, SplitName
from datamodules.sources.cache_folder import cache_folder
from datamodules.sources.data_folder import data_folder
from datamodules.spec import Modality, Task

HELD_OUT = 0.2  # of the training classes, the last ones in order: they choose the epoch


class Photo(NamedTuple):
    """One line of a published index.

    Attributes:
        path: Relative to the folder that `ImageRetrieval.find` returned, with forward slashes.
        label: The published class, of any kind that sorts.
        part: Published part of the split. Queries and gallery are both test.
    """

    path: str
    label: int | str
    part: Literal["train", "test", "query", "gallery"]


class ImageRetrieval(DataModule):
    """A folder of photos in a published layout, retrieved by class; test classes are never seen in training.

    A photo gives two modalities: `whole`, the photo resized to a square, and `detail`, its central half at the same
    size. The last fifth of the published training classes, in order, is validation: the test classes choose nothing.

    A subclass says which folders it may be in and how to read its index. Photos are decoded once and kept in the cache.

    Args:
        size: Side of both images, in pixels.

    Attributes:
        folders: Names of the folder inside POLYMODAL_DATA, as published; the first that exists is taken.
        expected: Published number of photos per part. Another number is a warning, kept in `notes`.
        ks: Of the published recalls at K.
        notes: What the reader of a result must know about the rows; filled when the index is read.
    """

    folders: ClassVar[tuple[str, ...]] = ()
    expected: ClassVar[dict[str, int]] = {}
    ks: ClassVar[tuple[int, ...]] = (1, 2, 4, 8)
    source = "a folder of POLYMODAL_DATA in the published layout"

    def __init__(self, *, size: int = 64) -> None:
        super().__init__()
        if size < 8:
            raise ValueError(f"{self.name()}: `size` must be at least 8, got {size}")
        self.size = size
        self.notes: tuple[str, ...] = ()

    @classmethod
    @abstractmethod
    def name(cls) -> str:
        """The registered name."""

    @abstractmethod
    def read_index(self, folder: Path) -> list[Photo]:
        """Every photo of the published index, in its order."""

    def find(self) -> Path:
        """The folder of this dataset."""
        root = data_folder(self.name())
        for folder in self.folders:
            if (root / folder).is_dir():
                return root / folder
        raise FileNotFoundError(f"{self.name()}: expected one of the folders {', '.join(self.folders)} in {root}")

    @cached_property
    def photos(self) -> list[Photo]:
        """The index, checked against the published counts."""
        photos = self.read_index(self.find())
        for photo in photos:
            path = PurePosixPath(photo.path)
            if path.is_absolute() or ".." in path.parts:
                raise ValueError(f"{self.name()}: the index names a file outside of its folder: {photo.path!r}")
        train, test = ({p.label for p in photos if (p.part == "train") == side} for side in (True, False))
        if shared := train & test:
            raise ValueError(f"{self.name()}: class {min(shared, key=str)!r} is in both training and test")
        if len(train) < 3 or not test:
            counts = f"{len(train)} and {len(test)}"
            raise ValueError(f"{self.name()}: expected at least 3 training classes and a test class, got {counts}")
        found = {part: sum(p.part == part for p in photos) for part in self.expected}
        if found != self.expected:
            note = f"{self.name()}: expected {self.expected} photos as published, but the folder has {found}"
            warnings.warn(note, stacklevel=2)
            self.notes = (*self.notes, note)
        return photos

    @cached_property
    def classes(self) -> dict[SplitName, list[int | str]]:
        """Published classes of each split, in order."""
        train = sorted({p.label for p in self.photos if p.part == "train"})  # pyright: ignore[reportArgumentType]
        test = sorted({p.label for p in self.photos if p.part != "train"})  # pyright: ignore[reportArgumentType]
        kept = len(train) - max(1, math.floor(HELD_OUT * len(train)))
        return {"train": train[:kept], "val": train[kept:], "test": test}

    def describe(self) -> Task:
        shape = (3, self.size, self.size)
        modalities = (Modality("whole", "image", shape), Modality("detail", "image", shape))
        names = tuple(str(label) for label in self.classes["train"])
        return Task(self.name(), self.version, modalities, "retrieval", len(names), class_names=names, ks=self.ks)

    def load(self) -> dict[SplitName, Split]:
        folder = self.find()
        tables = decoded(folder, [p.path for p in self.photos], self.size, self.name())
        position = {photo: i for i, photo in enumerate(self.photos)}
        number: dict[int | str, int] = {}
        for classes in self.classes.values():  # training classes are 0, 1, ...; the unseen ones follow
            number |= {label: len(number) + i for i, label in enumerate(classes)}
        splits: dict[SplitName, Split] = {}
        for name in ("train", "val", "test"):
            rows = self._rows(name)
            index = torch.tensor([position[photo] for photo in rows])
            inputs = {key: Gathered(table, index, 1 / 255) for key, table in tables.items()}
            gallery = torch.tensor([p.part == "gallery" for p in rows])
            target = torch.tensor([number[p.label] for p in rows])
            splits[name] = Split(inputs, target, gallery=gallery if gallery.any() else None)  # pyright: ignore
        return splits

    def _rows(self, split: SplitName) -> list[Photo]:
        wanted = set(self.classes[split])
        return [photo for photo in self.photos if photo.label in wanted]


def decoded(folder: Path, paths: Sequence[str], size: int, name: str) -> dict[str, Tensor]:
    """Both images of every photo, `[N, 3, size, size]` uint8 each, from the cache or decoded into it."""
    digest = hashlib.sha256(f"{name}/{size}".encode())
    for path in paths:
        digest.update(f"\n{path}\t{(folder / path).stat().st_size}".encode())
    file = cache_folder() / "images" / f"{name}-{size}-{digest.hexdigest()[:16]}.npy"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        _write(file, folder, paths, size)
    # Copy on write: pages are read when a batch asks for them, and shared by the workers of one machine.
    table = torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))
    return {"whole": table[0], "detail": table[1]}


def _write(file: Path, folder: Path, paths: Sequence[str], size: int) -> None:
    handle, temporary = tempfile.mkstemp(dir=file.parent, suffix=".npy")
    os.close(handle)
    try:
        shape = (2, len(paths), 3, size, size)
        table = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
        for row, path in enumerate(paths):
            table[0, row], table[1, row] = read_photo(folder / path, size)
        table.flush()
        os.replace(temporary, file)
    finally:
        Path(temporary).unlink(missing_ok=True)


def read_photo(path: Path, size: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The photo and its central half, each `[3, size, size]`."""
    with Image.open(path, formats=["JPEG", "PNG"]) as photo:
        photo.draft("RGB", (2 * size, 2 * size))  # a JPEG decodes at reduced size; the detail keeps its resolution
        photo = photo.convert("RGB")
    width, height = photo.size
    centre = (width // 4, height // 4, width - width // 4, height - height // 4)
    images = (photo, photo.crop(centre))
    whole, detail = (
        np.asarray(image.resize((size, size), Image.Resampling.BILINEAR)).transpose(2, 0, 1) for image in images
    )
    return whole, detail
