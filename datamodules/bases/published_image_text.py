"""An image and a text per row with labels, in a folder of a published layout."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import ClassVar, NamedTuple

import torch

from datamodules.base import SPLITS, SplitName
from datamodules.bases.image_text import ImageText, ImageTextRows
from datamodules.options import Count
from datamodules.rows.words import split_words
from datamodules.sources.folders import find_data
from datamodules.sources.image_table import ImageFiles, Side
from datamodules.spec import Task


class Entry(NamedTuple):
    """One row as published.

    Attributes:
        image: Relative to the folder, with forward slashes.
        label: The class, or a number per label that says whether the row has it.
        where: What to call it in an error.
    """

    split: SplitName
    image: str
    text: str
    label: int | tuple[int, ...]
    where: str


class PublishedImageText(ImageText):
    """A folder with rows of an image, a text and labels; a subclass reads its index. Every image is one row.

    A row whose text has no word is left out, and `notes` counts them.

    Args:
        folder: Absolute or below POLYMODAL_DATA.
        image_size, length, min_count: As of every `ImageText`.

    Attributes:
        title: The registered name.
        target: Of the task; `metric` too.
        expected: Published number of rows of each split; another number is noted.
    """

    title: ClassVar[str] = ""
    target: ClassVar[str] = "multiclass"
    metric: ClassVar[str] = ""
    expected: ClassVar[dict[SplitName, int]] = {}

    def __init__(self, *, folder: str, image_size: Side, length: Count, min_count: Count) -> None:
        super().__init__(image_size=image_size, length=length, min_count=min_count)
        self.folder = folder

    @abstractmethod
    def read_entries(self, folder: Path) -> tuple[Sequence[Entry], tuple[str, ...]]:
        """Every row, and the names of the classes or labels."""

    @cached_property
    def path(self) -> Path:
        """The folder."""
        return find_data(self.folder, "folder")

    @cached_property
    def read(self) -> tuple[Sequence[Entry], tuple[str, ...]]:
        """The rows and the names, checked and read once."""
        entries, names = self.read_entries(self.path)
        for entry in entries:
            place = PurePosixPath(entry.image)
            if place.is_absolute() or ".." in place.parts:
                raise ValueError(f"{entry.where}: the image must be in the folder, got {entry.image!r}")
        return entries, names

    @cached_property
    def entries(self) -> Sequence[Entry]:
        """The rows that have a word."""
        return [entry for entry in self.read[0] if split_words(entry.text)]

    @property
    def notes(self) -> tuple[str, ...]:
        every = self.read[0]
        found = {name: sum(entry.split == name for entry in every) for name in self.expected}
        notes = () if found == self.expected else (f"{self.title}: expected {self.expected} rows, got {found}",)
        wordless = len(every) - len(self.entries)
        return (*notes, f"{self.title}: {wordless} rows without a word are left out") if wordless else notes

    def describe(self) -> Task:
        names, version = self.read[1], f"{self.version}-{self.content()}"
        return Task(
            self.title, version, self.modalities(), self.target, len(names), metric=self.metric, class_names=names
        )

    def open_images(self) -> ImageFiles:
        return ImageFiles(self.path, [entry.image for entry in self.entries])

    def read_rows(self) -> dict[SplitName, ImageTextRows]:
        found: dict[SplitName, ImageTextRows] = {}
        for name in SPLITS:
            own = [(i, entry) for i, entry in enumerate(self.entries) if entry.split == name]
            if not own:
                raise ValueError(f"{self.path}: every split must have rows, and {name} has none")
            image, target = torch.tensor([i for i, _ in own]), torch.tensor([entry.label for _, entry in own])
            labels = target.float() if target.dim() == 2 else target
            found[name] = ImageTextRows([entry.text for _, entry in own], image, labels)
        return found
