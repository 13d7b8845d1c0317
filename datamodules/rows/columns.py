"""Columns of a table as features: numbers, words as categories, empty cells filled in and flagged.

What there is to know of a column (its categories, what fills a gap) comes from training rows, and is plain data: rows
that come later are read as the training rows were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct
from numpy.typing import NDArray

from datamodules.rows.standardise import moments, standardise

MOST = 32  # categories of a column that get a feature each; the rarer ones share one
FAR = 10.0  # widths of the middle nine tenths of the training rows beyond which a number is drawn in
NAMED = 4  # columns of a sentence
HUGE = 1e100  # its square is still a number

Floats = NDArray[np.float64]
Cells = Any  # a pd.Series: pandas' annotations know of no column of a table that it is one


class BadCell(ValueError):
    """A cell that is no value of its column."""

    def __init__(self, row: int, said: str) -> None:
        super().__init__(said)
        self.row = row


class Numbers(Struct, frozen=True, tag=True):
    """A column of numbers.

    Attributes:
        fill: Median of the training rows, for empty cells.
        low, high: Numbers beyond are drawn in to these.
        flagged: Whether a feature says which cells were empty.
    """

    name: str
    fill: float
    low: float
    high: float
    flagged: bool

    @property
    def features(self) -> tuple[str, ...]:
        """Names of what it becomes."""
        return (self.name, f"{self.name} is empty") if self.flagged else (self.name,)

    def spell(self, own: Floats) -> str:
        """What a cell of these features was."""
        return "empty" if self.flagged and own[1] > 0.5 else f"{own[0]:.4g}"

    def encode(self, cells: Cells) -> Floats:
        """`[N, features]`."""
        values = numbers(cells)
        empty = np.isnan(values)
        values = np.clip(np.where(empty, self.fill, values), self.low, self.high)
        return np.stack([values, empty.astype(np.float64)] if self.flagged else [values], axis=1)


class Categories(Struct, frozen=True, tag=True):
    """A column of words: a feature for each word that training rows have often, one for the others, one for none.

    Attributes:
        known: The words with a feature of their own.
        other: Whether rarer words of the training rows have one too; it is theirs that never were in training.
        empty: Whether empty cells have one.
    """

    name: str
    known: tuple[str, ...]
    other: bool
    empty: bool

    @property
    def features(self) -> tuple[str, ...]:
        """Names of what it becomes."""
        others = ("another",) if self.other else ()
        return tuple(f"{self.name} = {word}" for word in (*self.known, *others)) + (
            (f"{self.name} is empty",) if self.empty else ()
        )

    def spell(self, own: Floats) -> str:
        """What a cell of these features was."""
        names = (*self.known, *(("another",) if self.other else ()), *(("empty",) if self.empty else ()))
        return names[int(own.argmax())] if own.max(initial=0.0) > 0.5 else "another"

    def encode(self, cells: Cells) -> Floats:
        """`[N, features]`, 0 or 1."""
        there = words(cells)
        hot = [there == word for word in self.known]
        empty = cells.isna().to_numpy()
        if self.other:
            hot.append(~empty & ~np.isin(there, self.known))
        if self.empty:
            hot.append(empty)
        return np.stack(hot, axis=1).astype(np.float64)


Column = Numbers | Categories


class View(Struct, frozen=True):
    """The columns of one modality, and the moments of their features over training rows."""

    columns: tuple[Column, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of what a method sees."""
        return tuple(name for column in self.columns for name in column.features)

    def spell(self, value: NDArray[np.floating]) -> str:
        """The cells that became `value`, `[features]`, for people: `hb 13.2, sex f`."""
        raw, said, start = value.astype(np.float64) * self.deviation + self.mean, [], 0
        for column in self.columns:
            own = raw[start : start + len(column.features)]
            start += len(own)
            said.append(f"{column.name} {column.spell(own)}")
        return ", ".join(said)

    def encode(self, frame: pd.DataFrame) -> NDArray[np.float32]:
        """`[N, features]`, standardised; rows that lack the modality too, whose features say nothing."""
        x = _encoded(self.columns, frame)
        return standardise(x, np.array(self.mean), np.array(self.deviation))


def fit_view(columns: Sequence[Column], frame: pd.DataFrame, train: NDArray[np.int64]) -> View:
    """The columns with the moments of rows `train`."""
    mean, deviation = moments(_encoded(columns, frame)[train])
    return View(tuple(columns), tuple(mean.tolist()), tuple(deviation.tolist()))


def _encoded(columns: Sequence[Column], frame: pd.DataFrame) -> Floats:
    return np.concatenate([column.encode(frame[column.name]) for column in columns], axis=1)


def is_words(cells: Cells) -> bool:
    """Whether most of the cells that are not empty are no numbers."""
    filled = cells.dropna()
    if pd.api.types.is_numeric_dtype(cells) or not len(filled):
        return False
    return bool(_parsed(filled).isna().mean() > 0.5)


def fit_numbers(name: str, cells: Cells, train: NDArray[np.int64], flagged: bool) -> Numbers:
    """What training rows say of a column of numbers.

    Raises:
        BadCell: For one that is no finite number.
    """
    every = numbers(cells)
    own = every[train]
    own = own[np.isfinite(own)]
    if not len(own):
        return Numbers(name, 0.0, -HUGE, HUGE, flagged and bool(np.isnan(every[train]).any()))
    low, fill, high = np.quantile(own, [0.05, 0.5, 0.95]).tolist()
    reach = FAR * (high - low)
    # Nine tenths of a column may be the same value: then nothing says what is far from it.
    bounds = (fill - reach, fill + reach) if reach > 0 else (-HUGE, HUGE)
    return Numbers(name, fill, *bounds, flagged and bool(np.isnan(every[train]).any()))


def fit_categories(name: str, cells: Cells, train: NDArray[np.int64], flagged: bool) -> Categories:
    """What training rows say of a column of words.

    Raises:
        ValueError: If hardly two rows share a word, so that it tells rows apart and nothing else.
    """
    own = cells.iloc[train]
    counts: Any = pd.Series(words(own.dropna())).value_counts()
    filled = int(counts.sum())
    if len(counts) > max(2, filled / 2):
        raise ValueError(
            f"column {name!r} has {len(counts):,} different texts in {filled:,} training rows (such as "
            f"{shown(counts.index[0])}): a name, a date or free text, and no category: leave it out of `modalities`"
        )
    often = counts[counts >= 2] if len(counts) > 2 else counts
    known = sorted(often.index[:MOST].tolist())
    return Categories(name, tuple(known), len(known) < len(counts), flagged and bool(own.isna().any()))


def remarks(columns: Sequence[Column], frame: pd.DataFrame) -> list[str]:
    """What was done to columns on the way, in sentences."""
    said = []
    shares = {c.name: float(np.mean(frame[c.name].isna().to_numpy())) for c in columns}
    if filled := [(share, name) for name, share in shares.items() if share > 0]:
        names = ", ".join(f"{name!r} {share:.1%}" for share, name in sorted(filled, reverse=True)[:NAMED])
        more = f" and {len(filled) - NAMED} more" if len(filled) > NAMED else ""
        how = "filled in with the training median, or a category of their own, and flagged"
        said.append(f"empty cells are {how}: {names}{more}")
    for column in columns:
        if isinstance(column, Categories):
            rest = ", the rarer ones together" if column.other else ""
            said.append(f"{column.name!r} is words: {len(column.known)} categories{rest}")
            continue
        values = numbers(frame[column.name])
        if (far := (values < column.low) | (values > column.high)).any():
            row = int(far.argmax())
            near = column.low if values[row] < column.low else column.high
            said.append(
                f"{int(far.sum())} of {column.name!r} are far beyond all others, and are drawn in: row {row + 1} has "
                f"{values[row]:g}, which counts as {near:g}"
            )
        if values[~np.isnan(values)].min(initial=np.inf) == values[~np.isnan(values)].max(initial=-np.inf):
            said.append(f"{column.name!r} is the same in every row, and says nothing")
    return said


def numbers(cells: Cells) -> Floats:
    """The cells as numbers, NaN where one is empty.

    Raises:
        BadCell: For the first that is none.
    """
    found = np.asarray(_parsed(cells), dtype=np.float64)
    bad = cells.notna().to_numpy() & ~(np.abs(found) < HUGE)
    if bad.any():
        row = int(bad.argmax())
        cell = cells.iloc[row]
        raise BadCell(row, f"must be a finite number, got {shown(cell)}")
    return found


def words(cells: Cells) -> NDArray[np.str_]:
    """The cells as they are written, without blanks around them; an empty one is ""."""
    return cells.astype(object).where(cells.notna(), "").astype(str).str.strip().to_numpy(dtype=np.str_)


def _parsed(cells: Cells) -> Cells:
    """Numbers, NaN where a cell is none."""
    if pd.api.types.is_numeric_dtype(cells):
        return cells.astype(np.float64)
    try:
        parsed: Cells = pd.to_numeric(cells.astype(object), errors="coerce")
        return parsed.astype(np.float64)
    except (OverflowError, TypeError, ValueError):  # an integer of hundreds of digits, a cell that is a list
        return pd.Series([_number(cell) for cell in cells], index=cells.index, dtype=np.float64)


def _number(cell: object) -> float:
    try:
        return float(cell)  # pyright: ignore[reportArgumentType] - what is no number is caught
    except (OverflowError, TypeError, ValueError):
        return np.nan


def shown(cell: object) -> str:
    """A cell for an error, not all of a long one."""
    text = repr(cell.item() if isinstance(cell, np.generic) else cell)
    return text if len(text) <= 60 else f"{text[:50]}.. ({len(text):,} letters)"
