"""Area under the ROC curve and average precision, from the score of each row, for rows that are drawn several times.

They compare rows with each other, so they are no functions of sums over rows; what a row adds to them is its derivative
by the row's weight (for the ROC curve: the placements of DeLong et al., 1988).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

METRICS = ("auroc", "average_precision")


def score(metric: str, target: NDArray[Any], pred: NDArray[Any], multiplicity: NDArray[Any] | None = None) -> Floats:
    """As `scores.score`: target `[N]` of 0 and 1, scores of class 1 `[..., N]`, rows drawn `[..., N]` times."""
    weights = np.ones(len(target)) if multiplicity is None else np.asarray(multiplicity, dtype=np.float64)
    each = [_one(metric, target, one, weights) for one in pred.reshape(-1, len(target))]
    return np.stack(each, axis=-1).reshape((*weights.shape[:-1], *pred.shape[:-1]))


def contributions(metric: str, target: NDArray[Any], pred: NDArray[Any]) -> Floats:
    """As `scores.contributions`: `[..., N]` whose mean is the score, to first order in the rows' weights."""
    slope = _auroc_slope if metric == "auroc" else _precision_slope
    each = [slope(target == 1, one) for one in pred.reshape(-1, len(target))]
    return np.stack(each).reshape(pred.shape)


def _one(metric: str, target: NDArray[Any], pred: NDArray[Any], weights: Floats) -> Floats:
    """The score of one prediction `[N]` under weights `[..., N]`; no row of a class: not a number."""
    order, last = _ranked(pred)
    right = (target == 1)[order]
    weights = weights[..., order]
    hits, misses = np.cumsum(weights * right, axis=-1), np.cumsum(weights * ~right, axis=-1)
    # Rows of one score are one step: the curves are taken at the last of them.
    hits, misses = hits[..., last], misses[..., last]
    gained = np.diff(hits, axis=-1, prepend=0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        if metric == "average_precision":
            precision = np.divide(hits, hits + misses, out=np.zeros_like(hits), where=hits + misses > 0)
            return (gained * precision).sum(axis=-1) / hits[..., -1]
        missed = np.diff(misses, axis=-1, prepend=0.0)
        behind = misses[..., -1:] - misses + missed / 2  # wrong rows with a lower score; ties count half
        return (gained * behind).sum(axis=-1) / (hits[..., -1] * misses[..., -1])


def _ranked(pred: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows from the highest score to the lowest, and the place of the last row of each distinct score."""
    pred = np.where(np.isnan(pred), -np.inf, pred)  # a broken row is found last
    order = np.argsort(-pred, kind="stable")
    return order, np.append(np.flatnonzero(np.diff(pred[order])), len(pred) - 1)


def _auroc_slope(right: NDArray[np.bool_], pred: NDArray[Any]) -> Floats:
    """Of a right row, the share of wrong rows it is above; of a wrong row, the share of right rows above it."""
    area = float(_one("auroc", right, pred, np.ones(len(right))))
    pred = np.where(np.isnan(pred), -np.inf, pred)
    groups = np.sort(pred[~right]), np.sort(pred[right])
    above = [
        (np.searchsorted(g, pred, "left") + np.searchsorted(g, pred, "right")) / (2 * max(len(g), 1)) for g in groups
    ]
    placement = np.where(right, above[0], 1 - above[1])
    share = np.where(right, float(right.mean()), float((~right).mean()))
    return area + (placement - area) / share


def _precision_slope(right: NDArray[np.bool_], pred: NDArray[Any]) -> Floats:
    order, last = _ranked(pred)
    step = np.repeat(np.arange(len(last)), np.diff(last, prepend=-1))  # of each ranked row, its place among the scores
    hits, seen = np.cumsum(right[order])[last], last + 1
    precision = hits / seen
    gained = np.diff(hits, prepend=0)
    number = max(int(right.sum()), 1)
    average = float((gained * precision).sum() / number)
    # One more right row raises the precision at its score and below by (1 - p) / n, a wrong one lowers it by p / n.
    lower = [np.cumsum((gained * change / seen)[::-1])[::-1] for change in (1 - precision, -precision)]
    slope = np.where(right[order], precision[step] - average + lower[0][step], lower[1][step]) / number
    found = np.empty(len(pred))
    found[order] = average + len(pred) * slope
    return found
