"""The interaction tasks against their closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from datamodules import datasets
from datamodules.interactions import Interaction, bayes_accuracy, modulation_r2

KINDS = [n for n in datasets.names() if n.startswith("interactions_")]


def optimal(kind: str, mu: tuple[float, ...], t: np.ndarray) -> np.ndarray:
    """Bayes' decision from the signals themselves, written from the definitions."""
    match kind:
        case "equivalence":
            return (t[:, 0] > 0).astype(int)
        case "enhancement":
            return ((t * mu).sum(axis=1) > 0).astype(int)
        case "independence":
            return ((t > 0) * 2 ** np.arange(t.shape[1])).sum(axis=1)
        case "mux":
            return (np.where(t[:, 2] > 0, t[:, 0], t[:, 1]) > 0).astype(int)
    return (np.prod(np.tanh(t * mu), axis=1) > 0).astype(int)


def test_all_seven_are_there() -> None:
    assert len(KINDS) == 7


@pytest.mark.parametrize("name", [k for k in KINDS if k != "interactions_modulation"])
def test_bayes_accuracy_is_what_the_bayes_rule_gets(name: str) -> None:
    datamodule = datasets.get(name)(rows=200_000)
    assert isinstance(datamodule, Interaction)
    signal, label = datamodule.signals(np.random.default_rng(0), 200_000)
    measured = (optimal(datamodule.kind, datamodule.mu, signal) == label).mean()
    bayes = datamodule.task.bayes
    assert bayes is not None
    assert abs(measured - bayes) < 3.5 * math.sqrt(bayes * (1 - bayes) / 200_000)


def test_modulation_r2() -> None:
    datamodule = datasets.get("interactions_modulation")()
    signal, y = datamodule.signals(np.random.default_rng(0), 400_000)
    best = signal[:, 0] * (1 + datamodule.kappa * np.tanh(datamodule.mu[1] * signal[:, 1]))
    r2 = 1 - ((y - best) ** 2).mean() / y.var()
    assert abs(r2 - modulation_r2(datamodule.kappa, datamodule.sigma, datamodule.mu[1])) < 0.004


def test_label_noise() -> None:
    clean, noisy = bayes_accuracy("xor", (1.5, 1.5)), bayes_accuracy("xor", (1.5, 1.5), label_noise=0.1)
    assert noisy == pytest.approx(clean * 0.9 + (1 - clean) * 0.1)
    four = bayes_accuracy("independence", (1.0, 0.7), label_noise=0.3)
    p = stats.norm.cdf(1.0) * stats.norm.cdf(0.7)
    assert four == pytest.approx(p * 0.7 + (1 - p) * 0.1)


def test_the_signal_is_in_the_inputs_and_rotated() -> None:
    split = datasets.get("interactions_enhancement")(rows=5000).splits["train"]
    x, y = split.inputs["a"], split.target.float()
    assert isinstance(x, torch.Tensor)
    direction = torch.linalg.lstsq(x, (y - y.mean())[:, None]).solution[:, 0]
    assert (direction.abs() > 0.02).sum() >= 3, "the signal must not sit on one axis"
    accuracy = ((x @ direction > 0) == (y > 0.5)).float().mean()
    assert abs(float(accuracy) - stats.norm.cdf(1.0)) < 0.02


@pytest.mark.parametrize(("kind", "mu"), [("xor", (1.0,)), ("mux", (1, 2, 3)), ("nothing", (1.0,))])
def test_wrong_arguments_are_errors(kind: str, mu: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="must"):
        bayes_accuracy(kind, mu)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"rows": 99}, "`rows` must be an integer >= 100"), ({"label_noise": 0.5}, "must be a number >= 0 and < 0.5"),
     ({"dims": 0}, "`dims` must be an integer >= 1")],
)  # fmt: skip
def test_options_are_checked(options: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        datasets.get("interactions_xor")(**options)
