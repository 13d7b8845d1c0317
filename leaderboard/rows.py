"""What each test row adds to a score, read from the stored predictions of a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from leaderboard import scores
from leaderboard.record import Record
from leaderboard.store import Store

Floats = NDArray[np.float64]


class Source(Protocol):
    """Where the rows of cells are known from: a results folder, an export, a table."""

    @property
    def folder(self) -> Path:
        """Where that is, for people."""
        ...


def read(store: Source, cell: str, metric: str, conditions: list[str]) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Targets `[N, ...]` and predictions `[conditions, N, ...]` in the order of the split's rows.

    Returns:
        None when predictions were not kept in a form that can be resampled.
    """
    if not isinstance(store, Store) or not scores.supported(metric):
        return None
    try:
        target, row, pred = store.stacked(cell, conditions)
        if not np.array_equal(row, np.arange(len(target))):  # mostly they are in order, and no copy is made
            order = np.argsort(row, kind="stable")
            target, pred = target[order], pred[:, order]
    except (OSError, KeyError, ValueError):
        return None
    if metric.startswith("recall_at") and not np.issubdtype(pred.dtype, np.integer):
        return None  # Embeddings: a row's hit depends on which other rows were drawn.
    return target, pred


def groups(store: Source, record: Record) -> NDArray[Any] | None:
    """The source of each row, in the order of the split's rows; None where rows are independent, or nothing is kept."""
    if not isinstance(store, Store):
        return None
    try:
        stored = store.predictions(record.cell.id, {"row", "group"})
        return stored["group"][np.argsort(stored["row"], kind="stable")]
    except (OSError, KeyError, ValueError):
        return None


def contributions(store: Source, record: Record, weights: Mapping[str, float]) -> Floats | None:
    """Per row, what it adds to the weighted mean of the scores under these conditions.

    Args:
        store: The folder the cell's predictions are in.
        record: The cell.
        weights: Condition id -> weight; `{"clean": 1.0}` gives the clean score.

    Returns:
        `[N]` with mean `sum_c weights[c] * score_c`, or None as `read` does.
    """
    found = several(store, record.cell.id, record.cell.metric, weighing([weights]))
    return None if found is None else found[0]


class Weighing(NamedTuple):
    """Several weighted means of conditions: the weights `[weightings, conditions]` and the ids of the conditions."""

    weights: Floats
    names: list[str]


def weighing(weightings: Sequence[Mapping[str, float]]) -> Weighing:
    """The same for all seeds of a method, and so made once."""
    names = list(dict.fromkeys(name for weights in weightings for name in weights))
    return Weighing(np.array([[weights.get(name, 0.0) for name in names] for weights in weightings]), names)


def several(store: Source, cell: str, metric: str, weighing: Weighing) -> Floats | None:
    """`contributions` to several weighted means `[weightings, N]`, the file read once."""
    found = read(store, cell, metric, weighing.names)
    if found is None:
        return None
    target, pred = found
    values = scores.contributions(metric, target, pred)
    summed = weighing.weights @ values.reshape(len(weighing.names), -1)
    return summed.reshape(-1, *values.shape[1:])
