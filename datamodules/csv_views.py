"""A table of feature columns grouped into modalities: what a practitioner has."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from datamodules.base import Split, SplitName
from datamodules.bases.user_views import FILL, Gaps, UserTarget, UserViews
from datamodules.registry import did_you_mean, register
from datamodules.rows.standardise import standardise_by
from datamodules.rows.user_split import class_numbers
from datamodules.spec import Modality, Task

Floats = NDArray[np.float64]


class _Table(NamedTuple):
    """The checked content of the file: rows x columns of each modality, the target and where each row belongs."""

    views: dict[str, Floats]
    there: dict[str, NDArray[np.bool_]]
    present: torch.Tensor | None
    target: NDArray[Any]
    names: tuple[str, ...]
    rows: dict[SplitName, NDArray[np.int64]]


@register("csv_views")
class CsvViews(UserViews):
    """Your CSV file: columns grouped into modalities, a target column, a fixed split.

    Features are standardised with the training rows' moments, and so are regression targets. A row whose cells of one
    modality are all empty lacks that modality; a row that has some of them is an error, which names it, unless `gaps`
    is "absent". Rows count without the header.

    Args:
        file: The table, absolute or below POLYMODAL_DATA.
        modalities: Columns of each modality: `{ profile = ["0..3"], dm = ["mean", "skew"] }`; `"a..b"` is the range
            from column a to column b. Without a header columns are called 0, 1, ...
        target: The target's column; of a multilabel task the columns of its labels, 0 or 1 each.
        task, metric, split, group, gaps, title: As of every `UserViews`; `split` and `group` name columns.
        header: Whether the first line names the columns.
        separator: Between cells.
    """

    source = "folder: a CSV file of yours"

    def __init__(
        self,
        *,
        file: str = "",
        modalities: Mapping[str, Sequence[str]] | None = None,
        target: str | Sequence[str] = "target",
        task: UserTarget = "multiclass",
        metric: str = "",
        split: str | Sequence[float] = (0.6, 0.2, 0.2),
        group: str = "",
        gaps: Gaps = "error",
        header: bool = True,
        separator: str = ",",
        title: str = "",
    ) -> None:
        super().__init__(file=file, task=task, metric=metric, split=split, group=group, gaps=gaps, title=title)
        self.modalities = {} if modalities is None else modalities
        self.targets = (target,) if isinstance(target, str) else tuple(target)
        self.header = header
        self.separator = separator
        if task != "multilabel" and len(self.targets) != 1:
            raise ValueError(f"`target` of a {task} task must be one column, got {list(self.targets)}")

    def describe(self) -> Task:
        table = self._table
        modalities = [Modality(name, "vector", (x.shape[1],)) for name, x in table.views.items()]
        version = hashlib.sha256(self.path.read_bytes()).hexdigest()[:12]
        return self.task_of(version, modalities, table.target, table.names)

    def load(self) -> dict[SplitName, Split]:
        table = self._table
        train, inputs = table.rows["train"], {}
        for name, there in table.there.items():
            x = standardise_by(train[there[train]], table.views[name])
            x[~there] = 0.0
            inputs[name] = torch.from_numpy(x)
        y = self.target_tensor(table.target, train)
        splits: dict[SplitName, Split] = {}
        for name, index in table.rows.items():
            rows = torch.from_numpy(index)
            here = None if table.present is None else table.present[rows]
            splits[name] = Split({key: x[rows] for key, x in inputs.items()}, y[rows], here, self.group_of(index))
        return splits

    @cached_property
    def _frame(self) -> pd.DataFrame:
        """The columns asked for; those that are no features as text."""
        labels = {*(self.targets if self.kind == "multiclass" else ()), self.group}
        labels |= {self.split} if isinstance(self.split, str) else set()
        try:
            first = pd.read_csv(self.path, sep=self.separator, header=0 if self.header else None, nrows=1)
            frame = pd.read_csv(
                self.path,
                sep=self.separator,
                header=0 if self.header else None,
                dtype={column: str for column in first.columns if str(column) in labels},
                low_memory=False,
            )
        except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.path} must be a table: {str(error).strip()}") from None
        return frame.set_axis([str(column) for column in frame.columns], axis="columns")

    @cached_property
    def _table(self) -> _Table:
        if len(self.modalities) < 2:
            raise ValueError(
                f"{self.path}: `modalities` must group columns into two modalities or more: "
                '{ a = ["x1", "x2"], b = ["y1..y9"] }'
            )
        chosen = {name: self._columns(columns) for name, columns in self.modalities.items()}
        used = [column for columns in (*chosen.values(), self.targets) for column in columns]
        if repeated := sorted({column for column in used if used.count(column) > 1}):
            raise ValueError(f"{self.path}: column {repeated[0]!r} is used twice (two modalities, or the target)")
        views = {name: self._numbers(columns) for name, columns in chosen.items()}
        self._check_gaps(views, chosen)
        target, names = self._target()
        rows = self.split_rows(target)
        there = {name: np.asarray(np.isfinite(x).all(axis=1)) for name, x in views.items()}
        return _Table(views, there, self.present_of(there, rows["train"]), target, names, rows)

    def _columns(self, wanted: Sequence[str]) -> list[str]:
        """Names of columns, with ranges written out."""
        found: list[str] = []
        for entry in [wanted] if isinstance(wanted, str) else wanted:
            first, dots, last = str(entry).partition("..")
            if dots and entry not in self._frame.columns:
                start, stop = self._position(first), self._position(last)
                if stop < start:
                    raise ValueError(f"{self.path}: a range must run forwards, got {entry!r}")
                found += self._frame.columns[start : stop + 1].tolist()
            else:
                found.append(self._frame.columns[self._position(str(entry))])
        if not found:
            raise ValueError(f"{self.path}: each modality must have a column, got {list(wanted)}")
        return found

    def _position(self, column: str) -> int:
        known = self._frame.columns.tolist()
        if column not in known:
            raise ValueError(f"{self.path} has no column {column!r}. {did_you_mean(column, known)}")
        return known.index(column)

    def _numbers(self, columns: Sequence[str]) -> Floats:
        """`[N, columns]`, NaN where a cell is empty."""
        found = np.empty((len(self._frame), len(columns)))
        for j, column in enumerate(columns):
            cells = self._frame.iloc[:, self._position(column)]
            numbers = np.asarray(pd.to_numeric(cells, errors="coerce"), dtype=np.float64)
            bad = cells.notna().to_numpy() & ~np.isfinite(numbers)
            if bad.any():
                row = int(bad.argmax())
                raise ValueError(f"{self._where(row, column)}: must be a finite number, got {_shown(cells.iloc[row])}")
            found[:, j] = numbers
        return found

    def labels(self, name: str) -> NDArray[np.str_]:
        cells = self._frame.iloc[:, self._position(name)]
        if cells.isna().any():
            raise ValueError(f"{self._where(int(cells.isna().to_numpy().argmax()), name)}: must not be empty")
        return cells.astype(str).to_numpy(dtype=np.str_)

    def _check_gaps(self, views: Mapping[str, Floats], chosen: Mapping[str, Sequence[str]]) -> None:
        """A modality is there or not; half of one is a mistake, unless it counts as absent."""
        for name, x in views.items() if self.gaps == "error" else ():
            empty = np.isnan(x)
            partly = empty.any(axis=1) & ~empty.all(axis=1)
            if partly.any():
                row = int(partly.argmax())
                column = chosen[name][int(empty[row].argmax())]
                raise ValueError(
                    f"{self._where(row, column)}: must not be empty, as other columns of {name!r} are not: {FILL}"
                )

    def _target(self) -> tuple[NDArray[Any], tuple[str, ...]]:
        if self.kind == "multiclass":
            return class_numbers(self.labels(self.targets[0]))
        values = self._numbers(self.targets)
        if bad := self.first_bad(values):
            column = self.targets[bad[1]]
            cell = self._frame.iloc[bad[0], self._position(column)]
            raise ValueError(f"{self._where(bad[0], column)}: must be {self.expected}, got {_shown(cell)}")
        return values, self.targets if self.kind == "multilabel" else ()

    def _where(self, row: int, column: str) -> str:
        return f"{self.path}, row {row + 1}, column {column!r}"


def _shown(cell: object) -> str:
    return repr(cell.item() if isinstance(cell, np.generic) else cell)
