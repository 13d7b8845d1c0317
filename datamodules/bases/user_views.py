"""Views in a file of the user's own: what a table and a file of arrays have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.base import DataModule, SplitName
from datamodules.rows.class_balance import metric_for
from datamodules.rows.fixed_order import Integers
from datamodules.rows.standardise import moments, standardise
from datamodules.rows.user_split import class_numbers, split_by_name, split_by_shares
from datamodules.sources.folders import find_data
from datamodules.spec import Modality, Task

UserTarget = Literal["multiclass", "multilabel", "regression"]
Gaps = Literal["error", "absent"]
FEWEST = 20  # rows: fewer tell nothing, whatever is done with them
LARGEST = 1e25  # of a number: in units of the smallest deviation (`merged_moments`) a larger one is no float32
_FEW_TESTED = 100  # rows of the test split from which on a score is worth a decimal
FILL = 'fill it, leave out the whole modality of this row, or say gaps = "absent" to count it as left out'


class NewRows(NamedTuple):
    """Rows to predict: the inputs of each modality, and which rows have it."""

    inputs: dict[str, Tensor]
    present: Tensor


class UserViews(DataModule):
    """A file with a target; a subclass reads the modalities out of it. Rows count from 1 in errors.

    Args:
        file: Absolute or below POLYMODAL_DATA.
        task: What the target is. Classes are numbered in order; F1 of two classes is that of the second.
        metric: Name of the score; empty means that of the task, and balanced accuracy of classes that are not equally
            frequent: `notes` say so.
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
        gaps: str,
        title: str,
    ) -> None:
        super().__init__()
        self.file = file
        self.kind: UserTarget = task
        self.metric = metric
        self.split = split
        self.group = group
        self.gaps = gaps
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

    @abstractmethod
    def new_rows(self, path: Path) -> NewRows:
        """The rows of another file of the same make, prepared with what was learnt of the training rows."""

    @property
    @abstractmethod
    def views_of(self) -> dict[str, Any]:
        """Modality -> what turns its cells or arrays into inputs, as plain data."""

    @property
    def preparation(self) -> dict[str, Any]:
        """What turns rows into inputs and outputs into values, as plain data."""
        if self.kind != "regression":
            return {"inputs": self.views_of}
        deviation, mean = self.target_moments()
        return {"inputs": self.views_of, "target": {"mean": mean.tolist(), "deviation": deviation.tolist()}}

    @property
    @abstractmethod
    def known_target(self) -> tuple[NDArray[Any], tuple[str, ...]]:
        """The target of all rows, and the names of its classes or labels."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was done to the rows of the file on the way, in sentences."""
        return ()

    @property
    def notes(self) -> tuple[str, ...]:
        target, names = self.known_target
        _, why = self._metric(target, names)
        tested = len(self.split_rows(target)["test"])
        few = f"only {tested} rows are tested on: a score of so few is good to ±{1 / np.sqrt(tested):.2f} or so"
        said = [*filter(None, [why]), *self.remarks, *([few] if tested < _FEW_TESTED else [])]
        return tuple(f"{self.title}: {sentence}" for sentence in said)

    def task_of(self, version: str, views: Sequence[Modality], target: NDArray[Any], names: tuple[str, ...]) -> Task:
        """The task; its version is made of the content: an edited file is another dataset, never mixed with the old."""
        outputs = len(names) if self.kind == "multiclass" else target.shape[1]
        metric = self._metric(target, names)[0]
        return Task(self.title, version, tuple(views), self.kind, outputs, metric=metric, class_names=names)

    def check_target(self, target: NDArray[Any], names: Sequence[str], where: str) -> None:
        """Raise ValueError for a target that nothing can be learnt of, saying what to do; `where` names it."""
        rows = len(target)
        if rows < FEWEST:
            raise ValueError(f"{self.path} has {rows} rows: at least {FEWEST} are needed to train, select and test on")
        if self.kind == "multiclass" and len(names) < 2:
            raise ValueError(f"{where}: every row is {names[0]!r}: there must be two classes or more to tell apart")
        if self.kind == "multiclass" and len(names) > FEWEST and rows < 5 * len(names):
            advice = 'say task = "regression"' if _are_numbers(names) else "join classes, or name another `target`"
            raise ValueError(f"{where}: {len(names):,} different values in {rows:,} rows are hardly classes: {advice}")
        if self.kind == "regression" and (target == target[0]).all():
            raise ValueError(f"{where}: every row is {target[0].tolist()}: there must be something to predict")

    def _metric(self, target: NDArray[Any], names: tuple[str, ...]) -> tuple[str, str]:
        if self.metric or self.kind != "multiclass":
            return self.metric, ""
        return metric_for(target, names)

    def split_rows(self, target: NDArray[Any]) -> dict[SplitName, Integers]:
        """The rows of each split."""
        if isinstance(self.split, str):
            return split_by_name(self.labels(self.split), self.groups, f"{self.path}, {self.split!r}")
        strata = target.astype(np.int64) if self.kind == "multiclass" else np.zeros(len(target), dtype=np.int64)
        return split_by_shares(self.split, strata, self.title, self.groups)

    def first_bad(self, values: NDArray[np.float64]) -> tuple[int, int] | None:
        """Row and column of the first value that is no target of this kind."""
        regression = self.kind == "regression"
        bad = ~(np.abs(values) <= LARGEST) if regression else ~np.isin(values, (0.0, 1.0))
        return tuple(np.argwhere(bad)[0].tolist()) if bad.any() else None

    @property
    def expected(self) -> str:
        """What a value of the target must be."""
        return f"a finite number of at most {LARGEST:g}" if self.kind == "regression" else "0 or 1"

    def target_tensor(self, target: NDArray[Any], train: Integers) -> Tensor:
        """The target as it is learnt: regression in units of the training rows' deviations."""
        if self.kind == "multiclass":
            return torch.from_numpy(target)
        if self.kind == "regression":
            return torch.from_numpy(standardise(target, *moments(target[train])))
        return torch.from_numpy(target).float()

    def target_moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What a prediction of a regression is multiplied by and what is added to it: deviation and mean."""
        target = self.known_target[0]
        mean, deviation = moments(target[self.split_rows(target)["train"]])
        return deviation, mean

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


def _are_numbers(names: Sequence[str]) -> bool:
    try:
        return all(np.isfinite(float(name)) for name in names)
    except ValueError:
        return False
