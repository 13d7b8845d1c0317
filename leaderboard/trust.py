"""Whether a record says what its predictions give, and nothing that cannot be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leaderboard import scores
from leaderboard.record import Record

PREDICTED = "pred:"
_CHANCE = 5.0  # standard deviations by which luck may lift a score above a known optimum
_NUMBERS = "biuf"

Arrays = Mapping[str, NDArray[Any]]


class Claim(NamedTuple):
    """What a record says that its predictions bear out, or not: a twentieth of it, to be sent to another process.

    Attributes:
        cell: Id of the cell, which names the file of predictions.
        digest: Of that file.
        target: Of the cell, as `metric` and `bayes` are.
        ids: Of the conditions, in the order of `scores`, the clean one first.
    """

    cell: str
    digest: str
    rows: int
    trivial: float | None
    target: str
    metric: str
    bayes: float | None
    ids: tuple[str, ...]
    scores: tuple[float, ...]

    @classmethod
    def of(cls, record: Record) -> Claim:
        """The claim of a successful record."""
        cell, said = record.cell, tuple([c.score for c in record.conditions])
        facts = (record.predictions, record.rows, record.trivial, cell.target, cell.metric, cell.bayes)
        return cls(cell.id, *facts, record.ids, said)


class Stack(NamedTuple):
    """Predictions of several conditions in one array, `[conditions, rows, ...]`."""

    names: tuple[str, ...]
    values: NDArray[Any]

    def apart(self) -> dict[str, NDArray[Any]]:
        """An array for each."""
        return {f"{PREDICTED}{name}": one for name, one in zip(self.names, self.values, strict=True)}


def contradiction(claim: Claim, arrays: Arrays, stack: Stack | None = None) -> str | None:
    """What a record says that its predictions do not give, or that nothing could; None if it can be trusted.

    Args:
        claim: What it says.
        arrays: What is beside it.
        stack: Those of the arrays that are predictions, if they are kept as one.
    """
    if stack is not None and not _plain(claim, stack):  # looked at one by one, to say which is wrong
        arrays, stack = {**arrays, **stack.apart()}, None
    return _misshapen(claim, arrays, stack) or _other_scores(claim, arrays, stack) or _other_trivial(claim, arrays)


def _plain(claim: Claim, stack: Stack) -> bool:
    """Whether nothing is wrong with predictions that are kept as one."""
    values = stack.values
    whole = stack.names == claim.ids and values.shape[1] == claim.rows and values.dtype.kind in _NUMBERS
    return whole and (values.dtype.kind != "f" or bool(np.isfinite(values).all()))


def _misshapen(claim: Claim, arrays: Arrays, stack: Stack | None) -> str | None:
    target, row = arrays.get("target"), arrays.get("row")
    if target is None or row is None:
        return "predictions have no `target` or no `row`"
    if target.ndim == 0 or len(target) != claim.rows:
        return f"the record says {claim.rows} rows, the predictions have {len(target) if target.ndim else 'none'}"
    if row.dtype.kind not in "iu" or row.ndim != 1 or not _numbers_rows(row, len(target)):
        return "`row` does not number the rows of the predictions"
    for name, array in arrays.items():
        if array.dtype.kind not in _NUMBERS and name != "group":
            return f"`{name[:80]}` holds no numbers"
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return f"`{name[:80]}` holds numbers that are not finite"
        if array.ndim == 0 or len(array) != len(target):
            return f"{_named(name)}: {len(array) if array.ndim else 'no'} predictions for {len(target)} rows"
    missing = [name for name in claim.ids if stack is None and f"{PREDICTED}{name}" not in arrays]
    return f"no predictions for condition {missing[0]}" if missing else None


def _numbers_rows(row: NDArray[Any], size: int) -> bool:
    every = np.arange(size)
    return np.array_equal(row, every) or np.array_equal(np.sort(row), every)  # mostly they are in order already


def _other_scores(claim: Claim, arrays: Arrays, stack: Stack | None) -> str | None:
    metric, target = claim.metric, arrays["target"]
    if not scores.supported(metric):
        return None
    apart = [] if stack else [arrays[f"{PREDICTED}{name}"] for name in claim.ids]
    if len({one.shape for one in apart}) > 1:
        return "predictions of the conditions differ in shape"
    try:
        with np.errstate(all="ignore"):  # of predictions that are absurd, the score is absurd, and so not the record's
            again = scores.score(metric, target, stack.values if stack else np.stack(apart))
    except (ValueError, IndexError, TypeError, MemoryError) as error:
        return f"predictions do not fit {metric}: {error}"
    for name, said, score in zip(claim.ids, claim.scores, again, strict=True):
        if not math.isclose(score, said, rel_tol=1e-5, abs_tol=1e-5):
            return f"condition {name}: the record says {metric} {said:.6g}, its predictions give {score:.6g}"
    return _too_good(claim)


def _too_good(claim: Claim) -> str | None:
    best, clean = claim.bayes, claim.scores[0]
    if best is None or claim.metric != "accuracy" or not 0 <= best <= 1:
        return None
    luck = _CHANCE * math.sqrt(best * (1 - best) / claim.rows)
    if clean <= best + luck + 1e-5:
        return None
    return f"accuracy {clean:.4f} on {claim.rows} rows: the best possible is {best:.4f}, and luck gives {luck:.4f} more"


def _other_trivial(claim: Claim, arrays: Arrays) -> str | None:
    """The trivial predictor of a classification says one class, whichever; no other score can be its."""
    said, metric, target = claim.trivial, claim.metric, arrays["target"]
    if said is None or claim.target != "multiclass" or target.dtype.kind not in "iu" or target.ndim != 1:
        return None
    classes, counts = np.unique(target, return_counts=True)
    f1 = 2 * counts / (len(target) + counts)
    by_metric = {
        "accuracy": counts / len(target),
        "micro_f1": counts / len(target),
        "balanced_accuracy": np.array([1 / max(len(classes), 1)]),
        "macro_f1": f1 / max(len(classes), 1),
        "f1": f1[classes == 1],
    }
    possible = by_metric.get(metric)
    # 0 is the score of a class that no row is of.
    if possible is None or abs(said) <= 1e-5 or (np.abs(said - possible) <= 1e-5 + 1e-5 * np.abs(possible)).any():
        return None
    return f"trivial {metric} {said:.6g}: no class, said of every row, has it"


def _named(name: str) -> str:
    own = name.removeprefix(PREDICTED)
    return f"condition {own}" if own != name else f"`{name[:80]}`"
