"""Moderated t: how a method does on a dataset, how two of them differ, and how sure that is over seeds and rows.

A score is a mean over test rows and over seeds. Its variance has a part that more seeds shrink (estimated per method,
and drawn to what is usual on the dataset) and a part that only more rows shrink (estimated from the rows themselves, of
the *difference* where two methods are compared: rows are shared, so what is hard for both cancels). Seeds are not
paired: what a seed does to one method says nothing of what it does to another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leaderboard import variance_prior
from leaderboard.effect import Effect, freedom_of_two, satterthwaite
from leaderboard.summary import Summary, spread
from leaderboard.variance_prior import Prior

Floats = NDArray[np.float64]


class Pairs(NamedTuple):
    """Differences between methods, `[methods, methods]` each: row minus column."""

    value: Floats
    variance: Floats
    freedom: Floats


class _Numbers(NamedTuple):
    """Of a method: its mean, the variance of it due to seeds, the freedom of that, and the rows' share of it."""

    mean: float
    noise: float
    freedom: float
    share: float


@dataclass(frozen=True, eq=False)
class Panel:
    """The methods of a dataset under one measure, side by side.

    Attributes:
        methods: What is known of each, by name.
        prior: Of their variance over seeds; from `panel`, or frozen with reference results.
        unit: What a step of 1 in the score is worth: `1 / (1 - trivial)` in chance-normalised units, negative for an
            error, 1 to stay in the metric's own.
    """

    methods: Mapping[str, Summary]
    prior: Prior
    unit: float = 1.0

    def cell(self, name: str) -> Effect:
        """The score of a method in the metric's own units, as an estimate over seeds and rows not seen."""
        own = self._numbers[name]
        freedom = min(freedom_of_two(own.noise, own.freedom, 0.0, math.inf), self.prior.bound(own.freedom))
        return self._effect(own.mean, own.noise, freedom, self.methods[name].rows, own.share)

    def difference(self, a: str, b: str) -> Effect:
        """How much better `a` is than `b`, in this panel's unit."""
        if a == b:
            return Effect(0.0, 0.0, np.inf)
        own, other = self._numbers[a], self._numbers[b]
        freedom = freedom_of_two(own.noise, own.freedom, other.noise, other.freedom)
        # Two methods lean on one prior: together they know no more than all the methods do.
        freedom = min(freedom, self.prior.bound(max(own.freedom, other.freedom)))
        rows = self.methods[a].rows - self.methods[b].rows
        noise, share = own.noise + other.noise, own.share + other.share
        return self._effect(own.mean - other.mean, noise, freedom, rows, share).scaled(self.unit)

    def pairs(self, names: Sequence[str], against: Sequence[str] | None = None) -> Pairs:
        """`difference` of all pairs at once, or of all with some of them."""
        index = [self._index[name] for name in names]
        others = index if against is None else [self._index[name] for name in against]
        mean, noise, freedom, share = (x[index][:, None] for x in self._arrays)
        mean_b, noise_b, freedom_b, share_b = (x[others] for x in self._arrays)
        size = self._sizes[index][:, None] + self._sizes[others]
        rows = np.maximum(size - 2 * self._gram(index, others) - share - share_b, 0.0)
        seeds = noise + noise_b
        own = satterthwaite([noise, noise_b], [freedom, freedom_b])
        own = np.minimum(own, np.maximum(self.prior.evidence, np.maximum(freedom, freedom_b)))
        variance = seeds + rows
        variance[np.array(index)[:, None] == np.array(others)] = 0.0
        df = satterthwaite([seeds, rows], [own, self._row_freedom])
        return Pairs((mean - mean_b) * self.unit, variance * self.unit**2, df)

    def draws(self, names: Sequence[str], number: int, rng: np.random.Generator) -> Floats:
        """How far the means of methods may be from the truth, but for what they share: `[number, methods]`, this unit.

        Rows are shared, so their luck is correlated between methods; that of seeds is not. Variances that are estimates
        make tails as heavy as Student's. A method of which no variance is known draws 0.
        """
        index = [self._index[name] for name in names]
        _, noise, freedom, share = (x[index] for x in self._arrays)
        known = np.isfinite(noise)
        # Where the methods differ no more than by chance there is one variance, and one error of it for all.
        size = (number, 1) if np.isinf(self.prior.freedom) else (number, len(names))
        scale = _scales(rng, np.where(known, freedom, np.inf)[: size[1]], size)
        seeds = rng.standard_normal((number, len(names))) * np.sqrt(np.where(known, noise, 0.0)) / scale
        rows = rng.standard_normal((number, len(names))) @ _root(self._gram(index, index) - np.diag(share)).T
        return (seeds + rows / _scales(rng, np.array([self._row_freedom]), (number, 1))) * abs(self.unit)

    def _effect(self, value: float, noise: float, freedom: float, rows: Floats, share: float) -> Effect:
        """An estimate with the variance that its seeds have and that its rows have."""
        # Part of what the rows show is the luck of these seeds, which is in the seeds' variance already.
        left = max(float(spread(rows)) - share, 0.0)
        return Effect(value, noise + left, freedom_of_two(noise, freedom, left, self._row_freedom))

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.methods)}

    @cached_property
    def _row_freedom(self) -> float:
        groups = max(len(s.rows) for s in self.methods.values())
        return groups - 1 if groups > 1 else np.inf  # of scores alone nothing is known about rows: over seeds only

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Per method: mean, variance of it due to seeds, degrees of freedom of that, and the rows' share of it."""
        every = list(self.methods.values())
        posterior = [self.prior.posterior(s.variance, s.seeds - 1) for s in every]
        n = np.array([s.seeds for s in every])
        noise, freedom = np.array(posterior).T
        # Of one seed it cannot be told from the rows: nothing is taken off, and the interval errs on the wide side.
        share = np.array([s.interaction if s.seeds > 1 else 0.0 for s in every])
        return np.array([s.mean for s in every]), noise / n, freedom, share / n

    @cached_property
    def _numbers(self) -> dict[str, _Numbers]:
        """`_arrays` by method: what is asked of one method is computed of plain numbers, which is ten times as fast."""
        return dict(zip(self.methods, map(_Numbers, *(x.tolist() for x in self._arrays)), strict=True))

    @property
    def _rows(self) -> Floats:
        """What rows add, `[methods, groups]`, so that inner products are covariances of the means over rows.

        Not kept: of thousands of methods it is as large as what they were read from, and asked for a few times.
        """
        rows = np.stack([s.rows for s in self.methods.values()])
        groups = rows.shape[1]
        return rows * np.sqrt(groups / (groups - 1) if groups > 1 else 1.0)

    @cached_property
    def _sizes(self) -> Floats:
        return (self._rows**2).sum(axis=1)

    def _gram(self, index: Sequence[int], others: Sequence[int]) -> Floats:
        rows = self._rows
        return rows[index] @ rows[others].T


def panel(methods: Mapping[str, Summary], unit: float = 1.0, prior: Prior | None = None) -> Panel:
    """Methods of a dataset with the prior of their variance, fitted to them unless it is given."""
    if len({len(s.rows) for s in methods.values()}) > 1:
        raise ValueError(
            f"Expected methods on the same rows, but got { ({n: len(s.rows) for n, s in methods.items()}) }"
        )
    if prior is None:
        every = methods.values()
        prior = variance_prior.fit([s.variance for s in every], [s.seeds - 1 for s in every])
    return Panel(methods, prior, unit)


def unit(trivial: float, higher_is_better: bool) -> float:
    """What a step of 1 in a score is worth when the trivial predictor has 0 and a perfect one 1."""
    room = 1 - trivial if higher_is_better else trivial
    if room <= 0:
        raise ValueError(f"Expected the trivial score to leave room above it, but it is {trivial}")
    return 1 / room if higher_is_better else -1 / room


def _root(covariance: Floats) -> Floats:
    """A root of the covariance of deviations from the methods' mean, which is all that differences see."""
    centred = covariance - covariance.mean(axis=0)
    centred = centred - centred.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(centred)
    kept = np.maximum(values, 0.0)
    # What is left of rows without the seeds' share is partly noise, up and down; cutting off the negative half must not
    # make the differences larger than they are on average.
    if kept.any():
        kept *= max(values.sum(), 0.0) / kept.sum()
    return vectors * np.sqrt(kept)


def _scales(rng: np.random.Generator, freedom: Floats, size: tuple[int, int]) -> Floats:
    """Estimated over true standard deviation, drawn; 1 where the degrees of freedom are infinite."""
    known = np.isinf(freedom)
    drawn = np.sqrt(rng.chisquare(np.where(known, 1.0, freedom), size) / freedom)
    return np.where(known, 1.0, drawn)
