"""A table of feature columns grouped into modalities: what a practitioner has."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.base import Split, SplitName
from datamodules.bases.user_views import FILL, NewRows, UserTarget, UserViews
from datamodules.registry import did_you_mean, register
from datamodules.rows.columns import (
    BadCell,
    Column,
    View,
    fit_categories,
    fit_numbers,
    fit_view,
    is_words,
    numbers,
    remarks,
    shown,
)
from datamodules.rows.fixed_order import Integers
from datamodules.rows.user_split import class_numbers
from datamodules.sources.table_file import TableFile, read_table
from datamodules.spec import Modality, Task

CsvGaps = Literal["impute", "absent", "error"]


class _Table(NamedTuple):
    """The checked content of the file: how each modality is read, the target and where each row belongs."""

    views: dict[str, View]
    there: dict[str, NDArray[np.bool_]]
    present: torch.Tensor | None
    target: NDArray[Any]
    names: tuple[str, ...]
    rows: dict[SplitName, NDArray[np.int64]]


@register("csv_views")
class CsvViews(UserViews):
    """Your CSV or parquet file: columns grouped into modalities, a target column, a fixed split.

    Words become categories, empty cells are filled in and flagged, numbers far beyond all others are drawn in, features
    are standardised, and so are regression targets: all by what training rows say, and all of it said in `notes`. A row
    whose cells of one modality are all empty lacks that modality. Rows count without the header.

    Args:
        file: The table, absolute or below POLYMODAL_DATA.
        modalities: Columns of each modality: `{ profile = ["0..3"], dm = ["mean", "skew"] }`; `"a..b"` is the range
            from column a to column b. Without a header columns are called 0, 1, ...
        target: The target's column; of a multilabel task the columns of its labels, 0 or 1 each.
        task, metric, split, group, title: As of every `UserViews`; `split` and `group` name columns.
        gaps: What to do about a row that has only some cells of a modality: fill in the training median and flag it,
            count the modality as absent, or take it for a mistake.
        categorical: Columns of numbers that are names (postcodes); columns of words are categories anyhow.
        header: Whether the first line names the columns.
        separator: Between cells; empty means that it is found out.
        encoding: Of the text; empty means that it is found out.
    """

    source = "folder: a CSV or parquet file of yours"

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
        gaps: CsvGaps = "impute",
        categorical: Sequence[str] = (),
        header: bool = True,
        separator: str = "",
        encoding: str = "",
        title: str = "",
    ) -> None:
        super().__init__(file=file, task=task, metric=metric, split=split, group=group, gaps=gaps, title=title)
        self.modalities = {} if modalities is None else modalities
        self.targets = (target,) if isinstance(target, str) else tuple(target)
        self.header = header
        self.separator = separator
        self.encoding = encoding
        self.categorical = tuple(categorical)
        if task != "multilabel" and len(self.targets) != 1:
            raise ValueError(f"`target` of a {task} task must be one column, got {list(self.targets)}")

    def describe(self) -> Task:
        table = self._table
        modalities = [Modality(name, "vector", (len(view.features),)) for name, view in table.views.items()]
        version = hashlib.sha256(self.path.read_bytes()).hexdigest()[:12]
        return self.task_of(version, modalities, table.target, table.names)

    def load(self) -> dict[SplitName, Split]:
        table = self._table
        inputs = {}
        for name, there in table.there.items():
            x = table.views[name].encode(self._frame)
            x[~there] = 0.0
            inputs[name] = torch.from_numpy(x)
        y = self.target_tensor(table.target, table.rows["train"])
        splits: dict[SplitName, Split] = {}
        for name, index in table.rows.items():
            rows = torch.from_numpy(index)
            here = None if table.present is None else table.present[rows]
            splits[name] = Split({key: x[rows] for key, x in inputs.items()}, y[rows], here, self.group_of(index))
        return splits

    @cached_property
    def _opened(self) -> TableFile:
        return self._open(self.path)

    @property
    def _frame(self) -> pd.DataFrame:
        return self._opened.frame

    def _open(self, path: Path) -> TableFile:
        """A table; columns that are no features as text."""
        text = {*(self.targets if self.kind == "multiclass" else ()), self.group}
        text |= {self.split} if isinstance(self.split, str) else set()
        return read_table(path, header=self.header, separator=self.separator, encoding=self.encoding, text=text)

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
            raise ValueError(
                f"{self.path}: column {repeated[0]!r} is used twice (by two of `modalities`, or by one and `target`)"
            )
        if twice := [column for column in used if column in self._opened.repeated]:
            raise ValueError(f"{self.path}: several columns are called {twice[0]!r}: rename them, so that one is meant")
        for column in self.categorical:
            self._position(column, "categorical")
        target, names = self._target()
        self.check_target(target, names, f"{self.path}, `target` {', '.join(map(repr, self.targets))}")
        rows = self.split_rows(target)
        there = self._there(chosen)
        present = self.present_of(there, rows["train"])
        views = {
            name: self._fit(columns, rows["train"][there[name][rows["train"]]]) for name, columns in chosen.items()
        }
        return _Table(views, there, present, target, names, rows)

    def _there(self, chosen: Mapping[str, Sequence[str]]) -> dict[str, NDArray[np.bool_]]:
        """Modality -> the rows that have it; half of one is filled in, absent, or a mistake."""
        there = {}
        for name, columns in chosen.items():
            empty = self._frame[columns].isna().to_numpy()
            partly = empty.any(axis=1) & ~empty.all(axis=1)
            if self.gaps == "error" and partly.any():
                row = int(partly.argmax())
                where = self._where(row, columns[int(empty[row].argmax())])
                raise ValueError(f"{where}: must not be empty, as other columns of {name!r} are not: {FILL}")
            there[name] = ~empty.any(axis=1) if self.gaps == "absent" else ~empty.all(axis=1)
        return there

    def _fit(self, columns: Sequence[str], train: Integers) -> View:
        """What training rows say of the columns of a modality."""
        fitted: list[Column] = []
        for column in columns:
            cells = self._frame[column]
            as_words = column in self.categorical or is_words(cells)
            try:
                fitted.append(
                    (fit_categories if as_words else fit_numbers)(column, cells, train, self.gaps == "impute")
                )
            except BadCell as error:
                advice = "" if pd.api.types.is_numeric_dtype(cells) else ", or name the column in `categorical`"
                raise ValueError(f"{self._where(error.row, column)}: {error}: mend it{advice}") from None
            except ValueError as error:
                raise ValueError(f"{self.path}: {error}") from None
        return fit_view(fitted, self._frame, train)

    @property
    def known_target(self) -> tuple[NDArray[Any], tuple[str, ...]]:
        return self._table.target, self._table.names

    @property
    def views(self) -> Mapping[str, View]:
        """Modality -> its columns, categories and moments, learnt of training rows."""
        return self._table.views

    @property
    def views_of(self) -> dict[str, Any]:
        return msgspec.to_builtins(dict(self.views))

    def spell(self, modality: str, value: Tensor) -> str:
        return self.views[modality].spell(value.numpy())

    @property
    def remarks(self) -> tuple[str, ...]:
        return tuple(said for view in self.views.values() for said in remarks(view.columns, self._frame))

    def new_rows(self, path: Path) -> NewRows:
        frame = self._open(path).frame
        missing = [c.name for view in self.views.values() for c in view.columns if c.name not in frame.columns]
        if missing:
            known = did_you_mean(missing[0], frame.columns.tolist())
            raise ValueError(f"{path} has no column {missing[0]!r}, which {self.path.name} was trained with. {known}")
        if not len(frame):
            raise ValueError(f"{path} has no rows")
        inputs, present = {}, []
        for name, view in self.views.items():
            empty = frame[[column.name for column in view.columns]].isna().to_numpy()
            there = ~empty.any(axis=1) if self.gaps == "absent" else ~empty.all(axis=1)
            try:
                x = view.encode(frame)
            except BadCell as error:
                raise ValueError(f"{path}, row {error.row + 1}, a column of {name!r}: {error}") from None
            x[~there] = 0.0
            inputs[name] = torch.from_numpy(x)
            present.append(there)
        if (nothing := ~np.stack(present).any(axis=0)).any():
            raise ValueError(f"{path}, row {int(nothing.argmax()) + 1}: every modality is empty")
        return NewRows(inputs, torch.from_numpy(np.stack(present, axis=1)))

    def _columns(self, wanted: Sequence[str]) -> list[str]:
        """Names of columns, with ranges written out."""
        found: list[str] = []
        for entry in [wanted] if isinstance(wanted, str) else wanted:
            first, dots, last = str(entry).partition("..")
            if dots and entry not in self._frame.columns:
                start, stop = self._position(first, "modalities"), self._position(last, "modalities")
                if stop < start:
                    raise ValueError(f"{self.path}: a range must run forwards, got {entry!r}")
                found += self._frame.columns[start : stop + 1].tolist()
            else:
                found.append(self._frame.columns[self._position(str(entry), "modalities")])
        if not found:
            raise ValueError(f"{self.path}: each of `modalities` must have a column, got {list(wanted)}")
        return found

    def _position(self, column: str, option: str) -> int:
        known = self._frame.columns.tolist()
        if column not in known:
            one = f" (one column, as the `separator` is {self._opened.separator!r})" if len(known) == 1 else ""
            there = did_you_mean(column, known)
            raise ValueError(f"{self.path} has no column {column!r}, which `{option}` names. {there}{one}")
        return known.index(column)

    def labels(self, name: str) -> NDArray[np.str_]:
        option = "target" if name in self.targets else "group" if name == self.group else "split"
        cells = self._frame.iloc[:, self._position(name, option)]
        if cells.isna().any():
            raise ValueError(f"{self._where(int(cells.isna().to_numpy().argmax()), name)}: must not be empty")
        return cells.astype(str).to_numpy(dtype=np.str_)

    def _target(self) -> tuple[NDArray[Any], tuple[str, ...]]:
        if self.kind == "multiclass":
            return class_numbers(self.labels(self.targets[0]))
        values = np.empty((len(self._frame), len(self.targets)))
        for j, column in enumerate(self.targets):
            try:
                values[:, j] = numbers(self._frame.iloc[:, self._position(column, "target")])
            except BadCell as error:
                raise ValueError(f"{self._where(error.row, column)}: {error}") from None
        if bad := self.first_bad(values):
            column = self.targets[bad[1]]
            cell = self._frame[column].iloc[bad[0]]
            raise ValueError(f"{self._where(bad[0], column)}: must be {self.expected}, got {shown(cell)}")
        return values, self.targets if self.kind == "multilabel" else ()

    def _where(self, row: int, column: str) -> str:
        return f"{self.path}, row {row + 1}, column {column!r}"
