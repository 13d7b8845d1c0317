"""Views in a file of the user's own: what a table and a file of arrays have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.base import DataModule, SplitName
from datamodules.rows.fixed_order import Integers
from datamodules.rows.standardise import standardise_by
from datamodules.rows.user_split import class_numbers, split_by_name, split_by_shares
from datamodules.sources.folders import find_data
from datamodules.spec import Modality, Task

UserTarget = Literal["multiclass", "multilabel", "regression"]
Gaps = Literal["error", "absent"]
FILL = 'fill it, leave out the whole modality of this row, or say gaps = "absent" to count it as left out'


class UserViews(DataModule):
    """A file with a target; a subclass reads the modalities out of it. Rows count from 1 in errors.

    Args:
        file: Absolute or below POLYMODAL_DATA.
        task: What the target is. Classes are numbered in order; F1 of two classes is that of the second.
        metric: Name of the score; empty means the default of the task.
        split: What says train, val or test for each row, or three shares: then the split is stratified by class and
            fixed by `title`.
        group: What says the source of each row; rows of one source stay in one split.
        gaps: What to do about a row that has only a part of a modality: an error, or count the modality as absent.
        title: Of the task; empty means the name of the file.
    """

    licence = "yours"
    citation = "yours"

    def __init__(
        self,
        *,
        file: str,
        task: UserTarget,
        metric: str,
        split: str | Sequence[float],
        group: str,
        gaps: Gaps,
        title: str,
    ) -> None:
        super().__init__()
        self.file = file
        self.kind: UserTarget = task
        self.metric = metric
        self.split = split
        self.group = group
        self.gaps: Gaps = gaps
        self.given_title = title

    @abstractmethod
    def labels(self, name: str) -> NDArray[np.str_]:
        """A column or array as text, one for each row."""

    @cached_property
    def path(self) -> Path:
        """The file."""
        return find_data(self.file, "file")

    @property
    def title(self) -> str:
        """Of the task."""
        return self.given_title or self.path.stem

    @property
    def suffix(self) -> str:
        return f"[{self.title}]"

    @cached_property
    def groups(self) -> Integers | None:
        """`[N]` source of each row."""
        return class_numbers(self.labels(self.group))[0] if self.group else None

    def task_of(self, version: str, views: Sequence[Modality], target: NDArray[Any], names: tuple[str, ...]) -> Task:
        """The task; its version is made of the content: an edited file is another dataset, never mixed with the old."""
        outputs = len(names) if self.kind == "multiclass" else target.shape[1]
        return Task(self.title, version, tuple(views), self.kind, outputs, metric=self.metric, class_names=names)

    def split_rows(self, target: NDArray[Any]) -> dict[SplitName, Integers]:
        """The rows of each split."""
        if isinstance(self.split, str):
            return split_by_name(self.labels(self.split), self.groups, f"{self.path}, {self.split!r}")
        strata = target.astype(np.int64) if self.kind == "multiclass" else np.zeros(len(target), dtype=np.int64)
        return split_by_shares(self.split, strata, self.title, self.groups)

    def first_bad(self, values: NDArray[np.float64]) -> tuple[int, int] | None:
        """Row and column of the first value that is no target of this kind."""
        bad = ~np.isfinite(values) if self.kind == "regression" else ~np.isin(values, (0.0, 1.0))
        return tuple(np.argwhere(bad)[0].tolist()) if bad.any() else None

    @property
    def expected(self) -> str:
        """What a value of the target must be."""
        return "a finite number" if self.kind == "regression" else "0 or 1"

    def target_tensor(self, target: NDArray[Any], train: Integers) -> Tensor:
        """The target as it is learnt: regression in units of the training rows' deviations."""
        if self.kind == "multiclass":
            return torch.from_numpy(target)
        return torch.from_numpy(standardise_by(train, target) if self.kind == "regression" else target).float()

    def present_of(self, there: Mapping[str, NDArray[np.bool_]], train: Integers) -> Tensor | None:
        """`[N, M]`, by the rows that have each modality; None if all have all.

        Raises:
            ValueError: For a row without any modality, or a modality without any training row.
        """
        present = np.stack(list(there.values()), axis=1)
        if (nothing := ~present.any(axis=1)).any():
            raise ValueError(f"{self.path}, row {int(nothing.argmax()) + 1}: every modality is empty")
        for name, rows in there.items():
            if not rows[train].any():
                raise ValueError(f"{self.path}: some training row must have the modality {name!r}, and none has")
        return None if present.all() else torch.from_numpy(present)

    def group_of(self, rows: Integers) -> Tensor | None:
        """The source of some rows."""
        return None if self.groups is None else torch.from_numpy(self.groups[rows])
