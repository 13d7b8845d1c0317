"""Plain intervals and ranks, and tests across datasets: what may be said beyond these, and when nothing may."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.stats
from numpy.typing import NDArray
from scipy.special import stdtrit  # ten times as fast as scipy.stats.t, and a board asks often

Floats = NDArray[np.float64]

LEVEL = 0.95
ALPHA = 0.05


class Estimate(NamedTuple):
    """A mean over seeds with its t interval; `low` and `high` are None when there is only one seed."""

    mean: float
    low: float | None
    high: float | None
    values: tuple[float, ...]

    @property
    def half(self) -> float | None:
        """Half the width of the interval."""
        return None if self.high is None else self.high - self.mean


def mean(values: Sequence[float]) -> float:
    """`numpy.mean` of a list, to the last digit and in half the time: a board asks half a million times."""
    return float(np.add.reduce(values) / len(values))


def estimate(values: Sequence[float], level: float = LEVEL) -> Estimate:
    """Mean and t interval over seeds (ddof 1, n - 1 degrees of freedom).

    Raises:
        ValueError: If there are no values.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.size == 0:
        raise ValueError("Expected at least one value, but got none")
    mean = float(x.mean())
    if x.size == 1:
        return Estimate(mean, None, None, (mean,))
    half = quantile((1 + level) / 2, x.size - 1) * float(x.std(ddof=1)) / math.sqrt(x.size)
    return Estimate(mean, mean - half, mean + half, tuple(float(v) for v in x))


def quantile(p: float, freedom: float) -> float:
    """Of Student's t."""
    return float(stdtrit(freedom, p))


def wilson(hits: int, trials: int, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's interval of the share of hits among independent trials."""
    found = scipy.stats.binomtest(hits, trials).proportion_ci(level, method="wilson")
    return float(found.low), float(found.high)


def borda(scores: NDArray[Any]) -> Floats:
    """Mean rank over datasets, 1 best, ties sharing their average rank.

    Args:
        scores: `[..., datasets, methods]`, higher is better.

    Returns:
        `[..., methods]`.
    """
    # Equal scores must stay equal, whatever order the sums were taken in.
    return scipy.stats.rankdata(-np.asarray(scores, dtype=np.float64).round(10), axis=-1).mean(axis=-2)


def holm(p: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down adjustment of p values."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    running = 0.0
    for step, i in enumerate(map(int, order)):
        running = max(running, min(1.0, (len(p) - step) * p[i]))
        adjusted[i] = running
    return tuple(float(v) for v in adjusted)


def smallest_p(datasets: int) -> float:
    """The smallest two-sided p value a Wilcoxon signed-rank test on this many datasets can give."""
    return 2.0 ** (1 - datasets)


def datasets_needed(comparisons: int) -> int:
    """Datasets from which the first of `comparisons` Wilcoxon tests can survive Holm's adjustment."""
    return next(n for n in itertools.count(1) if smallest_p(n) * comparisons <= ALPHA)


class Pair(NamedTuple):
    """An adjusted comparison of two methods across datasets."""

    a: str
    b: str
    p: float


@dataclass(frozen=True)
class Across:
    """What can be said across datasets.

    Attributes:
        kind: `pairs` (all against all), `control` (all against one), or `none` when too few datasets.
        sentence: For people; when `kind` is `none` it says why.
        friedman: p value of Friedman's test, or None.
        pairs: Holm-adjusted Wilcoxon p values.
    """

    kind: Literal["pairs", "control", "none"]
    sentence: str
    friedman: float | None = None
    pairs: tuple[Pair, ...] = ()


def across(methods: Sequence[str], scores: NDArray[Any], control: str | None = None) -> Across:
    """Friedman's test, then Wilcoxon signed-rank tests with Holm's adjustment, where the datasets suffice.

    All pairs if that is resolvable; else every method against `control`; else a sentence saying why not. Nemenyi's test
    is not used: its verdict on two methods depends on the others in the pool.

    Args:
        methods: Names, the last axis of `scores`.
        scores: `[datasets, methods]`; seeds and corruptions are averaged before, never counted as datasets.
        control: The method to compare with when all pairs are out of reach.
    """
    scores = np.asarray(scores, dtype=np.float64).round(10)
    number, k = scores.shape
    if k < 2:
        return Across("none", "Nothing to compare: fewer than two methods are complete on every dataset.")
    friedman = None
    if k >= 3 and number >= 2 and np.ptp(scores, axis=1).any():
        friedman = float(scipy.stats.friedmanchisquare(*scores.T).pvalue)
    every = list(itertools.combinations(range(k), 2))
    versus = [(i, methods.index(control)) for i in range(k) if methods[i] != control] if control in methods else []
    for kind, pairs in (("pairs", every), ("control", versus)):
        if pairs and number >= datasets_needed(len(pairs)):
            return _tested(kind, methods, scores, pairs, friedman, control)
    need = f"all pairs of {k} methods need {datasets_needed(len(every))} datasets"
    if versus:
        need += f", one control against {len(versus)} needs {datasets_needed(len(versus))}"
    plural = "dataset" if number == 1 else "datasets"
    return Across(
        "none",
        f"Whether it would hold on other datasets is not resolvable with {number} {plural}: {need}. What is said here "
        "is about these.",
        friedman,
    )


def _tested(
    kind: Literal["pairs", "control"] | str,
    methods: Sequence[str],
    scores: Floats,
    pairs: list[tuple[int, int]],
    friedman: float | None,
    control: str | None,
) -> Across:
    raw = [_wilcoxon(scores[:, i] - scores[:, j]) for i, j in pairs]
    adjusted = holm(raw)
    found = tuple(Pair(methods[i], methods[j], p) for (i, j), p in zip(pairs, adjusted, strict=True))
    different = sum(p <= ALPHA for p in adjusted)
    what = "pairs of methods" if kind == "pairs" else f"methods compared with {control}"
    head = "" if friedman is None else f"Friedman p = {friedman:.2g}. "
    sentence = f"{head}{different} of {len(pairs)} {what} differ across {scores.shape[0]} datasets (Wilcoxon, Holm)."
    return Across("pairs" if kind == "pairs" else "control", sentence, friedman, found)


def _wilcoxon(difference: Floats) -> float:
    if not difference.any():
        return 1.0
    _, p = scipy.stats.wilcoxon(difference, zero_method="wilcox", method="auto")
    return float(p)
