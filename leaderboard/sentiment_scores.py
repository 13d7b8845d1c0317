"""Scores of sentiment intensities (-3 to 3) as sums over rows: Acc-2, Acc-5, Acc-7 and weighted F1.

`_nonzero` leaves neutral rows out and tells negative from positive; without, a neutral row is not negative.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ACCURACIES = ("accuracy_2", "accuracy_2_nonzero", "accuracy_5", "accuracy_7")
F1S = ("weighted_f1", "weighted_f1_nonzero")
_LIMITS = {"accuracy_5": 2, "accuracy_7": 3}


def rows(metric: str, target: NDArray[Any], pred: NDArray[Any]) -> Floats:
    """Summands `[..., N, K]` of intensities `[N]` and `[..., N]`; the last one says whether the row counts."""
    counted = np.broadcast_to(target != 0 if metric.endswith("_nonzero") else np.ones(target.shape, bool), pred.shape)
    guess, truth = _classes(metric, pred), np.broadcast_to(_classes(metric, target), pred.shape)
    if metric in ACCURACIES:
        return np.stack([(guess == truth) & counted, counted], axis=-1).astype(np.float64)
    sides = [(counted & (guess == side), counted & (truth == side)) for side in (False, True)]
    columns = [*(g & t for g, t in sides), *(g for g, _ in sides), *(t for _, t in sides), counted]
    return np.stack(columns, axis=-1).astype(np.float64)


def finish_f1(parts: Floats) -> Floats:
    """Each side's F1, weighted by its rows, from hits, guesses and truths of both sides."""
    hits, guessed, actual = np.split(parts, 3, axis=-1)
    bottom = guessed + actual
    f1 = np.divide(2 * hits, bottom, out=np.zeros_like(hits), where=bottom != 0)
    return (f1 * actual).sum(axis=-1) / np.maximum(actual.sum(axis=-1), 1)


def _classes(metric: str, x: NDArray[Any]) -> NDArray[Any]:
    if limit := _LIMITS.get(metric):
        return np.round(np.clip(x, -limit, limit))
    return x > 0 if metric.endswith("_nonzero") else x >= 0
