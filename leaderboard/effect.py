"""An estimated number and how well it is known: interval, p value, and the difference it could have found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import scipy.optimize
import scipy.stats
from numpy.typing import NDArray
from scipy.special import stdtr  # ten times as fast as scipy.stats.t, and a board asks often

from leaderboard.stats import ALPHA, LEVEL, holm, quantile

Floats = NDArray[np.float64]
Verdict = Literal["win", "tie", "loss"]
POWER = 0.8


@dataclass(frozen=True)
class Effect:
    """An estimate that is t distributed about the truth.

    Attributes:
        value: The estimate.
        variance: Of the estimate; infinite where nothing is known of it (one seed and no prior): the interval is then
            the whole line, and the p value 1.
        freedom: Degrees of freedom of the variance.
    """

    value: float
    variance: float
    freedom: float

    @property
    def error(self) -> float:
        """Standard error."""
        return math.sqrt(self.variance)

    def half(self, level: float = LEVEL) -> float:
        """Half the width of the interval."""
        return quantile((1 + level) / 2, self.freedom) * self.error

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Ends of the two-sided interval."""
        half = self.half(level)
        return self.value - half, self.value + half

    @property
    def p(self) -> float:
        """Two-sided p value of the hypothesis that the truth is 0."""
        if self.variance == 0:  # every seed and row agrees: a difference is certain, and none is none
            return 1.0 if self.value == 0 else 0.0
        return float(2 * stdtr(self.freedom, -abs(self.value) / self.error))

    def verdict(self) -> Verdict:
        """Which side of 0 the truth is on, if that can be told."""
        return _verdict(self, self.p)

    def detectable(self, alpha: float = ALPHA) -> float:
        """The smallest true difference that a comparison as exact as this one finds with a power of `POWER`."""
        return noncentrality(self.freedom, alpha=alpha) * self.error

    def scaled(self, factor: float) -> Effect:
        """The same in other units."""
        return Effect(self.value * factor, self.variance * factor**2, self.freedom)


@dataclass(frozen=True)
class Line:
    """A line of a comparison: its effect, and p value and verdict adjusted for the number of lines."""

    effect: Effect
    p: float
    verdict: Verdict


def judge(effects: Sequence[Effect]) -> tuple[Line, ...]:
    """Verdicts by Holm's adjustment: the chance of any false win or loss among all lines is at most `ALPHA`."""
    adjusted = holm([effect.p for effect in effects])
    return tuple(Line(e, p, _verdict(e, p)) for e, p in zip(effects, adjusted, strict=True))


def average(effects: Sequence[Effect]) -> Effect:
    """The mean of independent effects, one per dataset: a statement about these datasets."""
    if not effects:
        raise ValueError("Expected at least one effect, but got none")
    number = len(effects)
    parts = [e.variance / number**2 for e in effects]
    freedom = satterthwaite(parts, [e.freedom for e in effects])
    return Effect(float(np.mean([e.value for e in effects])), sum(parts), float(freedom))


def freedom_of_two(variance: float, freedom: float, other: float, freedom_of_other: float) -> float:
    """`satterthwaite` of two numbers, to the last digit: a board asks a hundred thousand times."""
    total = variance + other
    if not (math.isfinite(total) and total > 0):
        return math.inf
    lost = _lost(variance / total, freedom) + _lost(other / total, freedom_of_other)
    return 1.0 / lost if lost > 0 else math.inf


def _lost(share: float, freedom: float) -> float:
    if share == 0:
        return 0.0
    return share * share / freedom if freedom > 0 else math.inf


def satterthwaite(parts: Sequence[Any], freedoms: Sequence[Any]) -> Floats:
    """Degrees of freedom of a sum of independent variances (Satterthwaite 1946), element by element.

    Args:
        parts: The variances, numbers or arrays that broadcast.
        freedoms: Their degrees of freedom; infinite for a variance that is known.
    """
    variance = np.stack(np.broadcast_arrays(*parts)).astype(np.float64)
    freedom = np.stack(np.broadcast_arrays(*freedoms)).astype(np.float64)
    total: NDArray[np.float64] = variance.sum(axis=0)
    known = np.isfinite(total) & (total > 0)
    # As shares, because the square of a variance of 1e-200 is 0.
    shares = np.divide(variance, total, out=np.zeros_like(variance), where=known)
    lost = np.divide(shares**2, freedom, out=np.zeros_like(variance), where=shares > 0).sum(axis=0)
    # A variance of 0 is exact. One that is infinite says nothing, whatever its degrees of freedom.
    return np.divide(1.0, lost, out=np.full(total.shape, np.inf), where=lost > 0)


@lru_cache(maxsize=10_000)
def noncentrality(freedom: float, power: float = POWER, alpha: float = ALPHA) -> float:
    """How many standard errors from 0 the truth must be for a two-sided t test to find it with this power."""
    if not alpha < power < 1:
        raise ValueError(f"Expected `power` to be between alpha = {alpha} and 1, but got {power}")
    critical = quantile(1 - alpha / 2, freedom)

    def missing(shift: float) -> float:
        # The wrong tail is not counted: a loss that is taken for a win has not been found.
        found = scipy.stats.nct.sf(critical, freedom, shift) if freedom < 1e6 else scipy.stats.norm.sf(critical - shift)
        return float(found) - power

    return scipy.optimize.root_scalar(missing, bracket=(0, 10 * critical + 10), xtol=1e-6).root


def _verdict(effect: Effect, p: float) -> Verdict:
    if p > ALPHA:
        return "tie"
    return "win" if effect.value > 0 else "loss"
