"""Any image-text set of the hub or of a folder: captions to retrieve by, or a label to predict."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import torch
from msgspec import Meta

from datamodules.base import SPLITS, SplitName
from datamodules.bases.image_text import ImageText, ImageTextRows, check_text
from datamodules.options import Count
from datamodules.registry import did_you_mean, register
from datamodules.rows.class_balance import metric_for
from datamodules.rows.fixed_order import Integers, fixed_order, split_by_class
from datamodules.rows.prompts import PHOTO, Candidates, Templates, prompts
from datamodules.rows.user_split import MEANT, class_numbers
from datamodules.sources.hub_table import TABLES, HubImages, find_folder, open_table
from datamodules.sources.image_table import Side
from datamodules.spec import Task

if TYPE_CHECKING:
    from datasets import Dataset

CHECKED = 20_000  # images that are decoded when the plan is made, so that a damaged one is an error of the plan
UNSEEN: dict[SplitName, float] = {"test": 0.25, "val": 0.1}  # of the classes, where whole classes are held out


class _Read(NamedTuple):
    """Every row of every table."""

    texts: list[str]
    image: Integers
    label: Integers
    side: list[SplitName]


@register("hub_image_text")
class HubImageText(ImageText):
    """Any image-text dataset: a hub id or a local folder with an image, a text and, if you like, a label per row.

    With a label column the task is to predict the label from both; without, to retrieve images by texts and texts by
    images (`pairs`). A text column may hold a list: then the image has several texts. Published splits are kept; if
    there is no test split the validation split is the test, and what is missing is a share of the training images each,
    stratified by label and fixed. Rows count from 1 in each split.

    Args:
        path: Folder, absolute or below POLYMODAL_DATA, in a layout that `datasets` reads (images with a metadata.csv,
            parquet, JSON, `save_to_disk`) or one such table, else a dataset id of the hub.
        config: Of the hub's dataset, where it has several.
        revision: Commit or tag of the hub's dataset: pin it, and nobody can change your results.
        image_column: Images, or paths of images.
        text_column: Text, or list of texts.
        label_column: Class; empty for none.
        metric: Of a label, by name; empty means accuracy, and balanced accuracy of classes that are not equally
            frequent: `notes` say so.
        group_column: Rows of one value show the same image (the first is taken) and stay in one split.
        held_out: Of the training images, for each split that is not published.
        unseen_classes: Hold whole classes out instead of rows: the test is zero-shot, each of its images told among
            the names of classes that training never had. Published splits are not kept: a
            quarter of the classes is the test and a tenth chooses the epoch (two at least each), by a fixed order.
        candidates: Of that test: the "unseen" classes, or "all".
        templates: Of the prompts that names are put into, with `{}` for the name.
        image_size, length, min_count: As of every `ImageText`.
    """

    licence = "that of the dataset you name"
    citation = "that of the dataset you name"
    source = "hub: any dataset id, or a folder of yours"

    def __init__(
        self,
        *,
        path: str = "",
        config: str = "",
        revision: str = "",
        image_column: str = "image",
        text_column: str = "text",
        label_column: str = "",
        group_column: str = "",
        metric: str = "",
        held_out: Annotated[float, Meta(gt=0, lt=0.5)] = 0.1,
        unseen_classes: bool = False,
        candidates: Candidates = "unseen",
        templates: Templates = PHOTO,
        image_size: Side = 64,
        length: Count = 24,
        min_count: Count = 2,
    ) -> None:
        super().__init__(image_size=image_size, length=length, min_count=min_count)
        self.path = path
        self.config = config
        self.revision = revision
        self.image_column = image_column
        self.text_column = text_column
        self.label_column = label_column
        self.group_column = group_column
        self.metric = metric
        self.held_out = held_out
        self.unseen_classes = unseen_classes
        self.candidates = candidates
        self.templates = templates
        if unseen_classes and not label_column:
            raise ValueError("hub_image_text: `unseen_classes` needs a `label_column`: its labels are the classes")

    @property
    def suffix(self) -> str:
        path = Path(self.path)
        name = path.stem if path.suffix in TABLES else path.name
        every = ";candidates=all" if self.unseen_classes and self.candidates == "all" else ""
        return f"[{name}{every}]"

    def describe(self) -> Task:
        version, modalities = self.content(), self.modalities()
        if len(self.images) <= CHECKED:
            self.table  # noqa: B018 - decoded now, so that a damaged image is named now
        if not self.label_column:
            return Task("hub_image_text", version, modalities, "pairs", 0, shared=("image",))
        names = self._read[1]
        if len(names) < 2:
            raise ValueError(f"{self.path}, `label_column` {self.label_column!r}: every row is {', '.join(names)!r}")
        if self.unseen_classes:
            return Task("hub_image_text", version, modalities, "zero_shot", 0, class_names=names)
        metric = self.metric or self._metric[0]
        return Task("hub_image_text", version, modalities, "multiclass", len(names), metric=metric, class_names=names)

    @property
    def _metric(self) -> tuple[str, str]:
        return metric_for(self._read[0].label, self._read[1])

    @property
    def notes(self) -> tuple[str, ...]:
        chosen = self.label_column and not self.metric and self._metric[1]
        said = (f"hub_image_text: {chosen}",) if chosen else ()
        published = self._published
        if self.unseen_classes:
            return ()
        if len(published) == 3:
            return said
        held = " and ".join(name for name in ("val", "test") if name not in published)
        return (*said, f"hub_image_text: {held}: {self.held_out:.0%} of the published training images each, fixed")

    def open_images(self) -> HubImages:
        tables = [(f"{self.path}, split {name}", table) for name, table in self._tables.items()]
        folder = find_folder(self.path)
        return HubImages(tables, self.image_column, folder.parent if folder and folder.is_file() else folder)

    def read_rows(self) -> dict[SplitName, ImageTextRows]:
        read, _ = self._read
        side = self._sides(read)
        target = read.label if self.label_column else read.image
        found: dict[SplitName, ImageTextRows] = {}
        for name in SPLITS:
            own = np.flatnonzero(side == name)
            if not len(own):
                raise ValueError(f"{self.path}: every split must have rows, and the {name} split has none")
            texts = [read.texts[i] for i in own]
            found[name] = ImageTextRows(texts, torch.from_numpy(read.image[own]), torch.from_numpy(target[own]))
        if self.unseen_classes:
            found["test"] = self._with_prompts(found["test"])
        return found

    def _with_prompts(self, test: ImageTextRows) -> ImageTextRows:
        names = self._read[1]
        classes = range(len(names)) if self.candidates == "all" else test.target.unique().tolist()
        texts, target = prompts(names, classes, self.templates)
        rows = len(test.texts)
        return ImageTextRows(
            [*test.texts, *texts],
            torch.cat([test.image, test.image[:1].expand(len(texts))]),
            torch.cat([test.target, torch.tensor(target)]),
            prompt=torch.arange(rows + len(texts)) >= rows,
        )

    @cached_property
    def _tables(self) -> dict[str, Dataset]:
        """The splits that are used, by their published names, columns checked."""
        tables = open_table(self.path, self.config, self.revision)
        known = {name: table for name, table in tables.items() if name.lower() in MEANT}
        known = known or (tables if len(tables) == 1 else {})
        if not known:
            raise ValueError(f"{self.path}: the splits must be train, validation, test, got {', '.join(tables)}")
        wanted = [c for c in (self.image_column, self.text_column, self.label_column, self.group_column) if c]
        for name, table in known.items():
            for column in wanted:
                if column not in table.column_names:
                    there = did_you_mean(column, table.column_names)
                    raise ValueError(f"{self.path}, split {name}: no column {column!r}. {there}")
        return known

    @cached_property
    def _published(self) -> dict[SplitName, str]:
        """Our splits that are published, and under which name; a lone validation split is the test."""
        if len(self._tables) == 1:
            return {"train": next(iter(self._tables))}
        found: dict[SplitName, str] = {MEANT[name.lower()]: name for name in self._tables}
        if "test" not in found and "val" in found:
            found["test"] = found.pop("val")
        if "train" not in found:
            raise ValueError(f"{self.path}: there must be a train split, got {', '.join(self._tables)}")
        return found

    @cached_property
    def _read(self) -> tuple[_Read, tuple[str, ...]]:
        """All rows, and the names of the classes."""
        side_of: dict[str, SplitName] = {name: side for side, name in self._published.items()}
        texts: list[str] = []
        image: list[int] = []
        labels: list[str] = []
        side: list[SplitName] = []
        first: dict[str, tuple[int, SplitName]] = {}
        start = 0
        for name, table in self._tables.items():
            cells = self._cells(table)
            for row in range(len(table)):
                where = f"{self.path}, split {name}, row {row + 1}"
                group = str(cells[self.group_column][row]) if self.group_column else str(start + row)
                position, own = first.setdefault(group, (start + row, side_of[name]))
                if own != side_of[name] and not self.unseen_classes:
                    raise ValueError(f"{where}: a group must be in one split, but {group!r} is in the {own} split too")
                value = cells[self.text_column][row]
                for text in value if isinstance(value, list) and value else [value]:
                    texts.append(check_text(text, f"{where}, column {self.text_column!r}"))
                    image.append(position)
                    side.append(side_of[name])
                    if self.label_column:
                        labels.append(self._label(table, cells[self.label_column][row], where))
            start += len(table)
        numbers, names = self._classes(np.array(labels), np.array(side)) if self.label_column else (np.array(image), ())
        return _Read(texts, np.array(image), numbers, side), names

    def _cells(self, table: Dataset) -> dict[str, Any]:
        """The columns without images, in memory."""
        columns = [c for c in (self.text_column, self.label_column, self.group_column) if c]
        return dict(table.select_columns(list(dict.fromkeys(columns)))[:])

    def _label(self, table: Dataset, value: object, where: str) -> str:
        from datasets import ClassLabel

        feature = table.features[self.label_column]
        if isinstance(feature, ClassLabel) and isinstance(value, int) and 0 <= value < len(feature.names):
            return feature.names[value]
        if isinstance(feature, ClassLabel) or value is None or value == "":
            raise ValueError(f"{where}, column {self.label_column!r}: must be a label, got {value!r}")
        return str(value)

    def _classes(self, labels: Any, side: Any) -> tuple[Integers, tuple[str, ...]]:
        numbers, names = class_numbers(labels)
        if self.unseen_classes:
            return numbers, names
        seen = np.isin(np.arange(len(names)), numbers[side == "train"])
        if not seen.all():
            raise ValueError(f"{self.path}: label {names[int((~seen).argmax())]!r} is never in the train split")
        return numbers, names

    def _sides(self, read: _Read) -> Any:
        """The split of each row: as published, what is missing cut from the training images."""
        if self.unseen_classes:
            return self._class_sides(read)
        side = np.array(read.side, dtype=object)
        missing: Sequence[SplitName] = [name for name in ("val", "test") if name not in self._published]
        if missing:
            train = np.flatnonzero(side == "train")
            shares = (*[self.held_out] * len(missing), 1 - self.held_out * len(missing))
            strata = read.label[train] if self.label_column else np.zeros(len(train), dtype=np.int64)
            parts = split_by_class(strata, shares, "hub_image_text", read.image[train])
            for name, part in zip(missing, parts, strict=False):
                side[train[part]] = name
        return side

    def _class_sides(self, read: _Read) -> Any:
        """The split of each row by its class."""
        classes = np.unique(read.label)
        order, start = fixed_order(classes, "hub_image_text/classes"), 0
        side = np.full(len(read.label), "train", dtype=object)
        for name, share in UNSEEN.items():
            held = order[start : start + max(2, round(share * len(classes)))]
            side[np.isin(read.label, held)] = name
            start += len(held)
        if len(classes) < start + 2:
            raise ValueError(
                f"{self.path}: `unseen_classes` must leave two classes for training, and column "
                f"{self.label_column!r} has {len(classes)}"
            )
        first: dict[int, str] = {}
        for image, own in zip(read.image.tolist(), side, strict=True):
            if first.setdefault(image, own) != own:
                raise ValueError(
                    f"{self.path}: image {image + 1} has classes of {first[image]} and {own}: it must have one"
                )
        return side
