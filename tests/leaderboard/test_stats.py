"""Statistics against scipy, scikit-learn and cases worked by hand."""

import numpy as np
import pytest
import scipy.stats

from leaderboard import scores, stats


def test_estimate_is_the_t_interval_of_scipy() -> None:
    values = [0.71, 0.74, 0.69, 0.73, 0.75]
    got = stats.estimate(values)
    low, high = scipy.stats.t.interval(0.95, 4, loc=np.mean(values), scale=scipy.stats.sem(values))
    assert got.low == pytest.approx(low) and got.high == pytest.approx(high)
    assert got.values == tuple(values)


def test_estimate_of_two_seeds_by_hand() -> None:
    # t_{0.975, 1} = 12.7062; sd of (0, 1) is 1/sqrt(2), over sqrt(2) gives 0.5.
    assert stats.estimate([0.0, 1.0]).half == pytest.approx(12.7062 / 2, rel=1e-5)


def test_one_seed_has_no_interval() -> None:
    got = stats.estimate([0.5])
    assert got.mean == 0.5 and got.low is None and got.half is None


# --- scores -----------------------------------------------------------------------------------------------------------


def _case(metric: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    if metric in ("r2", "mse", "mae"):
        target = rng.normal(size=300)
        return target, target + rng.normal(size=300)
    if metric.startswith("recall"):
        return np.zeros(300, int), rng.integers(1, 9, 300)
    target = rng.integers(0, 2 if metric == "f1" else 4, 300)
    return target, np.where(rng.random(300) < 0.7, target, rng.integers(0, 2 if metric == "f1" else 4, 300))


METRICS = ("accuracy", "balanced_accuracy", "f1", "macro_f1", "micro_f1", "mae", "mse", "r2", "recall_at_2")


@pytest.mark.parametrize("metric", METRICS)
def test_multiplicity_is_repetition(metric: str) -> None:
    rng = np.random.default_rng(1)
    target, pred = _case(metric, rng)
    times = rng.multinomial(300, np.full(300, 1 / 300), size=3)
    got = scores.score(metric, target, pred, times)
    for i, row in enumerate(times):
        again = np.repeat(np.arange(300), row)
        assert got[i] == pytest.approx(float(scores.score(metric, target[again], pred[again])))


@pytest.mark.parametrize("metric", METRICS)
def test_contributions_average_to_the_score_and_predict_the_resample(metric: str) -> None:
    rng = np.random.default_rng(2)
    target, pred = _case(metric, rng)
    rows = scores.contributions(metric, target, pred)
    whole = float(scores.score(metric, target, pred))
    assert rows.mean() == pytest.approx(whole, abs=1e-9)
    times = rng.multinomial(300, np.full(300, 1 / 300), size=4000)
    exact = scores.score(metric, target, pred, times)
    first_order = times @ rows / 300
    assert first_order.std() == pytest.approx(exact.std(), rel=0.05)
    if metric in ("accuracy", "mae", "mse", "recall_at_2", "micro_f1"):
        np.testing.assert_allclose(first_order, exact, atol=1e-6)


def test_scores_agree_with_scikit_learn() -> None:
    sk = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the reference")
    rng = np.random.default_rng(3)
    target, pred = rng.integers(0, 5, 200), rng.integers(0, 5, 200)
    assert float(scores.score("accuracy", target, pred)) == pytest.approx(sk.accuracy_score(target, pred))
    assert float(scores.score("macro_f1", target, pred)) == pytest.approx(sk.f1_score(target, pred, average="macro"))
    assert float(scores.score("f1", target > 2, pred > 2)) == pytest.approx(sk.f1_score(target > 2, pred > 2))
    labels, guesses = rng.random((200, 3)) < 0.4, rng.random((200, 3)) < 0.4
    for metric in ("macro_f1", "micro_f1"):
        want = sk.f1_score(labels, guesses, average=metric.split("_")[0])
        assert float(scores.score(metric, labels, guesses)) == pytest.approx(want)
    assert float(scores.score("accuracy", labels, guesses)) == pytest.approx(sk.accuracy_score(labels, guesses))
    y, p = rng.normal(size=(200, 2)), rng.normal(size=(200, 2))
    assert float(scores.score("r2", y, p)) == pytest.approx(sk.r2_score(y, p))
    assert float(scores.score("r2", y[:, 0] + 100, p[:, :1])) == pytest.approx(sk.r2_score(y[:, 0] + 100, p[:, 0]))


def test_a_class_that_never_occurs_is_no_class() -> None:
    target, pred = np.array([0, 0, 2, 2]), np.array([0, 2, 2, 2])
    # F1 of class 0 is 2/3, of class 2 is 4/5; class 1 does not count.
    assert float(scores.score("macro_f1", target, pred)) == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert np.isfinite(scores.contributions("macro_f1", target, pred)).all()


def test_unanswerable_queries_are_no_queries() -> None:
    ranks = np.array([1, 3, -1, 2, -1])
    assert float(scores.score("recall_at_2", np.zeros(5), ranks)) == pytest.approx(2 / 3)
    directions = np.array([[1, 9], [2, 9], [9, 1]])
    assert float(scores.score("recall_at_1", np.zeros(3), directions)) == pytest.approx(2 / 6)
    assert scores.contributions("recall_at_2", np.zeros(5), ranks).mean() == pytest.approx(2 / 3)


def test_unknown_metric_is_named() -> None:
    with pytest.raises(ValueError, match="no metric named 'acuracy'"):
        scores.score("acuracy", np.zeros(3, int), np.zeros(3, int))
    assert not scores.supported("median_rank") and scores.supported("recall_at_10")


# --- Ranks and tests across datasets ----------------------------------------------------------------------------------


def test_borda_by_hand() -> None:
    points = np.array([[0.9, 0.8, 0.8, 0.1], [0.5, 0.7, 0.6, 0.1]])
    np.testing.assert_allclose(stats.borda(points), [(1 + 3) / 2, (2.5 + 1) / 2, (2.5 + 2) / 2, 4])


def test_holm_by_hand() -> None:
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))
    assert stats.holm([0.5, 0.9]) == pytest.approx((1.0, 1.0))


def test_datasets_needed_as_the_specification_says() -> None:
    assert stats.datasets_needed(12 * 11 // 2) == 12
    assert stats.datasets_needed(11) == 9
    assert stats.smallest_p(9) == scipy.stats.wilcoxon(np.arange(1.0, 10.0)).pvalue


def test_across_agrees_with_scipy() -> None:
    rng = np.random.default_rng(12)
    points = rng.normal(size=(10, 4)) + np.array([0, 0.1, 3, 6])
    got = stats.across(["a", "b", "c", "d"], points)
    assert got.kind == "pairs"
    assert got.friedman == pytest.approx(scipy.stats.friedmanchisquare(*points.T).pvalue)
    raw = [scipy.stats.wilcoxon(points[:, i], points[:, j]).pvalue for i in range(4) for j in range(i + 1, 4)]
    assert [p.p for p in got.pairs] == pytest.approx(stats.holm(raw))


def test_too_few_datasets_are_called_too_few() -> None:
    points = np.random.default_rng(13).normal(size=(9, 12))
    names = [f"m{i}" for i in range(12)]
    alone = stats.across(names, points)
    assert alone.kind == "none" and "not resolvable with 9 datasets" in alone.sentence
    assert stats.across(names, points, control="m3").kind == "control"
    fewer = stats.across(names, points[:8], control="m3")
    assert fewer.kind == "none" and "needs 9" in fewer.sentence and not fewer.pairs
