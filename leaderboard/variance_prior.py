"""What the methods of a dataset teach about each other's variance over seeds (Smyth 2004).

The variances are taken for draws `v_m ~ sigma_m^2 chi^2_f / f` with `1 / sigma_m^2 ~ chi^2_{d_0} / (d_0 s_0^2)`. Few
seeds say little of one method's variance; all methods together say a lot of what is usual.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray
from scipy.special import digamma, polygamma

# Scores are multiples of 1/rows, so two seeds may agree by rounding, and the logarithm of 0 would say that methods
# differ wildly. What rounds to 0 steps is uniform within half a step of it; its square is then, in the geometric mean,
# this part of a step's.
_ROUNDED = (0.5 / math.e) ** 2
_NOTHING = 1e-10  # of the largest variance: what the rounding of floats leaves where seeds agree


@dataclass(frozen=True)
class Prior:
    """The usual variance of a dataset's methods, worth `freedom` degrees of freedom.

    Attributes:
        variance: `s_0^2`.
        freedom: `d_0`: 0 when nothing is usual, infinite when the methods differ no more than by chance.
        evidence: Degrees of freedom of all variances it was fitted to.
    """

    variance: float
    freedom: float
    evidence: float

    def posterior(self, variance: float, freedom: float) -> tuple[float, float]:
        """The variance of a method and its degrees of freedom, given its own over `freedom` + 1 seeds.

        Infinite with 0 degrees of freedom when there is one seed and nothing usual.
        """
        total = self.freedom + freedom
        if total == 0:
            return math.inf, 0.0
        if math.isinf(self.freedom):
            return self.variance, self.bound(freedom)
        own = freedom * variance if freedom > 0 else 0.0  # of one seed, the variance is not a number
        return (self.freedom * self.variance + own) / total, min(total, self.bound(freedom))

    def bound(self, freedom: float) -> float:
        """The most degrees of freedom a variance can have: those of all that is known, however alike the methods."""
        return max(self.evidence, freedom)

    def to_plain(self) -> dict[str, float | None]:
        """For a file; JSON cannot say infinite, so null does."""
        freedom = None if math.isinf(self.freedom) else self.freedom
        return {"variance": self.variance, "freedom": freedom, "evidence": self.evidence}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Prior:
        """Read what `to_plain` wrote."""
        freedom = math.inf if plain["freedom"] is None else float(plain["freedom"])
        return cls(float(plain["variance"]), freedom, float(plain["evidence"]))


Priors = Mapping[str, Mapping[str, Prior]]
"""Dataset -> measure (`clean`, `drop`, `missing`, ...) -> prior, in the metric's own units.

A board with frozen ones (`Evidence.priors`) moves no interval when methods come or go; `polymodal export` keeps them.
"""


def fit(variances: Sequence[float], freedoms: Sequence[float]) -> Prior:
    """Match the mean and variance of the logarithms of the variances (Smyth 2004, section 6.2).

    Args:
        variances: Sample variances over seeds, one per method.
        freedoms: Seeds less one; methods with 0 teach nothing.
    """
    f = np.asarray(freedoms, dtype=np.float64)
    v = np.asarray(variances, dtype=np.float64)[f > 0]
    f = f[f > 0]
    evidence = float(f.sum())
    if len(v) == 0:
        return Prior(0.0, 0.0, 0.0)
    if len(v) == 1:  # plain t: one method says nothing of what is usual
        return Prior(float(v[0]), 0.0, evidence)
    pooled = Prior(float((f * v).sum() / f.sum()), math.inf, evidence)
    if not v.any():
        return pooled
    e = np.log(_unrounded(v)) - digamma(f / 2) + np.log(f / 2)
    spread = float(e.var(ddof=1) - polygamma(1, f / 2).mean())
    if spread <= 0:
        return pooled
    d = 2 * inverse_trigamma(spread)
    return Prior(float(np.exp(e.mean() + digamma(d / 2) - math.log(d / 2))), d, evidence)


def inverse_trigamma(y: float) -> float:
    """The x > 0 with `trigamma(x) = y`."""
    # trigamma lies between 1/x + 1/(2 x^2) and 1/x + 1/x^2, which brackets the root in closed form.
    low, high = ((1 + math.sqrt(1 + c * y)) / (2 * y) for c in (2, 4))
    bracket = (low * (1 - 1e-9), high * (1 + 1e-9))

    def missing(x: float) -> float:
        return float(polygamma(1, x)) - y

    return scipy.optimize.root_scalar(missing, bracket=bracket).root


def _unrounded(v: NDArray[np.float64]) -> NDArray[np.float64]:
    """Variances with those of 0 replaced by what they were before rounding, as far as the smallest other one tells."""
    some = v > _NOTHING * v.max()
    return np.where(some, v, _ROUNDED * v[some].min())
