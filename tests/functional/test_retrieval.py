"""Recall@K against a loop that sorts, and the cases where a metric lies: self, ties, no positive, not a number."""

import math

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from torch import Tensor

from methods.functional.retrieval import first_positive_rank, recall_at_k, without_positive


def rows(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(5, (count,), generator=generator)
    x = torch.randn(count, 6, generator=generator) + 0.7 * F.one_hot(y, 6)
    return x, y


def loop(queries, gallery, query_labels, gallery_labels, k, exclude_self) -> list[bool | None]:
    hits = []
    for i in range(len(queries)):
        candidates = [j for j in range(len(gallery)) if not (exclude_self and i == j)]
        cosine = {j: F.cosine_similarity(queries[i], gallery[j], dim=0).item() for j in candidates}
        nearest = sorted(candidates, key=lambda j: -cosine[j])[:k]
        answerable = any(gallery_labels[j] == query_labels[i] for j in candidates)
        hits.append(any(gallery_labels[j] == query_labels[i] for j in nearest) if answerable else None)
    return hits


@pytest.mark.parametrize("exclude_self", [True, False])
def test_against_a_loop(exclude_self):
    x, y = rows(40)
    queries, query_labels = (x, y) if exclude_self else rows(23, seed=1)
    got = recall_at_k(queries, x, query_labels, y, (1, 2, 4, 8), exclude_self)
    for k, value in got.items():
        hits = loop(queries, x, query_labels, y, k, exclude_self)
        assert value == pytest.approx(sum(map(bool, hits)) / len(hits))
    assert 0 < got[1] < got[8] < 1.0001


def test_agrees_with_the_library_at_one():
    x, y = rows(60)
    calculator = AccuracyCalculator(include=("precision_at_1",), k=1, knn_func=CustomKNN(CosineSimilarity()))
    expected = calculator.get_accuracy(x, y)["precision_at_1"]
    assert recall_at_k(x, x, y, y, (1,), True)[1] == pytest.approx(expected)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_chunks_do_not_change_ranks(chunk):
    x, y = rows(40)
    assert first_positive_rank(x, x, y, y, True, chunk).equal(first_positive_rank(x, x, y, y, True))


def test_self_is_excluded_by_index_and_duplicates_stay():
    x = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0.1, 1]])
    y = torch.tensor([0, 0, 1, 2])
    assert first_positive_rank(x, x, y, y, True).tolist() == [0, 0, -1, -1]  # the duplicate answers
    assert first_positive_rank(x, x, y, y, False).tolist() == [0] * 4  # every row finds itself


def test_queries_without_a_positive_are_dropped_and_counted():
    x = torch.tensor([[1.0, 0], [1, 0.1], [0, 1], [0.1, 1]])
    y = torch.tensor([0, 0, 1, 2])
    assert without_positive(y, y, True).tolist() == [False, False, True, True]
    assert recall_at_k(x, x, y, y, (1,), True) == {1: 1.0}
    assert first_positive_rank(x, x, y, y, True).tolist() == [0, 0, -1, -1]
    assert without_positive(torch.tensor([0, 9]), y, False).tolist() == [False, True]
    assert math.isnan(recall_at_k(x[2:], x[2:], y[2:], y[2:], (1,), True)[1])


def test_ties_and_not_a_number_count_against_the_query():
    y = torch.tensor([0, 0, 1, 1])
    for x in (torch.ones(4, 3), torch.zeros(4, 3), torch.full((4, 3), torch.nan)):
        assert recall_at_k(x, x, y, y, (1, 2, 3), True) == {1: 0.0, 2: 0.0, 3: 1.0}


def test_only_direction_matters():
    x, y = rows(40)
    longer = x * torch.arange(1, 41)[:, None]
    assert first_positive_rank(longer, x, y, y, True).equal(first_positive_rank(x, x, y, y, True))


def test_errors():
    x, y = rows(4)
    with pytest.raises(ValueError, match="one label per row"):
        first_positive_rank(x, x, y[:2], y, True)
    with pytest.raises(ValueError, match="exclude_self"):
        first_positive_rank(x[:2], x, y[:2], y, True)
    with pytest.raises(ValueError, match="`ks`"):
        recall_at_k(x, x, y, y, (0,), True)
