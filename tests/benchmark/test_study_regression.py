"""`polymodal study regression`: against scikit-learn and scipy, planted interactions, and tables that are no good."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression

from benchmark.cli import main
from benchmark.errors import UsageError
from benchmark.studies import regression


def table(file: Path, product: float, rows: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(2, rows))
    y = 1 + 0.5 * a - 0.3 * b + product * a * b + 0.5 * draw.normal(size=rows)
    lines = [f"{u},{v},{u + 0.3 * draw.normal()},{t}" for u, v, t in zip(a, b, y, strict=True)]
    file.write_text("\n".join(["hb,crp,wbc,outcome", *lines, "x,1,2,3"]) + "\n")
    return a, b, y


def test_weights_intervals_and_p_values_are_those_of_the_libraries(tmp_path: Path) -> None:
    a, b, y = table(tmp_path / "t.csv", 0.2)
    fits, nested = regression.regressions(y, a, b)
    u, v = (a - a.mean()) / a.std(), (b - b.mean()) / b.std()
    model = LinearRegression().fit(np.column_stack([u, v, u * v]), y)
    h2 = fits["H2: a + b + a b"]
    assert [w.estimate for w in h2.weights] == pytest.approx([float(model.intercept_), *model.coef_])
    assert h2.r2 == pytest.approx(model.score(np.column_stack([u, v, u * v]), y))
    simple: Any = stats.linregress(u, y)
    one = fits["a"].weights[1]
    assert (one.estimate, one.p) == pytest.approx((simple.slope, simple.pvalue))
    assert one.high - one.estimate == pytest.approx(stats.t.ppf(0.975, len(y) - 2) * simple.stderr)
    # One further weight: the F test of the nested models is the t test of that weight.
    last = next(test for test in nested if test.model.startswith("H2"))
    assert (last.f, last.p) == pytest.approx((h2.weights[-1].t ** 2, h2.weights[-1].p))


@pytest.mark.parametrize(("product", "found"), [(0.4, True), (0.0, False)])
def test_a_planted_interaction_is_found_and_none_is_not(tmp_path: Path, capsys, product: float, found: bool) -> None:
    table(tmp_path / "t.csv", product)
    options = ["--target", "outcome", "--a", "hb", "--b", "crp", "--out", str(tmp_path / "out")]
    assert main(["study", "regression", str(tmp_path / "t.csv"), *options]) == 0
    shown = capsys.readouterr().out
    assert "300 rows" in shown and "1 rows without a number" in shown and "95 % interval" in shown
    content = json.loads((tmp_path / "out" / "regression.json").read_text())
    assert (content["nested"][-1]["p"] < 0.001) == found
    assert (tmp_path / "out" / "regression.png").stat().st_size > 5000


def test_several_columns_are_summarised_by_pca_or_cca(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    common = draw.normal(size=400)
    a = np.column_stack([common + 0.1 * draw.normal(size=400), *draw.normal(size=(2, 400))])
    b = np.column_stack([draw.normal(size=400), common + 0.1 * draw.normal(size=400)])
    a[:, 1] = 3 * a[:, 2]  # most of the variance of a standardised is in the pair that b does not know
    pca_a, _, said = regression.summarise(a, b, "pca")
    standard = (a - a.mean(axis=0)) / a.std(axis=0)
    expected = PCA(1).fit_transform(standard)[:, 0]
    assert abs(np.corrcoef(pca_a, expected)[0, 1]) == pytest.approx(1) and "principal" in said
    cca_a, cca_b, said = regression.summarise(a, b, "cca")
    assert abs(np.corrcoef(cca_a, common)[0, 1]) > 0.95 > abs(np.corrcoef(pca_a, common)[0, 1])
    assert abs(np.corrcoef(cca_a, cca_b)[0, 1]) > 0.95 and "canonical" in said


def test_what_is_wrong_with_a_table_is_said(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    table(file, 0.1)
    for a, b, message in (("hbb", "crp", "Did you mean 'hb'"), ("hb", "hb", "not in two"), ("outcome", "hb", "not in")):
        with pytest.raises(UsageError, match=message):
            regression.read_columns(file, "outcome", [a], [b])
    with pytest.raises(UsageError, match="constant"):
        regression.regressions(np.arange(9.0), np.ones(9), np.arange(9.0))
    with pytest.raises(UsageError, match="combination"):
        regression.regressions(np.arange(9.0) ** 2, np.arange(9.0), np.arange(9.0))
    with pytest.raises(UsageError, match="more than 3 rows"):
        regression.regressions(np.arange(3.0), np.array([1.0, 2, 4]), np.array([1.0, 5, 2]))
