"""The methods of a dataset side by side: every measure that is a weighted sum over conditions, by seed and row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any

from leaderboard import moderated, outcomes, pillars, stats
from leaderboard.effect import Effect
from leaderboard.measures import MEASURES, area_weights, common_curves, measure
from leaderboard.moderated import Panel
from leaderboard.pillars import Weights
from leaderboard.record import Record
from leaderboard.robustness import Baselines, Curve, curves, normalise
from leaderboard.row_summaries import by_row
from leaderboard.stats import Estimate
from leaderboard.summary import Summary, of_scores
from leaderboard.variance_prior import Prior


@dataclass(frozen=True)
class Linear:
    """A measure as `shift + scale * sum_c weights[c] * score_c`."""

    weights: Weights
    scale: float = 1.0
    shift: float = 0.0

    def of(self, scores: Mapping[str, float]) -> float | None:
        """Its value from the scores by condition; None if one is lacking."""
        if not scores.keys() >= self.weights.keys():
            return None
        return self.shift + self.scale * sum(map(mul, self.weights.values(), map(scores.__getitem__, self.weights)))


@dataclass(frozen=True)
class Side:
    """One dataset.

    Attributes:
        measures: By name; which conditions they are over is the control's to say, so that no other method can move
            what a method is measured by.
        panels: Measure -> methods.
        values: Method -> measure -> its value for each seed, of those that no seed lacks.
        curves: The severity curves they are over.
        normal: Whether differences are in chance-normalised units; else nothing is ranked.
        by_row: Whether rows are known; over seeds only, if not.
    """

    measures: Mapping[str, Linear]
    panels: Mapping[str, Panel]
    values: Mapping[str, Mapping[str, Sequence[float]]]
    curves: frozenset[Curve]
    normal: bool
    by_row: bool

    def estimate(self, measure: str, method: str, values: Sequence[float]) -> Estimate:
        """The mean over seeds with the calibrated interval."""
        return estimate(self.panels[measure].cell(method).scaled(self.measures[measure].scale), values)


def estimate(effect: Effect, values: Sequence[float]) -> Estimate:
    """The mean of the seeds' values with the width of an effect's interval; none where that is not known."""
    mean, half = stats.mean(values), effect.half()
    if not math.isfinite(half):
        return Estimate(mean, None, None, tuple(values))
    return Estimate(mean, mean - half, mean + half, tuple(values))


def estimates(
    methods: Mapping[str, Sequence[Record]], side: Side, baselines: Baselines
) -> dict[str, dict[str, Estimate]]:
    """Every measure of every method on a dataset; one that some seed lacks is a hole, not a mean over the others."""
    found: dict[str, dict[str, Estimate]] = {label: {} for label in methods}
    for label in methods:
        for name, values in side.values[label].items():
            found[label][name] = side.estimate(name, label, values)
    taken = {label: [measure(r, baselines, side.curves) for r in own] for label, own in methods.items()}
    for name in MEASURES:
        values = {m: [t[name] for t in several] for m, several in taken.items() if all(name in t for t in several)}
        for label, own in _intervals(name, values, side, baselines.chosen()).items():
            found[label][name] = own
    return found


def _intervals(
    name: str, values: Mapping[str, Sequence[float]], side: Side, unimodal: str | None
) -> dict[str, Estimate]:
    """Of numbers that are not means over rows: over seeds only, but for the gain, which is a difference of two."""
    if not values:
        return {}
    if MEASURES[name].style in ("count", "seconds", "quantity"):  # what is usual of one is not of another
        return {label: stats.estimate(own) for label, own in values.items()}
    clean = side.panels["clean"]
    if name == "gain" and unimodal in clean.methods:
        assert unimodal is not None
        scale = 1 / abs(clean.unit)
        return {m: estimate(clean.difference(m, unimodal).scaled(scale), own) for m, own in values.items()}
    own = moderated.panel(of_scores(values))
    return {label: estimate(own.cell(label), several) for label, several in values.items()}


def side(
    methods: Mapping[str, Sequence[Record]],
    reference: Sequence[Record],
    stores: Mapping[str, Any],
    priors: Mapping[str, Prior],
) -> Side:
    """Read what rows add to every measure and put the methods beside each other.

    Args:
        methods: Their records on one dataset, one per seed.
        reference: Records whose conditions decide what is measured.
        stores: Cell id -> where its predictions are.
        priors: Measure -> the frozen prior of its variance; those that are not there are fitted.
    """
    first = reference[0]
    normal = math.isfinite(normalise(first.clean, first.trivial, first.cell.higher_is_better))
    unit = moderated.unit(first.trivial or 0.0, first.cell.higher_is_better) if normal else 1.0
    common = common_curves(reference).get(first.cell.dataset, frozenset())
    measured = linear(reference, common, unit if normal else None)
    values = {name: _values(own, measured) for name, own in methods.items()}
    weights = {m: own.weights for m, own in measured.items()}
    groups = outcomes.grouping([r for own in methods.values() for r in own], stores)
    able = {n: list(own) for n, own in values.items() if own}
    known = by_row({n: methods[n] for n in able}, able, weights, stores, groups)
    found = known or {name: _by_score(own, measured) for name, own in values.items()}
    panels: dict[str, Panel] = {}
    for m in measured:
        own = {name: summaries[m] for name, summaries in found.items() if m in summaries}
        if own:
            panels[m] = moderated.panel(own, unit, priors.get(m))
    return Side(measured, panels, values, common, normal, known is not None)


def _values(records: Sequence[Record], measured: Mapping[str, Linear]) -> dict[str, list[float]]:
    scores = [dict(zip(r.ids, [c.score for c in r.conditions], strict=True)) for r in records]
    found = {m: [own.of(s) for s in scores] for m, own in measured.items()}
    return {m: [v for v in own if v is not None] for m, own in found.items() if None not in own}


def _by_score(values: Mapping[str, Sequence[float]], measured: Mapping[str, Linear]) -> dict[str, Summary]:
    """In the metric's own units, as what is known by row is."""
    return of_scores({m: [(x - measured[m].shift) / measured[m].scale for x in v] for m, v in values.items()})


def linear(reference: Sequence[Record], common: frozenset[Curve], unit: float | None) -> dict[str, Linear]:
    """The measures that these records allow; without a unit only the clean score, which needs none."""
    found = {"clean": Linear(pillars.clean())}
    if unit is None:
        return found
    swept = [r for r in reference if curves(r)]
    joint = bool(swept) and all(curves(r, "joint") for r in swept)
    zero = -(reference[0].trivial or 0.0) * unit
    if common:
        found["area"] = Linear(area_weights(common), unit, zero)
        found["drop"] = Linear(pillars.robust(common) if joint else pillars.single(common), -unit)
        found["drop_single"] = Linear(pillars.single(common), -unit)
    if joint:
        weights = pillars.joint()
        found["drop_joint"] = Linear(weights, -unit)
        found["joint"] = Linear({**weights, "clean": weights["clean"] + 1}, unit, zero)
    subsets = [own for r in reference if (own := {c.id for c in r.conditions if c.kind == "missing"})]
    if subsets and (absent := subsets[0].intersection(*subsets[1:])):
        found["missing"] = Linear(pillars.missing(absent), unit, zero)
    return found
