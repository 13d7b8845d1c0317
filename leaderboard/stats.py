"""Intervals, ranks, ties and tests: what may be said of a difference, and when nothing may.

Rows and seeds are resampled, datasets are not: a board is about its datasets. Everything is sorted by name before it is
drawn, so that no result depends on the order of the records.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.stats
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95
DRAWS = 10_000
ALPHA = 0.05
_BLOCKS = 500  # Rows beyond this many are resampled in random blocks of equal size.
_POWER = 0.8


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
    half = _t_quantile((1 + level) / 2, x.size - 1) * float(x.std(ddof=1)) / math.sqrt(x.size)
    return Estimate(mean, mean - half, mean + half, tuple(float(v) for v in x))


@cache
def _t_quantile(p: float, freedom: int) -> float:
    # A board asks thousands of times for the same few quantiles, and scipy takes its time for each.
    return float(scipy.stats.t.ppf(p, freedom))


# --- Resampling -------------------------------------------------------------------------------------------------------

Rows = Mapping[str, Mapping[int, NDArray[Any]]]
"""Of one dataset: method -> seed -> what each test row adds to the score, `[N]`; `[1]` when only the score is known."""


def bootstrap(samples: Mapping[str, Rows], methods: Sequence[str], draws: int = DRAWS) -> Floats:
    """`resample` on every dataset.

    Returns:
        Scores `[draws, datasets, methods]`, datasets sorted by name.
    """
    return np.stack([resample(name, samples[name], methods, draws) for name in sorted(samples)], axis=1)


def resample(name: str, rows: Rows, methods: Sequence[str], draws: int = DRAWS) -> Floats:
    """Hierarchical paired bootstrap on one dataset: test rows (one draw for all methods) and seeds.

    Methods that ran the same seeds share the draw of seeds as well, since the data order of a seed is the same for all.
    Deviations due to seeds are scaled by sqrt(n / (n - 1)): a plain bootstrap of n seeds shows (n - 1) / n of their
    variance, half of it at two seeds. Rows and seeds are crossed, so what only one row under one seed shows is counted
    in both draws: the intervals err on the wide side. More than 500 rows are resampled in 500 random blocks, which
    leaves the variance of a mean over rows unbiased and its cost independent of the number of rows.

    Args:
        name: Of the dataset; the draw depends on it, and on nothing else in the board.
        rows: Of every method in `methods`.
        methods: Order of the last axis of the result.
        draws: Number of resamples.

    Returns:
        Scores `[draws, methods]`.
    """
    seeds = {m: tuple(sorted(rows[m])) for m in sorted(methods)}
    flat = np.stack([np.asarray(rows[m][s], dtype=np.float64) for m in seeds for s in seeds[m]], axis=1)  # [N, C]
    resampled = _resample_rows(flat, _generator(name, "rows"), draws)
    picks = {s: _multiplicities(_generator(name, "seeds", *s), draws, len(s)) / len(s) for s in set(seeds.values())}
    found: dict[str, Floats] = {}
    at = 0
    for m, own_seeds in seeds.items():
        n = len(own_seeds)
        own = resampled[:, at : at + n]
        at += n
        mean = own.mean(axis=1)
        drawn = np.einsum("bn,bn->b", own, picks[own_seeds])
        found[m] = mean if n == 1 else mean + math.sqrt(n / (n - 1)) * (drawn - mean)
    # Equal predictions must stay exactly equal, whatever order the sums were taken in.
    return np.stack([found[m] for m in methods], axis=1).round(10)


def _generator(*parts: object) -> np.random.Generator:
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))


def _resample_rows(flat: Floats, rng: np.random.Generator, draws: int) -> Floats:
    if len(flat) == 1:
        return np.repeat(flat, draws, axis=0)
    blocked, counts = _blocks(flat, rng)
    out = np.empty((draws, flat.shape[1]))
    for start in range(0, draws, 1000):
        weights = _multiplicities(rng, min(1000, draws - start), len(counts))
        out[start : start + 1000] = (weights @ blocked) / (weights @ counts)[:, None]
    return out


def _blocks(flat: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    number = flat.shape[0]
    if number <= _BLOCKS:
        return flat, np.ones(number)
    edges = np.linspace(0, number, _BLOCKS + 1).astype(int)[:-1]
    order = rng.permutation(number)
    return np.add.reduceat(flat[order], edges, axis=0), np.diff(np.append(edges, number)).astype(np.float64)


def _multiplicities(rng: np.random.Generator, draws: int, number: int) -> Floats:
    """How often each of `number` things is drawn in `number` draws with replacement, `draws` times over."""
    picks = rng.integers(0, number, size=(draws, number)) + number * np.arange(draws)[:, None]
    return np.bincount(picks.ravel(), minlength=draws * number).reshape(draws, number).astype(np.float64)


def interval(draws: Floats, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Percentile interval over the first axis."""
    low, high = np.percentile(draws, [50 * (1 - level), 50 * (1 + level)], axis=0)
    return low, high


# --- Ranks and ties ---------------------------------------------------------------------------------------------------


def borda(scores: NDArray[Any]) -> Floats:
    """Mean rank over datasets, 1 best, ties sharing their average rank.

    Args:
        scores: `[..., datasets, methods]`, higher is better.

    Returns:
        `[..., methods]`.
    """
    return scipy.stats.rankdata(-np.asarray(scores, dtype=np.float64), axis=-1).mean(axis=-2)


@dataclass(frozen=True)
class Standing:
    """A method's mean rank over datasets, its place among all with the bootstrap interval of it, and its tie group."""

    method: str
    mean_rank: float
    place: float
    low: float
    high: float
    group: int


def standings(methods: Sequence[str], scores: NDArray[Any], draws: Floats) -> tuple[Standing, ...]:
    """Rank methods that are complete on every dataset, best first.

    Args:
        methods: Names, the last axis of the arrays.
        scores: `[datasets, methods]`, chance-normalised, higher is better.
        draws: `[draws, datasets, methods]` from `bootstrap`.
    """
    if not methods:
        return ()
    scores = np.asarray(scores, dtype=np.float64).round(10)
    ranks = borda(scores)
    places = scipy.stats.rankdata(ranks)
    low, high = interval(scipy.stats.rankdata(borda(draws), axis=-1))
    mean = scores.mean(axis=0)
    order = sorted(range(len(methods)), key=lambda i: (ranks[i], -mean[i], methods[i]))
    groups = tie_groups(order, draws.mean(axis=1))
    return tuple(
        Standing(methods[i], float(ranks[i]), float(places[i]), float(low[i]), float(high[i]), groups[i]) for i in order
    )


def tie_groups(order: Sequence[int], means: Floats, groups: int | None = None) -> dict[int, int]:
    """Group 1 holds the leader and all whose paired interval against it includes 0; then the same among the rest.

    Args:
        order: Column numbers, best first.
        means: Resampled mean scores `[draws, methods]`.
        groups: Stop after so many.

    Returns:
        Column number -> group, counted from 1.
    """
    found: dict[int, int] = {}
    left = list(order)
    group = 0
    while left and group != groups:
        group += 1
        low, _ = interval(means[:, left[0], None] - means[:, left])
        found.update({i: group for i, bound in zip(left, low, strict=True) if i == left[0] or bound <= 0})
        left = [i for i in left if i not in found]
    return found


def resolvable_difference(means: Floats, leader: int) -> float | None:
    """The smallest difference from the leader that this many rows and seeds show with 80 % power at the 5 % level.

    The median over the other methods, from the spread of the paired resampled differences.
    """
    others = [i for i in range(means.shape[1]) if i != leader]
    if not others:
        return None
    spread = (means[:, [leader]] - means[:, others]).std(axis=0, ddof=1)
    factor = scipy.stats.norm.ppf((1 + LEVEL) / 2) + scipy.stats.norm.ppf(_POWER)
    return float(factor * np.median(spread))


# --- Across datasets --------------------------------------------------------------------------------------------------


def holm(p: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down adjustment of p values."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    running = 0.0
    for step, i in enumerate(order):
        running = max(running, min(1.0, (len(p) - step) * p[i]))
        adjusted[i] = running
    return tuple(float(v) for v in adjusted)


def smallest_p(datasets: int) -> float:
    """The smallest two-sided p value a Wilcoxon signed-rank test on this many datasets can give."""
    return 2.0 ** (1 - datasets)


def datasets_needed(comparisons: int, alpha: float = ALPHA) -> int:
    """Datasets from which the first of `comparisons` Wilcoxon tests can survive Holm's adjustment."""
    return next(n for n in itertools.count(1) if smallest_p(n) * comparisons <= alpha)


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

    def bars(self, order: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Maximal runs of methods, in the order of their ranks, no two of which differ.

        The bars of a critical-difference diagram.
        """
        if self.kind != "pairs":
            return ()
        differ = {frozenset((p.a, p.b)) for p in self.pairs if p.p <= ALPHA}
        runs: list[tuple[int, int]] = []
        for start in range(len(order)):
            stop = start + 1
            while stop < len(order) and all(frozenset((m, order[stop])) not in differ for m in order[start:stop]):
                stop += 1
            if stop - start > 1 and (not runs or stop > runs[-1][1]):
                runs.append((start, stop))
        return tuple(tuple(order[a:b]) for a, b in runs)


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
        f"Across datasets: not resolvable with {number} {plural}. The smallest p a Wilcoxon test can give is "
        f"{smallest_p(number):.3g}; {need}. The within-dataset paired intervals stand instead.",
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
    return float(p)  # pyright: ignore[reportArgumentType] - scipy's result type is made at run time
