"""The regression with a product term."""

import numpy as np
import pytest
from scipy import stats

from leaderboard.interactions import interaction_regression


def test_equals_scipy_where_scipy_has_it() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 40))
    y = 1 + 2 * a - b + 0.5 * a * b + rng.standard_normal(40)
    found = interaction_regression(a, b, y)
    design = np.stack([np.ones(40), a, b, a * b], axis=1)
    assert found["w"] == pytest.approx(np.linalg.lstsq(design, y, rcond=None)[0])
    # The partial regression of y on the product alone is a simple regression, which scipy does.
    rest = design[:, :3]
    clean = [v - rest @ np.linalg.lstsq(rest, v, rcond=None)[0] for v in (a * b, y)]
    line = stats.linregress(*clean)
    assert found["w"][3] == pytest.approx(line.slope)
    assert found["se"][3] == pytest.approx(line.stderr * np.sqrt(38 / 36))


def test_coverage() -> None:
    rng = np.random.default_rng(1)
    hits = []
    for _ in range(600):
        a, b = rng.standard_normal((2, 25))
        found = interaction_regression(a, b, 0.7 * a * b + rng.standard_normal(25))
        hits.append(found["ci_low"][3] <= 0.7 <= found["ci_high"][3])
    assert np.mean(hits) == pytest.approx(0.95, abs=0.03)


def test_centring_leaves_the_interaction_alone() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 30)) + 3
    y = a * b + rng.standard_normal(30)
    raw, centred = interaction_regression(a, b, y), interaction_regression(a - a.mean(), b - b.mean(), y)
    assert raw["w"][3] == pytest.approx(centred["w"][3]) and raw["p"][3] == pytest.approx(centred["p"][3])
    assert raw["w"][1] != pytest.approx(centred["w"][1])


def test_what_cannot_be_estimated_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 4 rows"):
        interaction_regression([1, 2], [3, 4], [5, 6])
    with pytest.raises(ValueError, match="constant"):
        interaction_regression(np.ones(9), np.arange(9.0), np.arange(9.0))
