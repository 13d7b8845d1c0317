"""Scores from stored predictions, in a form that lets rows be resampled.

Almost every metric is a function of sums over rows (`_rows` gives the summands, `_finish` the function), so a resampled
score is the same function of re-weighted sums, and ten thousand resamples are one matrix product. The others compare
rows with each other (`ranking_scores`).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leaderboard import ranking_scores, sentiment_scores

Floats = NDArray[np.float64]

_RECALL = re.compile(r"recall_at_(\d+)")
_PLAIN = (
    "accuracy", "balanced_accuracy", "correlation", "f1", "macro_f1", "mae", "micro_f1", "mse", "r2", "vqa_accuracy",
    *sentiment_scores.ACCURACIES, *sentiment_scores.F1S,
)  # fmt: skip
_UNBOUNDED = ("correlation", "mae", "mse", "r2")
_OVER_CLASSES = ("balanced_accuracy", "macro_f1", "micro_f1")


def supported(metric: str) -> bool:
    """Whether `metric` can be recomputed from stored predictions."""
    return metric in (*_PLAIN, *ranking_scores.METRICS) or _RECALL.fullmatch(metric) is not None


def within(metric: str, low: float, high: float) -> tuple[float, float]:
    """An interval as it is shown: no share of right answers is below 0 or above 1; a plugin's metric may be."""
    return (max(low, 0.0), min(high, 1.0)) if supported(metric) and metric not in _UNBOUNDED else (low, high)


def score(metric: str, target: NDArray[Any], pred: NDArray[Any], multiplicity: NDArray[Any] | None = None) -> Floats:
    """The metric of predictions, with each row counted `multiplicity` times.

    Args:
        metric: A metric name of a record, such as `accuracy`, `macro_f1`, `r2` or `recall_at_5`.
        target: `[N]` or `[N, L]`; not read by `recall_at_k`.
        pred: As the store keeps it, with any leading axes before `[N]` or `[N, L]`; for `recall_at_k` the rank of the
            first correct item, counted from 1 (-1: there is none), `[N]` or one per direction `[N, P]`.
        multiplicity: `[..., N]`, how often each row was drawn; None counts each once.

    Returns:
        The leading axes of `pred`, preceded by those of `multiplicity`.

    Raises:
        ValueError: If the metric is not known or the shapes do not fit.
    """
    if metric in ranking_scores.METRICS:
        return ranking_scores.score(metric, np.asarray(target), np.asarray(pred), multiplicity)
    if multiplicity is None:
        return _finish(metric, _sums(metric, np.asarray(target), np.asarray(pred)), target)
    rows = _rows(metric, np.asarray(target), np.asarray(pred))  # [..., N, K]
    weights = np.asarray(multiplicity, dtype=np.float64)
    if weights.shape[-1] != rows.shape[-2]:
        raise ValueError(f"Expected `multiplicity` to have {rows.shape[-2]} rows, but got {weights.shape[-1]}")
    return _finish(metric, np.tensordot(weights, rows, axes=([-1], [-2])), target)


def contributions(metric: str, target: NDArray[Any], pred: NDArray[Any]) -> Floats:
    """What each row adds to the score: values whose mean is the score, and whose weighted mean is the resampled score.

    Exact for averages over rows (accuracy, recall, errors); to first order in the resampling weights (the infinitesimal
    jackknife) for ratios of sums such as F1 and R2. This makes areas and means over conditions averages over rows too.

    Args:
        metric: As in `score`.
        target: `[N]` or `[N, L]`.
        pred: `[..., N]` or `[..., N, L]`.

    Returns:
        `[..., N]`.
    """
    if metric in ranking_scores.METRICS:
        return ranking_scores.contributions(metric, np.asarray(target), np.asarray(pred))
    if metric == "accuracy" and np.ndim(target) == 1 and np.shape(pred)[-1:] == np.shape(target):
        return np.asarray(pred == _alike(target, pred), dtype=np.float64)  # as below, a tenth of the time
    rows = _rows(metric, np.asarray(target), np.asarray(pred))
    number = rows.shape[-2]
    sums = rows.sum(axis=-2)  # [..., K]
    value = _finish(metric, sums, target)
    step = 1e-4 * max(number, 1)
    slope = np.zeros_like(sums)
    for k in range(sums.shape[-1]):
        shift = np.zeros(sums.shape[-1])
        shift[k] = step
        slope[..., k] = (_finish(metric, sums + shift, target) - _finish(metric, sums - shift, target)) / (2 * step)
    # A sum that is zero (a class that never occurs) stays zero in every resample: it has no slope.
    slope[sums == 0] = 0.0
    influence = np.einsum("...nk,...k->...n", rows, slope) * number
    # Exactly centred: finite differences leave a residue of 1e-9 or so.
    return value[..., None] + influence - influence.mean(axis=-1, keepdims=True)


def _sums(metric: str, target: NDArray[Any], pred: NDArray[Any]) -> Floats:
    """The sums of `_rows` over the rows, counted without making them where they are many."""
    if target.ndim != 1 or pred.shape[-1:] != target.shape or metric not in ("accuracy", *_OVER_CLASSES):
        return _rows(metric, target, pred).sum(axis=-2)
    number = np.full((*pred.shape[:-1], 1), float(len(target)))
    if metric == "accuracy":
        return np.concatenate([(pred == _alike(target, pred)).sum(axis=-1, keepdims=True), number], axis=-1)
    # Classes by their place among those that occur: a class that does not adds nothing to any sum.
    classes, place = np.unique(np.concatenate([target, pred.reshape(-1)]), return_inverse=True)
    actual, said = place[: len(target)], place[len(target) :].reshape(-1, len(target))
    count = np.stack([np.stack([np.bincount(which, minlength=len(classes))
                                for which in (one[one == actual], one, actual)]) for one in said])  # fmt: skip
    known = count[..., classes >= 0].reshape(*pred.shape[:-1], -1)
    return np.concatenate([known, number], axis=-1)


def _alike(target: NDArray[Any], pred: NDArray[Any]) -> NDArray[Any]:
    """Targets in the type of predictions that can hold them all: numbers of two types are compared half as fast."""
    if target.dtype.kind not in "iu" or pred.dtype.kind not in "iu":
        return target
    limits = np.iinfo(pred.dtype)
    fits = target.size > 0 and limits.min <= int(target.min()) and int(target.max()) <= limits.max
    return target.astype(pred.dtype) if fits else target


def _rows(metric: str, target: NDArray[Any], pred: NDArray[Any]) -> Floats:
    """Summands `[..., N, K]`, the last one 1 for each row that counts, so that the sums know their number."""
    if match := _RECALL.fullmatch(metric):
        return _recall_rows(int(match[1]), pred[..., None] if pred.shape[-1] == len(target) else pred)
    if metric not in _PLAIN:
        raise ValueError(
            f"no metric named {metric!r}. Known: {', '.join((*_PLAIN, *ranking_scores.METRICS))}, recall_at_K"
        )
    if metric == "vqa_accuracy":  # the score of the answer; target [N, 2, K] holds ids and scores
        hit = pred[..., None] == target[:, 0]
        return _with_one((hit * target[:, 1]).sum(axis=-1, keepdims=True))
    if target.ndim == 1 and pred.shape[-2:] == (len(target), 1):
        pred = pred[..., 0]
    if pred.shape[-target.ndim :] != target.shape:
        raise ValueError(f"Expected `pred` to end in the shape of `target` {target.shape}, but got {pred.shape}")
    if metric == "accuracy":
        correct = pred == target
        return _with_one(correct[..., None] if target.ndim == 1 else correct.all(axis=-1, keepdims=True))
    if metric in (*sentiment_scores.ACCURACIES, *sentiment_scores.F1S):
        return sentiment_scores.rows(
            metric, target.reshape(-1), pred.reshape(*pred.shape[: pred.ndim - target.ndim], -1)
        )
    if metric in ("correlation", "mae", "mse", "r2"):
        single = target.ndim == 1
        return _error_rows(metric, target[:, None] if single else target, pred[..., None] if single else pred)
    return _count_rows(metric, target, pred)


def _recall_rows(k: int, ranks: NDArray[Any]) -> Floats:
    """Hits and answerable queries; a query without a right answer has rank -1 and counts as neither."""
    answerable = ranks > 0
    counts = [(answerable & (ranks <= k)).sum(axis=-1), answerable.sum(axis=-1)]
    return np.stack(counts, axis=-1).astype(np.float64)


def _error_rows(metric: str, target: NDArray[Any], pred: NDArray[Any]) -> Floats:
    if metric == "correlation":
        # Neither shift nor scale changes a correlation, and both keep the sums from cancelling.
        a, b = _unit(pred), np.broadcast_to(_unit(target), pred.shape)
        return _with_one(np.concatenate([a, b, a * a, b * b, a * b], axis=-1))
    error = pred.astype(np.float64) - target
    if metric == "r2":
        # Shifting the target changes no R2 and keeps the sums of squares from cancelling.
        centred = np.broadcast_to(target - target.mean(axis=0), error.shape)
        return _with_one(np.concatenate([error**2, centred, centred**2], axis=-1))
    return _with_one((np.abs(error) if metric == "mae" else error**2).mean(axis=-1, keepdims=True))


def _unit(x: NDArray[Any]) -> Floats:
    """Values `[..., N, L]` with mean 0 and deviation 1 over the rows; a constant stays 0."""
    x = x.astype(np.float64)
    x = x - x.mean(axis=-2, keepdims=True)
    deviation = x.std(axis=-2, keepdims=True)
    return x / np.where(deviation > 1e-12, deviation, 1.0)


def _count_rows(metric: str, target: NDArray[Any], pred: NDArray[Any]) -> Floats:
    """True positives, predicted and actual positives of each class or label."""
    if target.ndim == 2:
        hot_target, hot_pred = target > 0, pred > 0
    elif metric == "f1":
        hot_target, hot_pred = (target == 1)[..., None], (pred == 1)[..., None]
    else:
        classes = np.arange(int(max(target.max(initial=0), pred.max(initial=0))) + 1)
        hot_target, hot_pred = target[..., None] == classes, pred[..., None] == classes
    hot_target = np.broadcast_to(hot_target, hot_pred.shape)
    return _with_one(np.concatenate([hot_target & hot_pred, hot_pred, hot_target], axis=-1))


def _finish(metric: str, sums: Floats, target: NDArray[Any]) -> Floats:
    parts, number = sums[..., :-1], sums[..., -1]
    if metric == "r2":
        squares, centred, centred_squares = np.split(parts, 3, axis=-1)
        total = centred_squares - centred**2 / number[..., None]
        return (1 - squares / np.where(total > 0, total, np.nan)).mean(axis=-1)
    if metric == "correlation":
        a, b, aa, bb, ab = (x / number[..., None] for x in np.split(parts, 5, axis=-1))
        scale = np.sqrt(np.maximum(aa - a * a, 0) * np.maximum(bb - b * b, 0))
        found = np.divide(ab - a * b, scale, out=np.zeros_like(scale), where=scale > 1e-12)
        return found.mean(axis=-1)
    if metric in sentiment_scores.F1S:
        return sentiment_scores.finish_f1(parts)
    if metric in ("f1", "macro_f1", "micro_f1", "balanced_accuracy"):
        return _finish_counts(metric, parts, multilabel=np.ndim(target) == 2)
    return parts[..., 0] / number


def _finish_counts(metric: str, parts: Floats, multilabel: bool) -> Floats:
    hits, predicted, actual = np.split(parts, 3, axis=-1)
    if metric == "micro_f1":
        hits, predicted, actual = (x.sum(axis=-1, keepdims=True) for x in (hits, predicted, actual))
    top, bottom = (hits, actual) if metric == "balanced_accuracy" else (2 * hits, predicted + actual)
    ratio = np.divide(top, bottom, out=np.zeros_like(top), where=bottom != 0)
    if metric == "f1" or multilabel:
        return ratio.mean(axis=-1)
    # As torchmetrics and scikit-learn do: a class that is neither predicted nor present is no class of this sample.
    counted = bottom != 0
    return ratio.sum(axis=-1) / np.maximum(counted.sum(axis=-1), 1)


def _with_one(x: NDArray[Any]) -> Floats:
    return np.concatenate([x.astype(np.float64), np.ones((*x.shape[:-1], 1))], axis=-1)
