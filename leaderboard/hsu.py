"""Multiple comparisons with the best (Hsu 1981): which methods may be the best, and which cannot.

**Differs from the paper**: Hsu's quantile protects one best method. Where several are equally good it expels one of
them far more often than it says (about a third of boards of twelve equals). Here the quantile is over all methods at
once, so that on 95 % of boards *none* of those that are best is expelled, however many they are. Boards of very many
methods take Bonferroni's quantile instead of a simulated one: wider, never narrower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from leaderboard.effect import satterthwaite
from leaderboard.moderated import Pairs, Panel
from leaderboard.stats import LEVEL

Floats = NDArray[np.float64]
DRAWS = 10_000
_MANY = 100  # methods from which on all pairs are too many to simulate
_LEADERS = 50  # whom the others are then compared with; to leave the rest out expels nobody


@dataclass(frozen=True)
class Candidate:
    """A method against the best of the others, at the simultaneous level.

    Attributes:
        gap: Its mean minus the best mean among the others.
        low: Lower end of the interval of the true gap; 0 at most.
        high: Upper end; 0 at least.
        best: Whether it may be the best: the upper end was not cut at 0.
    """

    method: str
    gap: float
    low: float
    high: float
    best: bool


def with_the_best(panels: Sequence[Panel], names: Sequence[str], draws: int = DRAWS) -> tuple[Candidate, ...]:
    """Compare every method with the best of the others, by their means over datasets.

    No method is wrongly said not to be the best, with a chance of `LEVEL`.

    Args:
        panels: One per dataset, each with all of these methods.
        names: The methods: those that are complete on these datasets.
        draws: Of the simulation that gives the quantile.

    Returns:
        In the order of `names`.
    """
    if not panels:
        raise ValueError("Expected at least one dataset, but got none")
    if len(names) < 2:
        return tuple(Candidate(name, 0.0, -np.inf, np.inf, True) for name in names)
    order = sorted(names)  # no verdict may depend on the order of the records
    if len(order) > _MANY:
        found = _bonferroni(panels, order)
        return tuple(found[name] for name in names)
    pairs = mean_pairs([panel.pairs(order) for panel in panels])
    rng = np.random.default_rng(0)  # nor on when the board is made
    drawn = np.mean([panel.draws(order, draws, rng) for panel in panels], axis=0)
    known = np.isfinite(pairs.variance)
    error = np.sqrt(np.where(known, pairs.variance, 0.0))
    margin = np.where(known, critical(drawn, pairs) * error, np.inf)
    found = {name: _candidate(name, i, pairs.value[i], margin[i]) for i, name in enumerate(order)}
    return tuple(found[name] for name in names)


def _bonferroni(panels: Sequence[Panel], order: Sequence[str]) -> dict[str, Candidate]:
    points = np.mean([[p.methods[name].mean * p.unit for name in order] for p in panels], axis=0)
    leaders = [order[int(i)] for i in np.argsort(-points, kind="stable")[:_LEADERS]]
    pairs = mean_pairs([panel.pairs(order, leaders) for panel in panels])
    tail = (1 - LEVEL) / (len(order) * (len(order) - 1))
    with np.errstate(invalid="ignore"):
        margin = np.where(
            np.isfinite(pairs.variance), stdtrit(pairs.freedom, 1 - tail) * np.sqrt(pairs.variance), np.inf
        )
    found: dict[str, Candidate] = {}
    for i, name in enumerate(order):
        others = np.array([leader != name for leader in leaders])
        # The first place is its own: `_candidate` looks at all others.
        difference, reach = (np.concatenate([[0.0], x[i, others]]) for x in (pairs.value, margin))
        found[name] = _candidate(name, 0, difference, reach)
    return found


def mean_pairs(several: Sequence[Pairs]) -> Pairs:
    """Differences of the means over datasets."""
    number = len(several)
    parts = [p.variance / number**2 for p in several]
    freedom = satterthwaite(parts, [p.freedom for p in several])
    return Pairs(np.mean([p.value for p in several], axis=0), np.sum(parts, axis=0), freedom)


def critical(drawn: Floats, pairs: Pairs, level: float = LEVEL) -> Floats:
    """How many standard errors each difference may be from its truth if all are to be near it at once.

    The quantile of the largest of the correlated t's. Differences with fewer degrees of freedom get more room, so that
    each is about as likely as the others to be the one that errs, and one badly known method widens no other's margin.

    Args:
        drawn: Errors of the means `[draws, methods]`.
        pairs: Standard errors and degrees of freedom of the differences.
        level: Simultaneous.
    """
    largest = np.zeros(len(drawn))
    for i in range(1, drawn.shape[1]):  # by method, since all pairs of 60 methods at once would take a gigabyte
        variance, freedom = pairs.variance[i, :i], pairs.freedom[i, :i]
        usable = np.isfinite(variance) & (variance > 0)
        if usable.any():
            t = (drawn[:, [i]] - drawn[:, :i])[:, usable] / np.sqrt(variance[usable])
            largest = np.maximum(largest, _to_normal(np.abs(t), freedom[usable]).max(axis=1))
    return _to_t(float(np.quantile(largest, level)), pairs.freedom)


def _to_normal(t: Floats, freedom: Floats) -> Floats:
    """The standard normal value with about the same tail as t (Wallace 1959)."""
    f = np.minimum(freedom, 1e9)
    return (8 * f + 1) / (8 * f + 3) * np.sqrt(f * np.log1p(t**2 / f))


def _to_t(z: float, freedom: Any) -> Floats:
    """Inverse of `_to_normal`."""
    f = np.minimum(freedom, 1e9)
    return np.sqrt(f * np.expm1(((8 * f + 3) / (8 * f + 1) * z) ** 2 / f))


def _candidate(name: str, i: int, difference: Floats, margin: Floats) -> Candidate:
    others = np.arange(len(difference)) != i
    low = float((difference - margin)[others].min())
    high = float((difference + margin)[others].min())
    # Constrained as Hsu's are: whoever is expelled is known to be behind, whoever may be best to be at most level.
    return Candidate(name, float(difference[others].min()), min(low, 0.0), max(high, 0.0), high >= 0)
