"""The moderated t against loops, against scipy where it is one of its tests, and against worlds that are known."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from leaderboard.moderated import Panel, panel, unit
from leaderboard.summary import summarise
from leaderboard.variance_prior import Prior
from tests.leaderboard.planted_rows import WORLDS, World, summaries


def naive_variance_of_a_mean(x: np.ndarray, groups: np.ndarray) -> float:
    """Of the mean over rows when whole groups are drawn, from sums over groups."""
    mean = sum(x) / len(x)
    sums = [sum(v - mean for v, g in zip(x, groups, strict=True) if g == name) for name in sorted(set(groups))]
    number = len(sums)
    return number / (number - 1) * sum(s**2 for s in sums) / len(x) ** 2


def naive_difference(a: np.ndarray, b: np.ndarray, groups: np.ndarray, prior: Prior) -> tuple[float, float, float]:
    """Value, variance and degrees of freedom, formula by formula."""
    seeds, freedom, share = [], [], 0.0
    for x in (a, b):
        n = len(x)
        v = np.var([row.mean() for row in x], ddof=1)
        seeds.append((prior.freedom * prior.variance + (n - 1) * v) / (prior.freedom + n - 1) / n)
        freedom.append(min(prior.freedom + n - 1, prior.evidence))
        residual = x - x.mean(0) - x.mean(1, keepdims=True) + x.mean()
        share += sum(naive_variance_of_a_mean(r, groups) for r in residual) / (n - 1) / n
    rows = max(0.0, naive_variance_of_a_mean(a.mean(0) - b.mean(0), groups) - share)
    own = min(sum(seeds) ** 2 / sum(s**2 / f for s, f in zip(seeds, freedom, strict=True)), prior.evidence)
    total = sum(seeds) + rows
    df = total**2 / (sum(seeds) ** 2 / own + rows**2 / (len(set(groups)) - 1))
    return a.mean() - b.mean(), total, df


@pytest.mark.parametrize("clusters", [40, 9])
def test_difference_by_loops(clusters: int) -> None:
    rng = np.random.default_rng(0)
    a, b = World(rows=40, own=0.3).values(rng, 2, 4)
    b = b[:3]
    groups = rng.permutation(np.arange(40) % clusters)
    prior = Prior(0.02**2, 3.0, 9.0)
    own = panel({"a": summarise(a, groups), "b": summarise(b, groups)}, prior=prior)
    effect = own.difference("a", "b")
    assert (effect.value, effect.variance, effect.freedom) == pytest.approx(naive_difference(a, b, groups, prior))
    assert effect.variance > own.prior.variance / 4


def test_interaction_is_the_residual_of_a_two_way_layout() -> None:
    x = World(rows=30).values(np.random.default_rng(1), 1, 5)[0]
    residual = x - x.mean(0) - x.mean(1, keepdims=True) + x.mean()
    assert summarise(x).interaction == pytest.approx((residual**2).sum() / (4 * 29) / 30)


def test_two_alike_methods_with_scores_alone_are_a_pooled_t() -> None:
    a, b = np.array([0.80, 0.83, 0.81, 0.84]), np.array([0.86, 0.83, 0.85, 0.82])
    own = panel({"a": summarise(a[:, None]), "b": summarise(b[:, None])})
    assert own.prior.freedom == math.inf
    effect, expected = own.difference("a", "b"), scipy.stats.ttest_ind(a, b)
    assert effect.p == pytest.approx(expected.pvalue)
    assert effect.interval() == pytest.approx(tuple(expected.confidence_interval()))


def test_without_a_prior_it_is_welch() -> None:
    a, b = np.array([0.80, 0.83, 0.81, 0.84]), np.array([0.86, 0.53, 0.95])
    nothing = Prior(0.0, 0.0, 100.0)
    own = panel({"a": summarise(a[:, None]), "b": summarise(b[:, None])}, prior=nothing)
    assert own.difference("a", "b").p == pytest.approx(scipy.stats.ttest_ind(a, b, equal_var=False).pvalue)
    assert own.cell("b").interval() == pytest.approx(tuple(scipy.stats.ttest_1samp(b, 0).confidence_interval()))


def test_when_seeds_change_nothing_it_is_a_paired_t_over_rows() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random((2, 50))
    own = panel({"a": summarise(np.tile(a, (3, 1))), "b": summarise(np.tile(b, (2, 1)))})
    effect = own.difference("a", "b")
    assert effect.p == pytest.approx(scipy.stats.ttest_rel(a, b).pvalue)
    assert own.cell("a").interval() == pytest.approx(tuple(scipy.stats.ttest_1samp(a, 0).confidence_interval()))


def test_repeated_rows_are_not_more_rows() -> None:
    """Ten questions about one image that are answered alike count once."""
    x = World(rows=30, own=0.3).values(np.random.default_rng(3), 2, 3)
    many, groups = np.repeat(x, 10, axis=2), np.repeat(np.arange(30), 10)
    once = panel({"a": summarise(x[0]), "b": summarise(x[1])}).difference("a", "b")
    grouped = panel({"a": summarise(many[0], groups), "b": summarise(many[1], groups)}).difference("a", "b")
    fooled = panel({"a": summarise(many[0]), "b": summarise(many[1])}).difference("a", "b")
    assert (grouped.value, grouped.variance, grouped.freedom) == pytest.approx(
        (once.value, once.variance, once.freedom)
    )
    assert fooled.variance < 0.8 * once.variance


def test_all_pairs_are_the_differences() -> None:
    x = World(rows=60, own=0.2, spread=1.0).values(np.random.default_rng(4), 5, 4)
    methods = summaries(x) | {"few": summarise(x[0, :2] + 0.01), "one": summarise(x[1, :1])}
    own = panel(methods, unit=-2.0)
    names = ["one", *list(summaries(x))[::-1], "few"]
    pairs = own.pairs(names)
    for (i, a), (j, b) in itertools.product(enumerate(names), repeat=2):
        effect = own.difference(a, b)
        assert pairs.value[i, j] == pytest.approx(effect.value, abs=1e-12)
        assert pairs.variance[i, j] == pytest.approx(effect.variance)
        assert pairs.freedom[i, j] == pytest.approx(effect.freedom) or i == j


def test_drawn_errors_have_the_variance_of_the_differences() -> None:
    x = World(rows=300, own=0.3, seed=0.02).values(np.random.default_rng(5), 6, 8)
    own = panel(summaries(x), unit=1.5)
    names = list(own.methods)
    drawn = own.draws(names, 40_000, np.random.default_rng(0))
    pairs = own.pairs(names)
    first, second = np.triu_indices(6, 1)
    seen = (drawn[:, first] - drawn[:, second]).var(axis=0)
    heavy = own.prior.bound(7) / (own.prior.bound(7) - 2)  # variance of Student's t
    assert seen / pairs.variance[first, second] == pytest.approx(np.ones(15), abs=0.1 * heavy)


def test_one_seed() -> None:
    x = World(rows=80).values(np.random.default_rng(6), 4, 3)
    alone = panel({"a": summarise(x[0, :1]), "b": summarise(x[1, :1])})
    assert alone.difference("a", "b").interval() == (-math.inf, math.inf)
    assert alone.cell("a").p == 1
    helped = panel({"a": summarise(x[0, :1]), "b": summarise(x[1]), "c": summarise(x[2]), "d": summarise(x[3])})
    one, three = helped.cell("a").half(), helped.cell("b").half()
    assert three < one < math.inf
    # With the prior frozen, nobody else's rows or seeds are in its interval.
    fewer = panel({"a": summarise(x[0, :1]), "c": summarise(x[2])}, prior=helped.prior)
    assert fewer.difference("a", "c") == helped.difference("a", "c")


def test_frozen_prior_keeps_an_interval_still() -> None:
    x = World(rows=80, spread=1.0).values(np.random.default_rng(7), 6, 3)
    every = panel(summaries(x))
    two = dict(list(summaries(x).items())[:2])
    names = list(two)
    assert panel(two, prior=every.prior).difference(*names) == every.difference(*names)
    assert panel(two).difference(*names).value == every.difference(*names).value
    assert panel(two).difference(*names).variance != every.difference(*names).variance


def test_units() -> None:
    assert unit(0.1, True) == pytest.approx(1 / 0.9)
    assert unit(0.5, False) == pytest.approx(-2)
    x = World(rows=50).values(np.random.default_rng(8), 2, 3)
    raw, chance = panel(summaries(x)), panel(summaries(x), unit=unit(0.5, False))
    a, b = raw.methods
    assert chance.difference(a, b).value == pytest.approx(-2 * raw.difference(a, b).value)
    assert chance.difference(a, b).p == pytest.approx(raw.difference(a, b).p)
    assert chance.cell(a) == raw.cell(a)
    with pytest.raises(ValueError, match="room"):
        unit(1.0, True)


def test_wrong_shapes() -> None:
    with pytest.raises(ValueError, match=r"\[seeds, rows\]"):
        summarise(np.zeros(3))
    with pytest.raises(ValueError, match="groups"):
        summarise(np.zeros((2, 3)), np.zeros(4))
    with pytest.raises(ValueError, match="same rows"):
        panel({"a": summarise(np.zeros((2, 3))), "b": summarise(np.zeros((2, 4)))})


def _boards(world: World, seeds: int, number: int, methods: int = 12) -> list[Panel]:
    rng = np.random.default_rng(seeds)
    return [world.board(rng, methods, seeds) for _ in range(number)]


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_false_positives_and_coverage(name: str, seeds: int) -> None:
    """1,200 comparisons of equals and 1,200 cells, drawn once and for all: standard error .006 at 5 %."""
    boards = _boards(WORLDS[name], seeds, 200)
    pairs = [(p, *list(p.methods)[i : i + 2]) for p in boards for i in range(0, 12, 2)]
    wrong = np.mean([p.difference(a, b).p <= 0.05 for p, a, b in pairs])
    # Two seeds of methods that are not equally stable are the hardest case, and no promise is made for two.
    assert 0.03 <= wrong <= (0.08 if seeds > 2 else 0.12)
    ends = [p.cell(a).interval() for p, a, _ in pairs]
    assert np.mean([low <= 0.8 <= high for low, high in ends]) >= (0.92 if seeds > 2 else 0.88)


@pytest.mark.parametrize("effect", [0.02, 0.05])
@pytest.mark.parametrize("name", WORLDS)
def test_planted_effects_are_found_with_the_stated_power(name: str, effect: float) -> None:
    """Stated: by the noncentral t, from the true variance and the typical degrees of freedom."""
    world, seeds, boards = WORLDS[name], 5, 150
    rng = np.random.default_rng(11)
    means = np.array([effect, 0.0] * 6)
    found, stated = [], []
    for _ in range(boards):
        p = world.board(rng, 12, seeds, means)
        names = list(p.methods)
        for a, b in zip(names[::2], names[1::2], strict=True):
            e = p.difference(a, b)
            found.append(e.verdict() == "win")
            stated.append(scipy.stats.nct.sf(scipy.stats.t.ppf(0.975, e.freedom), e.freedom, effect / e.error))
    assert np.mean(found) == pytest.approx(np.mean(stated), abs=0.05)


def test_the_detectable_difference_is_detected() -> None:
    world, rng = WORLDS["rows rule"], np.random.default_rng(12)
    typical = float(np.median([world.board(rng, 12, 5).difference("m00", "m01").detectable() for _ in range(100)]))
    found = []
    for _ in range(150):
        p = world.board(rng, 12, 5, np.array([typical, 0.0] * 6))
        names = list(p.methods)
        found += [p.difference(a, b).verdict() == "win" for a, b in zip(names[::2], names[1::2], strict=True)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.05)
