"""What the rows of a dataset say of a method: what comparisons need of them, and no more.

A comparison asks what groups of rows add to a measure, mean over seeds. That is kept in as many groups and steps as a
variance can use, so that an export holds it in a few hundred bytes, and a board of the export is, bit for bit, the
board of the records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from leaderboard import rows
from leaderboard.record import Record
from leaderboard.store import Store
from leaderboard.summary import Summary, summarise

GROUPS = 500  # independent draws of which a variance is known to 6 %; more rows are put together at random
STEPS = 127  # of what a group adds, on either side of 0: rounding changes a variance by 1 in 100 at most, mostly less

Weightings = Mapping[str, Mapping[str, float]]
"""Measure -> condition id -> weight."""


class Packed(NamedTuple):
    """A `Summary` in as few bytes as it takes."""

    mean: float
    variance: float
    interaction: float
    scale: float
    rows: bytes


@dataclass(frozen=True)
class Kept:
    """Outcomes without the predictions they come from: all that an export has.

    Attributes:
        lines: Cell id of an entry's first seed -> key of a weighting -> what is known.
    """

    folder: Path
    lines: Mapping[str, Mapping[str, Summary]]

    def summaries(self, records: Sequence[Record], weightings: Weightings) -> dict[str, Summary] | None:
        """What is kept of a method; None unless that is all it is asked for."""
        own = self.lines.get(records[0].cell.id, {})
        found = {name: own.get(key(weights)) for name, weights in weightings.items()}
        known = {name: line for name, line in found.items() if line is not None and line.seeds == len(records)}
        return known if len(known) == len(found) else None


@dataclass(frozen=True)
class Given:
    """Outcomes that somebody else's code measured: cell id -> condition id -> what each row adds to the score."""

    folder: Path
    values: Mapping[str, Mapping[str, NDArray[np.float64]]]

    def summaries(self, records: Sequence[Record], weightings: Weightings) -> dict[str, Summary] | None:
        """Of the rows; None unless all are known."""
        own = [self.values.get(r.cell.id, {}) for r in records]
        if any(not values.keys() >= weights.keys() for values in own for weights in weightings.values()):
            return None
        if len({array.shape for values in own for array in values.values()}) != 1:
            return None
        return {
            name: from_rows(np.stack([sum((w * v[c] for c, w in weights.items()), np.zeros(1)) for v in own]), None)
            for name, weights in weightings.items()
        }


def summaries(
    records: Sequence[Record], weightings: Weightings, stores: Mapping[str, Any], groups: NDArray[Any] | None
) -> dict[str, Summary] | None:
    """What the rows say of a method's measures.

    Args:
        records: Of one method on one dataset, one per seed.
        weightings: The measures.
        stores: Cell id -> where its rows are known from.
        groups: Of `grouping`.

    Returns:
        None unless it is known of every record, from one kind of source.
    """
    sources = [stores[r.cell.id] for r in records]
    if not all(isinstance(source, Store) for source in sources):
        first = sources[0]
        same = all(source is first for source in sources)
        return first.summaries(records, weightings) if same else None
    files = [(stores[r.cell.id], r.cell.id) for r in records]
    return from_files(files, records[0].cell.metric, weightings, groups)


def from_files(
    files: Sequence[tuple[Store, str]], metric: str, weightings: Weightings, groups: NDArray[Any] | None
) -> dict[str, Summary] | None:
    """What the rows of a method's seeds say, from folders and cell ids; None unless all have the same rows."""
    weighing = rows.weighing(list(weightings.values()))
    stacks = [rows.several(store, cell, metric, weighing) for store, cell in files]
    whole = [stack for stack in stacks if stack is not None]
    sizes = {stack.shape[1] for stack in whole} | (set[int]() if groups is None else {len(groups)})
    if len(whole) < len(stacks) or len(sizes) > 1:
        return None
    return {name: from_rows(np.stack([s[i] for s in whole]), groups) for i, name in enumerate(weightings)}


def grouping(records: Sequence[Record], stores: Mapping[str, Any]) -> NDArray[Any] | None:
    """The source of each test row of a dataset, from the first record whose predictions are at hand."""
    for record in records:
        store = stores[record.cell.id]
        if isinstance(store, Store):
            return rows.groups(store, record)
    return None


def from_rows(values: NDArray[Any], sources: NDArray[Any] | None) -> Summary:
    """`summarise`, in groups and steps that an export can keep.

    Args:
        values: `[seeds, rows]`.
        sources: `[rows]`, equal where rows are not independent; None: all are.
    """
    size: int = values.shape[1]
    codes = np.arange(size) if sources is None else np.unique(sources, return_inverse=True)[1]
    number = int(codes.max()) + 1
    if number > GROUPS:
        # Neighbours in the order of the split, which is no order of the data.
        codes = codes * GROUPS // number
    return rounded(summarise(values, codes))


def rounded(summary: Summary) -> Summary:
    """The summary as an export gives it back."""
    return unpack(pack(summary), summary.seeds)


def pack(summary: Summary) -> Packed:
    """Round what groups add to steps; a summary that came out of `unpack` loses nothing."""
    # In single precision, so that its multiples are exact and what was rounded once stays as it is.
    scale = float(np.float32(np.abs(summary.rows).max() / STEPS))
    steps = np.rint(summary.rows / scale) if scale > 0 else np.zeros(len(summary.rows))
    return Packed(summary.mean, summary.variance, summary.interaction, scale, steps.astype(np.int8).tobytes())


def unpack(packed: Packed, seeds: int) -> Summary:
    """What `pack` packed."""
    steps = np.frombuffer(packed.rows, dtype=np.int8).astype(np.float64)
    return Summary(packed.mean, seeds, packed.variance, packed.interaction, steps * packed.scale)


def key(weights: Mapping[str, float]) -> str:
    """A name for a weighting: equal weights, equal name."""
    return hashlib.sha256(msgspec.json.encode(dict(weights), order="sorted")).hexdigest()[:16]
