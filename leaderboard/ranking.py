"""The order of a pillar: the advantage over the control, who may be the best, and what could have been told apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.stats

from leaderboard import stats
from leaderboard.advantage import Advantage, advantages
from leaderboard.effect import Effect, Verdict, judge
from leaderboard.hsu import DRAWS, with_the_best
from leaderboard.moderated import Panel
from leaderboard.stats import ALPHA, Across

PILLARS = {"clean": "clean", "robust": "drop", "missing": "missing"}
"""Pillar -> the measure it ranks by."""

_NOBODY = Across("none", "There is no control to compare with.")
_DRAWS = 2000  # for the best of single datasets, of which a board asks for dozens


@dataclass(frozen=True)
class Standing:
    """Where a method stands in a pillar.

    Attributes:
        place: Of its advantage among all that have one.
        advantage: Mean over its datasets of the chance-normalised difference from the control.
        low: Lower end of the 95 % interval; None, as `high`, when one seed and no other method say nothing of it.
        verdict: Against the control, adjusted for the number of methods (Holm, 5 %).
        on: Datasets it is compared on, `of` those the control has.
        wins: Datasets where it is better than the control; `ties`, `losses` likewise.
        best: Whether it may be the best of its peers: the methods that have every dataset it has.
        peers: How many these are.
        by_dataset: Against the control on each dataset alone.
        differences: Dataset -> chance-normalised difference from the control and half its 95 % interval.
        mean_rank: Borda's, over datasets; None unless it has them all.
    """

    method: str
    place: int
    advantage: float
    low: float | None
    high: float | None
    verdict: Verdict
    on: int
    of: int
    wins: int
    ties: int
    losses: int
    best: bool
    peers: int
    by_dataset: Mapping[str, Verdict]
    differences: Mapping[str, tuple[float, float | None]]
    mean_rank: float | None = None


@dataclass(frozen=True)
class Ranking:
    """A pillar.

    Attributes:
        standings: By method, best first.
        resolves: The smallest advantage found with 80 % power, by the comparison whose error is the median; None when
            nobody is compared.
        adjusted: The same, if it is to be found among as many methods as there are, which is what verdicts are
            adjusted for (Bonferroni: Holm finds it at least as often).
        by_dataset: The same on each dataset, chance-normalised.
        across: Whether it would hold on other datasets.
    """

    standings: Mapping[str, Standing] = field(default_factory=dict[str, Standing])
    resolves: float | None = None
    adjusted: float | None = None
    by_dataset: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    across: Across = _NOBODY


def rank(panels: Mapping[str, Panel], names: Sequence[str], control: str) -> Ranking:
    """Order methods by their advantage over the control.

    Args:
        panels: By dataset, in chance-normalised units.
        names: The methods to place; others in the panels only teach what variance is usual.
        control: The method all are compared with.
    """
    with_control = {d: p for d, p in sorted(panels.items()) if control in p.methods}
    if not with_control:
        return Ranking()
    every = advantages(with_control, control)
    wanted = set(names)
    placed = [a for a in every if a.method in wanted]
    places = scipy.stats.rankdata([-a.effect.value for a in placed], method="min")
    others = [a for a in every if a.method != control]
    peers = {
        datasets: [m for m in names if all(m in with_control[d].methods for d in datasets)]
        for datasets in {tuple(a.by_dataset) for a in placed}
    }
    tops = {datasets: _best([with_control[d] for d in datasets], own) for datasets, own in peers.items()}
    complete = peers.get(tuple(with_control), [])
    points = np.array([[p.methods[m].mean * p.unit for m in complete] for p in with_control.values()])
    ranks = dict(zip(complete, stats.borda(points), strict=True)) if complete else {}
    versus = [a for a in placed if a.method != control]
    judged = zip(versus, judge([a.effect for a in versus]), strict=True)
    verdicts: dict[str, Verdict] = {a.method: line.verdict for a, line in judged}
    standings: dict[str, Standing] = {}
    for a, place in zip(placed, places, strict=True):
        datasets = tuple(a.by_dataset)
        best_of = a.method in tops[datasets], len(peers[datasets])
        standings[a.method] = _standing(a, int(place), verdicts.get(a.method, "tie"), best_of, ranks.get(a.method))
    return Ranking(
        standings,
        _detectable([a.effect for a in others]),
        _detectable([a.effect for a in versus], ALPHA / max(1, len(versus))),
        {d: _detectable([a.by_dataset[d] for a in others if d in a.by_dataset]) for d in with_control},
        stats.across(complete, points, control) if complete else Across("none", "No method has every dataset."),
    )


def best_of_each(panels: Mapping[str, Panel], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Dataset -> methods that may be the best there."""
    return {d: _best([p], [m for m in names if m in p.methods], _DRAWS) for d, p in panels.items()}


def _best(panels: Sequence[Panel], names: Sequence[str], draws: int = DRAWS) -> tuple[str, ...]:
    if len(names) < 2:
        return ()  # the best of one is no finding
    return tuple(c.method for c in with_the_best(panels, names, draws) if c.best)


def _standing(own: Advantage, place: int, verdict: Verdict, best_of: tuple[bool, int], rank: float | None) -> Standing:
    value, half = own.effect.value, own.effect.half()
    low, high = (value - half, value + half) if math.isfinite(half) else (None, None)
    counts = (own.on, own.of, own.wins, own.ties, own.losses)
    verdicts: dict[str, Verdict] = {d: e.verdict() for d, e in own.by_dataset.items()}
    mean_rank = None if rank is None else float(rank)
    alone = {d: (e.value, _finite(e.half())) for d, e in own.by_dataset.items()}
    return Standing(own.method, place, value, low, high, verdict, *counts, *best_of, verdicts, alone, mean_rank)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _detectable(effects: Sequence[Effect], alpha: float = ALPHA) -> float | None:
    """Of the comparison whose standard error is in the middle."""
    by_error = sorted(effects, key=lambda e: e.variance)
    if not by_error or not math.isfinite((middle := by_error[len(by_error) // 2]).variance):
        return None
    found = middle.detectable(alpha=alpha)
    return found if math.isfinite(found) else None
