"""Image retrieval by class on unseen classes: what the published metric-learning sets have in common."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image

from datamodules.base import SPLITS, Batches, DataModule, Split, SplitName
from datamodules.options import Natural
from datamodules.rows.crops import Crops, PhotoBatches
from datamodules.sources.folders import data_folder
from datamodules.sources.image_table import ImageFiles, ImageTable, Pixels, Side
from datamodules.spec import Modality, Task

HELD_OUT = 0.2  # of the training classes, the last ones in order: they choose the epoch
KEPT = 256 / 227  # side of a stored photo, in sides of what is seen of it: as published


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
    size (ours: the published sets have one image). As published, both are kept at 256 of 227 parts of `size`; training
    sees a random crop, mirrored or not, other rows the centre. The last fifth of the published training classes, in
    order, is validation: the test classes choose nothing.

    The papers' backbone, BN-Inception, does not exist in timm; ResNet-50 is the literature's second choice
    (`whole = "timm:resnet50.tv_in1k", freeze = false`). Frozen features see the centre crop alone.

    A subclass says which folders it may be in and how to read its index. Photos are decoded once and kept in the cache.

    Args:
        size: Side of both images, in pixels.
        augment: Crop and mirror training photos at random.
        per_class: Rows of each class in a training batch, for losses on pairs of rows (N-pair, lifted structure,
            multi-similarity), which find no pairs in a random batch of a set with thousands of classes; 0 draws rows
            at random, as proxies want.

    Attributes:
        title: The registered name.
        folders: Names of the folder inside POLYMODAL_DATA, as published; the first that exists is taken.
        expected: Published number of photos per part. Another number is a warning, kept in `notes`.
        ks: Of the published recalls at K.
    """

    title: ClassVar[str] = ""
    folders: ClassVar[tuple[str, ...]] = ()
    expected: ClassVar[dict[str, int]] = {}
    ks: ClassVar[tuple[int, ...]] = (1, 2, 4, 8)
    source = "a folder of POLYMODAL_DATA in the published layout"

    def __init__(self, *, size: Side = 227, augment: bool = True, per_class: Natural = 0) -> None:
        super().__init__()
        self.size = size
        self.augment = augment
        self.per_class = per_class

    @staticmethod
    def views(photo: Image.Image, size: int) -> Pixels:
        """Both images of a photo, `[2, 3, size, size]`."""
        return whole_and_detail(photo, size)

    def train_dataloader(self) -> Batches:
        rows, names = self.splits["train"], self.task.names
        return PhotoBatches(rows, names, self.batch_size, self.seed, self.augment, self.per_class)

    @abstractmethod
    def read_index(self, folder: Path) -> list[Photo]:
        """Every photo of the published index, in its order."""

    def find(self) -> Path:
        """The folder of this dataset."""
        root = data_folder(self.title)
        for folder in self.folders:
            if (root / folder).is_dir():
                return root / folder
        raise FileNotFoundError(f"{self.title}: there must be one of the folders {', '.join(self.folders)} in {root}")

    @cached_property
    def photos(self) -> list[Photo]:
        """The index, checked against the published counts."""
        photos = self.read_index(self.find())
        for photo in photos:
            path = PurePosixPath(photo.path)
            if path.is_absolute() or ".." in path.parts:
                raise ValueError(f"{self.title}: the index must name files in its folder, got {photo.path!r}")
        train, test = ({p.label for p in photos if (p.part == "train") == side} for side in (True, False))
        if shared := train & test:
            raise ValueError(
                f"{self.title}: {min(shared, key=str)!r} must be in one part, and is in both training and test"
            )
        if len(train) < 3 or not test:
            counts = f"{len(train)} and {len(test)}"
            raise ValueError(f"{self.title}: there must be 3 training classes or more and a test class, got {counts}")
        for note in self._note(photos):
            warnings.warn(note, stacklevel=2)
        return photos

    @property
    def notes(self) -> tuple[str, ...]:
        return self._note(self.photos)

    def _note(self, photos: list[Photo]) -> tuple[str, ...]:
        found = {part: sum(p.part == part for p in photos) for part in self.expected}
        if found == self.expected:
            return ()
        return (f"{self.title}: expected {self.expected} photos as published, but the folder has {found}",)

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
        return Task(self.title, self.version, modalities, "retrieval", len(names), class_names=names, ks=self.ks)

    def load(self) -> dict[SplitName, Split]:
        files, kept = ImageFiles(self.find(), [p.path for p in self.photos]), round(self.size * KEPT)
        table = ImageTable(files, kept, type(self).views).table
        position = {photo: i for i, photo in enumerate(self.photos)}
        number: dict[int | str, int] = {}
        for classes in self.classes.values():  # training classes are 0, 1, ...; the unseen ones follow
            number |= {label: len(number) + i for i, label in enumerate(classes)}
        splits: dict[SplitName, Split] = {}
        for name in SPLITS:
            wanted = set(self.classes[name])
            rows = [photo for photo in self.photos if photo.label in wanted]
            index = torch.tensor([position[photo] for photo in rows])
            inputs = {key: Crops(table[:, i], index, self.size) for i, key in enumerate(("whole", "detail"))}
            gallery = torch.tensor([p.part == "gallery" for p in rows])
            target = torch.tensor([number[p.label] for p in rows])
            splits[name] = Split(inputs, target, gallery=gallery if gallery.any() else None)  # pyright: ignore
        return splits


def whole_and_detail(photo: Image.Image, size: int) -> Pixels:
    """The photo and its central half, `[2, 3, size, size]`."""
    width, height = photo.size
    centre = photo.crop((width // 4, height // 4, width - width // 4, height - height // 4))
    resized = [image.resize((size, size), Image.Resampling.BILINEAR) for image in (photo, centre)]
    return np.stack([np.asarray(image).transpose(2, 0, 1) for image in resized])
