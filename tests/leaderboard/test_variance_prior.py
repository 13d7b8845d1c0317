"""The prior of variances over seeds, against its definition, simulation and its limits."""

import json
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import polygamma

from leaderboard.variance_prior import Prior, fit, inverse_trigamma


@given(st.floats(1e-6, 1e6))
def test_inverse_trigamma(x: float) -> None:
    assert inverse_trigamma(float(polygamma(1, x))) == pytest.approx(x, rel=1e-6)


def test_moments_of_the_logarithms_are_those_of_the_fitted_distribution() -> None:
    """`v / s_0^2` is F distributed: mean and variance of its logarithm by quadrature are those of the data."""
    v = np.random.default_rng(0).f(4, 3, size=15) * 0.01**2
    prior = fit(v.tolist(), [4.0] * 15)
    assert 0 < prior.freedom < math.inf
    fitted = scipy.stats.f(4, prior.freedom, scale=prior.variance)
    q = (np.arange(200_000) + 0.5) / 200_000
    logs = np.log(fitted.ppf(q))
    assert logs.mean() == pytest.approx(np.log(v).mean(), abs=1e-4)
    assert logs.var() == pytest.approx(np.log(v).var(ddof=1), rel=1e-3)


@pytest.mark.parametrize("freedom", [1, 4])
@pytest.mark.parametrize("d0", [3.0, 20.0])
def test_recovers_what_was_planted(freedom: int, d0: float) -> None:
    rng = np.random.default_rng(1)
    true = 0.01**2 * d0 / rng.chisquare(d0, 40_000)
    seen = true * rng.chisquare(freedom, 40_000) / freedom
    prior = fit(seen.tolist(), [freedom] * 40_000)
    assert 1 / prior.freedom == pytest.approx(1 / d0, abs=0.03)  # what counts: 20 and 50 are much the same
    assert prior.variance == pytest.approx(0.01**2, rel=0.05)


def test_rounding_is_not_read_as_spread() -> None:
    """Two seeds of 4,000 methods that are alike, scores in steps of a third of their standard deviation."""
    scores = np.random.default_rng(4).normal(0, 3, (4000, 2)).round()
    v = scores.var(axis=1, ddof=1)
    assert (v == 0).mean() > 0.05
    assert fit(v.tolist(), [1.0] * 4000).freedom > 20
    assert fit(np.maximum(v, 1e-9).tolist(), [1.0] * 4000).freedom == fit(v.tolist(), [1.0] * 4000).freedom


def test_shrinking_beats_each_variance_alone() -> None:
    rng = np.random.default_rng(2)
    true = 0.01**2 * 6 / rng.chisquare(6, 30)
    seen = true * rng.chisquare(2, 30) / 2
    prior = fit(seen.tolist(), [2.0] * 30)
    shrunk = np.array([prior.posterior(v, 2)[0] for v in seen])
    assert np.abs(np.log(shrunk / true)).mean() < 0.7 * np.abs(np.log(seen / true)).mean()


def test_posterior_by_hand() -> None:
    prior = Prior(4.0, 6.0, 100.0)
    assert prior.posterior(1.0, 2) == (pytest.approx((6 * 4 + 2 * 1) / 8), 8)
    assert prior.posterior(math.nan, 0) == (4.0, 6.0)  # one seed: what is usual
    assert Prior(4.0, 6.0, 5.0).posterior(1.0, 2)[1] == 5  # never more than all together know
    assert Prior(4.0, math.inf, 24.0).posterior(1.0, 2) == (4.0, 24.0)
    assert Prior(0.0, 0.0, 0.0).posterior(math.nan, 0) == (math.inf, 0.0)
    assert Prior(0.0, 0.0, 0.0).posterior(3.0, 2) == (3.0, 2)


def test_few_methods_and_no_spread() -> None:
    assert fit([], []) == Prior(0.0, 0.0, 0.0)
    assert fit([math.nan, math.nan], [0, 0]) == Prior(0.0, 0.0, 0.0)
    assert fit([2.0, math.nan], [3, 0]) == Prior(2.0, 0.0, 3.0)  # a plain t for who is alone
    alike = fit([1.0, 1.1, 0.9], [1, 2, 5])
    assert alike.freedom == math.inf and alike.evidence == 8
    assert alike.variance == pytest.approx((1.0 + 2 * 1.1 + 5 * 0.9) / 8)
    assert fit([0.0, 0.0, 0.0], [2, 2, 2]) == Prior(0.0, math.inf, 6.0)
    for zeros in (1, 6, 11):  # seeds that agree by rounding
        prior = fit([0.0] * zeros + [1e-4] * (12 - zeros), [1.0] * 12)
        assert math.isfinite(prior.variance) and prior.variance > 0 and prior.freedom > 0


def test_goes_to_a_file_and_back() -> None:
    for prior in (Prior(1e-4, 3.5, 24.0), Prior(1e-4, math.inf, 24.0)):
        assert Prior.from_plain(json.loads(json.dumps(prior.to_plain(), allow_nan=False))) == prior
