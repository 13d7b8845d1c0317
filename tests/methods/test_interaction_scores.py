"""What theory says of each fusion, on the interaction tasks whose best possible score is known.

The claims go no further than the data: a concatenation with a hidden layer solves these tasks too, and a test says so.
"""

from functools import cache
from typing import Any

import pytest
import torch

from benchmark.seeds import seed_all
from benchmark.trainer import fit
from datamodules.base import Batches
from datamodules.interactions import Interaction
from datamodules.registry import datasets
from methods import Recipe, methods

pytestmark = pytest.mark.slow

RECIPE = Recipe(width=32, epochs=12, batch_size=250, lr=4e-3, patience=5)
CHANCE = 0.5


@cache
def data(name: str) -> Interaction:
    return datasets.get(f"interactions_{name}")()


def accuracy(dataset: str, name: str, fresh: int = 0, **options: Any) -> tuple[float, float]:
    """Accuracy on the test split, or on so many fresh rows, after training; and the best possible one."""
    torch.set_num_threads(1)
    datamodule = data(dataset)
    task = datamodule.task
    seed_all(task.name, 0, "scores")
    method = methods.get(name)(task, RECIPE, **options)
    fit(method, datamodule, seed=0)
    method.eval()
    with torch.no_grad():
        split = datamodule.draw(3, fresh) if fresh else datamodule.splits["test"]
        batches = list(Batches(split, task.names, 2000))
        predicted = torch.cat([task.goal.prediction(method(b.inputs, b.present)) for b in batches])
    assert task.bayes is not None
    return task.goal.evaluate(predicted, torch.cat([b.target for b in batches]))[task.metric], task.bayes


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("multiplicative", {}),
        ("multiplicative", {"kind": "bilinear"}),
        ("polynomial", {}),
        ("polynomial", {"order": 3}),
        ("tensor", {}),
        ("low_rank", {}),
        ("compact_bilinear", {}),
        ("concat", {}),
    ],
    ids=str,
)
def test_products_solve_xor(name: str, options: dict[str, Any]):
    score, bayes = accuracy("xor", name, **options)
    assert bayes - 0.01 < score


def test_additive_fusion_knows_nothing_of_xor():
    score, _ = accuracy("xor", "additive")
    assert score == pytest.approx(CHANCE, abs=0.03)


def test_pairs_know_nothing_of_parity():
    score, _ = accuracy("parity3", "polynomial", order=2)
    assert score == pytest.approx(CHANCE, abs=0.03)


def test_without_its_trimodal_block_neither_does_the_tensor():
    score, _ = accuracy("parity3", "tensor", orders=(0, 1, 2))
    assert score == pytest.approx(CHANCE, abs=0.03)


@pytest.mark.parametrize(
    ("name", "options"),
    [("tensor", {}), ("low_rank", {}), ("polynomial", {"order": 3}), ("concat", {})],
    ids=str,
)
def test_order_three_solves_parity(name: str, options: dict[str, Any]):
    score, bayes = accuracy("parity3", name, **options)
    assert bayes - 0.02 < score


def test_gates_solve_xor_and_a_softmax_of_two_does_not():
    score, bayes = accuracy("xor", "gated")
    assert bayes - 0.02 < score
    score, _ = accuracy("xor", "gated", normalisation="softmax")
    assert score < 0.75


GATES = [{}, {"granularity": "vector"}, {"attention": "hard"}, {"normalisation": "softmax"}]


@pytest.mark.parametrize("options", GATES, ids=str)
def test_gates_solve_the_multiplexer(options: dict[str, Any]):
    score, bayes = accuracy("mux", "gated", **options)
    assert bayes - 0.02 < score


def test_additive_fusion_does_not():
    score, bayes = accuracy("mux", "additive")
    assert score < bayes - 0.1


@pytest.mark.parametrize("name", ["additive", "late", "concat"])
def test_sums_of_evidence_solve_enhancement(name: str):
    """On 200,000 fresh rows: the 10,000 test rows have a standard error of .003, the claim one of .005."""
    score, bayes = accuracy("enhancement", name, fresh=200_000)
    assert bayes - 0.005 < score
