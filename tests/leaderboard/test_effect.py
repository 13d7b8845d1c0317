"""Intervals, p values, power and adjustment of one estimate."""

import math

import numpy as np
import pytest
import scipy.stats

from leaderboard.effect import Effect, average, judge, noncentrality, satterthwaite


def test_interval_and_p_are_students() -> None:
    x = np.array([0.3, 0.1, 0.4, 0.15, 0.35])
    effect = Effect(x.mean(), x.var(ddof=1) / 5, 4)
    expected = scipy.stats.ttest_1samp(x, 0.0)
    assert effect.p == pytest.approx(expected.pvalue)
    assert effect.interval() == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert effect.interval(0.8) == pytest.approx(tuple(expected.confidence_interval(0.8)))
    assert effect.verdict() == "win" and effect.scaled(-2).verdict() == "loss"
    assert effect.scaled(-2).p == pytest.approx(effect.p)
    assert Effect(effect.value, 1e4 * effect.variance, effect.freedom).verdict() == "tie"


def test_nothing_known_and_nothing_uncertain() -> None:
    unknown = Effect(0.2, math.inf, 1.0)
    assert unknown.interval() == (-math.inf, math.inf) and unknown.p == 1 and unknown.verdict() == "tie"
    assert unknown.detectable() == math.inf
    assert Effect(0.2, 0.0, math.inf).p == 0 and Effect(0.0, 0.0, math.inf).p == 1
    assert Effect(0.2, 0.0, math.inf).interval() == (0.2, 0.2)


@pytest.mark.parametrize("freedom", [1.5, 4.0, 30.0, 5e6, math.inf])
def test_what_is_called_detectable_is_detected(freedom: float) -> None:
    effect = Effect(0.0, 0.01**2, freedom)
    shift = effect.detectable() / effect.error
    rng = np.random.default_rng(0)
    scale = np.sqrt(rng.chisquare(freedom, 100_000) / freedom) if math.isfinite(freedom) else 1.0
    t = (rng.standard_normal(100_000) + shift) / scale
    assert (t > scipy.stats.t.ppf(0.975, freedom)).mean() == pytest.approx(0.8, abs=0.005)
    assert noncentrality(freedom, power=0.9) > shift


def test_power_must_be_a_power() -> None:
    with pytest.raises(ValueError, match="between alpha"):
        noncentrality(10, power=0.01)


def test_satterthwaite_by_hand() -> None:
    assert satterthwaite([2.0, 3.0], [4, 9]) == pytest.approx(25 / (4 / 4 + 9 / 9))
    assert satterthwaite([2.0, 0.0], [4, 1]) == pytest.approx(4)
    assert satterthwaite([1e-250, 1e-250], [3, 3]) == pytest.approx(6)
    assert satterthwaite([0.0, 0.0], [3, 3]) == math.inf
    assert satterthwaite([1.0, 1.0], [math.inf, 5]) == pytest.approx(20)
    both = satterthwaite([np.array([2.0, 1.0]), 3.0], [4, np.array([9.0, 2.0])])
    assert both == pytest.approx([25 / 2, 16 / (1 / 4 + 9 / 2)])


def test_average_of_datasets() -> None:
    several = [Effect(0.1, 0.04, 5), Effect(0.3, 0.01, 10), Effect(-0.1, 0.02, math.inf)]
    mean = average(several)
    assert mean.value == pytest.approx(0.1)
    assert mean.variance == pytest.approx(0.07 / 9)
    assert mean.freedom == pytest.approx(0.07**2 / (0.04**2 / 5 + 0.01**2 / 10))
    one = average(several[:1])
    assert (one.value, one.variance, one.freedom) == pytest.approx((0.1, 0.04, 5))
    with pytest.raises(ValueError, match="at least one"):
        average([])


def test_many_lines_are_judged_together() -> None:
    """Among 70 lines of nothing, some line alone is 'found' almost always; adjusted, in 5 % of comparisons."""
    rng = np.random.default_rng(3)
    alone = together = 0
    for _ in range(400):
        effects = [Effect(z, 1.0, math.inf) for z in rng.standard_normal(70)]
        alone += any(e.verdict() != "tie" for e in effects)
        together += any(line.verdict != "tie" for line in judge(effects))
    assert alone / 400 > 0.9
    assert together / 400 == pytest.approx(0.05, abs=0.025)
    lines = judge([Effect(0.0, 1.0, 9.0), Effect(9.0, 1.0, 90.0), Effect(-9.0, 1.0, 90.0)])
    assert [line.verdict for line in lines] == ["tie", "win", "loss"]
    assert lines[1].p == pytest.approx(3 * lines[1].effect.p)
