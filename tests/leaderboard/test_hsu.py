"""Comparison with the best: against tables, loops, and boards whose best are known."""

import math

import numpy as np
import pytest
import scipy.stats

from leaderboard.effect import average
from leaderboard.hsu import critical, mean_pairs, with_the_best
from leaderboard.moderated import Pairs, Panel, panel
from leaderboard.summary import summarise
from leaderboard.variance_prior import Prior
from tests.leaderboard.planted_rows import WORLDS, World, summaries


def scores_alone(rng: np.random.Generator, methods: int, seeds: int, prior: Prior) -> Panel:
    return panel({f"m{i:02d}": summarise(rng.standard_normal((seeds, 1))) for i in range(methods)}, prior=prior)


@pytest.mark.parametrize("freedom", [6.0, 44.0])
@pytest.mark.parametrize("methods", [2, 5, 12])
def test_quantile_is_tukeys_when_one_variance_is_shared(methods: int, freedom: float) -> None:
    own = scores_alone(np.random.default_rng(0), methods, 4, Prior(1.0, math.inf, freedom))
    names = list(own.methods)
    drawn = own.draws(names, 100_000, np.random.default_rng(0))
    found = critical(drawn, own.pairs(names))[0, 1]
    assert found == pytest.approx(scipy.stats.studentized_range.ppf(0.95, methods, freedom) / math.sqrt(2), rel=0.02)


def test_hsus_own_quantile_would_expel_one_of_many_equals() -> None:
    """Why ours is over all methods: twelve equals, his quantile (one-sided, for one best), a third of the boards."""
    rng = np.random.default_rng(1)
    means = rng.standard_normal((50_000, 12))
    his = np.quantile((means[:, 1:] - means[:, :1]).max(axis=1) / math.sqrt(2), 0.95)
    expelled = (np.ptp(means, axis=1) / math.sqrt(2) > his).mean()
    assert 0.25 < expelled < 0.45


def test_candidates_by_loops() -> None:
    x = World(rows=60, own=0.2).values(np.random.default_rng(2), 4, 3, np.array([0.0, 0.1, 0.11, -0.3]))
    y = World(rows=50, seed=0.02).values(np.random.default_rng(3), 4, 3)
    panels = [panel(summaries(x), unit=2.0), panel(summaries(y))]
    names = list(panels[0].methods)
    pairs = mean_pairs([p.pairs(names) for p in panels])
    rng = np.random.default_rng(0)
    c = critical(np.mean([p.draws(names, 10_000, rng) for p in panels], axis=0), pairs)
    for i, candidate in enumerate(with_the_best(panels, names)):
        effects = {j: average([p.difference(names[i], names[j]) for p in panels]) for j in range(4) if j != i}
        upper = min(e.value + c[i, j] * e.error for j, e in effects.items())
        lower = min(e.value - c[i, j] * e.error for j, e in effects.items())
        assert candidate.gap == pytest.approx(min(e.value for e in effects.values()))
        assert (candidate.low, candidate.high) == pytest.approx((min(lower, 0), max(upper, 0)))
        assert candidate.best == (upper >= 0)
        for j, e in effects.items():
            assert pairs.freedom[i, j] == pytest.approx(e.freedom)
    assert [c.best for c in with_the_best(panels, names)] == [False, True, True, False]


def test_a_clear_winner_is_alone() -> None:
    own = World().board(np.random.default_rng(4), 6, 5, np.array([0.0, 0.0, 0.3, 0.0, 0.0, 0.0]))
    found = {c.method: c for c in with_the_best([own], list(own.methods))}
    assert [name for name, c in found.items() if c.best] == ["m02"]
    assert found["m02"].gap > 0.2 and found["m02"].low == 0 and found["m02"].high > 0.2
    assert all(c.high == 0 and c.low < -0.2 for name, c in found.items() if name != "m02")


def test_order_of_methods_does_not_matter() -> None:
    own = World(own=0.2).board(np.random.default_rng(5), 8, 3)
    names = list(own.methods)
    assert set(with_the_best([own], names)) == set(with_the_best([own], names[::-1]))
    assert [c.method for c in with_the_best([own], names[::-1])] == names[::-1]


def test_a_method_nobody_knows_widens_no_other_margin() -> None:
    rng = np.random.default_rng(6)
    means = rng.standard_normal((20_000, 4))
    means[:, 3] *= 1 / np.sqrt(rng.chisquare(1, 20_000))  # Cauchy
    variance = 2 * (1 - np.eye(4))
    freedom = np.full((4, 4), 1e6)
    freedom[3, :] = freedom[:, 3] = 1.0
    found = critical(means, Pairs(np.zeros((4, 4)), variance, freedom))
    three = critical(means[:, :3], Pairs(np.zeros((3, 3)), variance[:3, :3], freedom[:3, :3]))
    assert found[0, 1] < 1.25 * three[0, 1]
    assert found[0, 3] > 10


def test_one_seed_without_a_prior_expels_nobody() -> None:
    x = World(rows=40).values(np.random.default_rng(7), 3, 1, np.array([0.0, 0.3, 0.6]))
    own = panel(summaries(x))
    assert all(c.best for c in with_the_best([own], list(own.methods)))
    assert with_the_best([own], ["m01"])[0].best
    known = World(rows=40).values(np.random.default_rng(8), 3, 4, np.array([0.0, 0.3, 0.6]))
    alone = Prior(1e-4, 0.0, 100.0)  # nothing is usual, so that nothing is known of one seed
    mixed = panel(summaries(known) | {"one": summarise(x[0])}, prior=alone)
    assert [c.method for c in with_the_best([mixed], list(mixed.methods)) if c.best] == ["m02", "one"]
    with pytest.raises(ValueError, match="at least one dataset"):
        with_the_best([], ["a", "b"])


@pytest.mark.parametrize("name", ["rows rule", "methods differ by row", "seeds rule"])
def test_equals_stay_together(name: str) -> None:
    """150 boards of 12 equals at three seeds, and a board of two datasets: standard error .02."""
    rng = np.random.default_rng(8)
    expelled = 0
    for _ in range(150):
        own = [WORLDS[name].board(rng, 12, 3)]
        expelled += not all(c.best for c in with_the_best(own, list(own[0].methods), draws=1000))
    assert expelled / 150 <= 0.08 + 0.02


def test_the_best_stay_though_others_fall() -> None:
    """Three equals at the top and nine well below: the three are kept, most of the nine are not."""
    means = np.array([0.05] * 3 + [0.0] * 9)
    rng = np.random.default_rng(9)
    kept = fell = 0
    for _ in range(60):
        own = WORLDS["rows rule"].board(rng, 12, 5, means)
        found = with_the_best([own], list(own.methods), draws=1000)
        kept += all(c.best for c in found[:3])
        fell += sum(not c.best for c in found[3:])
    assert kept / 60 >= 0.9
    assert fell / (60 * 9) > 0.9
