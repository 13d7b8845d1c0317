"""AUROC and average precision of stored scores: the library's values, drawn rows, and what each row adds."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from datamodules.spec import Modality, Task
from leaderboard import scores

REFERENCE = {"auroc": roc_auc_score, "average_precision": average_precision_score}
PAIR = (Modality("a", "vector", (4,)), Modality("b", "vector", (4,)))


def rows(seed: int, ties: bool, number: int = 60) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    target = draw.integers(0, 2, number)
    pred = 1 / (1 + np.exp(-draw.normal(target - 0.5, 1)))
    return target, np.round(pred, 1) if ties else pred


@pytest.mark.parametrize("metric", REFERENCE)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_scikit_learn(metric: str, ties: bool, seed: int) -> None:
    target, pred = rows(seed, ties)
    both = np.stack([pred, 1 - pred])
    expected = [REFERENCE[metric](target, one) for one in both]
    assert scores.score(metric, target, both) == pytest.approx(expected)
    drawn = np.random.default_rng(9).multinomial(60, np.full(60, 1 / 60), size=4)
    found = scores.score(metric, target, both, drawn)
    assert found.shape == (4, 2)
    for i, times in enumerate(drawn):
        chosen = np.repeat(np.arange(60), times)
        assert found[i] == pytest.approx([REFERENCE[metric](target[chosen], one[chosen]) for one in both])


@pytest.mark.parametrize("metric", REFERENCE)
@pytest.mark.parametrize("ties", [False, True])
def test_what_a_row_adds_is_the_slope_by_its_weight(metric: str, ties: bool) -> None:
    target, pred = rows(0, ties)
    added = scores.contributions(metric, target, pred[None])[0]
    assert added.mean() == pytest.approx(float(scores.score(metric, target, pred)))
    for row in range(60):
        ends = []
        for step in (1e-5, -1e-5):
            weights = np.ones(60)
            weights[row] += step
            ends.append(float(REFERENCE[metric](target, pred, sample_weight=weights)))
        slope = 60 * (ends[0] - ends[1]) / 2e-5
        assert added[row] - added.mean() == pytest.approx(slope, abs=1e-4)


def test_a_broken_row_ranks_last_and_a_constant_knows_nothing() -> None:
    target = np.array([1, 0, 0, 1])
    assert float(scores.score("auroc", target, np.array([np.nan, 0.1, 0.2, 0.9]))) == pytest.approx(0.5)
    assert float(scores.score("auroc", target, np.full(4, 0.3))) == pytest.approx(0.5)
    assert float(scores.score("average_precision", target, np.full(4, 0.3))) == pytest.approx(0.5)


@pytest.mark.parametrize("metric", REFERENCE)
def test_a_task_that_ranks_keeps_probabilities_and_others_keep_classes(metric: str) -> None:
    logits = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    target = torch.arange(50) % 2

    out: Any = SimpleNamespace(z=logits, fused=logits, logits=logits)
    ranked = Task("t", "1", PAIR, "multiclass", 2, metric=metric).goal
    kept = ranked.prediction(out)
    torch.testing.assert_close(kept, logits.softmax(dim=1)[:, 1])
    found = ranked.scores(kept, target)
    assert found[metric] == pytest.approx(REFERENCE[metric](target, kept), abs=1e-6)
    assert found[metric] == pytest.approx(float(scores.score(metric, target.numpy(), kept.numpy())), abs=1e-6)
    plain = Task("t", "1", PAIR, "multiclass", 2).goal
    classes = plain.prediction(out)
    assert torch.equal(classes, logits.argmax(dim=1))
    assert {name: found[name] for name in ("accuracy", "balanced_accuracy", "macro_f1", "f1")} == plain.scores(
        classes, target
    )
    assert ranked.trivial(target, target) == pytest.approx(0.5)
