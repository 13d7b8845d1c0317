"""Fission: MMD, orthogonality and Sinkhorn against loops and known answers."""

import math

import pytest
import torch

from methods.functional.fission import mmd, orthogonality, sinkhorn


def sample(n: int, k: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_mmd_equals_loops() -> None:
    x, y = sample(5, 3), sample(7, 3, 1) + 0.5
    rows = [*x, *y]
    squared = sorted(float((a - b).square().sum()) for i, a in enumerate(rows) for b in rows[i + 1 :])
    median = squared[(len(squared) - 1) // 2]

    def mean_kernel(first: torch.Tensor, second: torch.Tensor) -> float:
        values = [
            math.exp(-float((a - b).square().sum()) / (2 * c * median))
            for a in first
            for b in second
            for c in (0.5, 1.0, 2.0, 4.0, 8.0)
        ]
        return sum(values) / len(values)

    expected = mean_kernel(x, x) + mean_kernel(y, y) - 2 * mean_kernel(x, y)
    assert float(mmd(x, y)) == pytest.approx(expected, abs=1e-12)


def test_mmd_is_zero_for_equal_samples_and_sees_mean_and_scale() -> None:
    x, y = sample(200, 4), sample(200, 4, 1)
    assert float(mmd(x, x)) == pytest.approx(0, abs=1e-12)
    same = float(mmd(x, y))
    assert same > 0
    assert float(mmd(x + 1, y)) > 5 * same
    assert float(mmd(3 * x, y)) > 5 * same


def test_mmd_gradient_is_finite_at_equal_rows() -> None:
    x = torch.zeros(4, 3, requires_grad=True)
    mmd(x, torch.zeros(4, 3)).backward()
    assert x.grad is not None and x.grad.isfinite().all()


def test_mmd_gradient_moves_a_sample_to_the_prior() -> None:
    x = (0.2 * sample(64, 2) + 2).requires_grad_()
    optimiser = torch.optim.Adam([x], lr=0.1)
    for _ in range(100):
        optimiser.zero_grad()
        mmd(x, sample(64, 2, 3)).backward()
        optimiser.step()
    assert x.mean().abs() < 0.3 and 0.6 < x.std() < 1.4


def test_orthogonality_is_the_sum_of_squared_correlations() -> None:
    a, b = sample(50, 3), sample(50, 2, 1) + 0.7 * sample(50, 3)[:, :2]
    expected = torch.corrcoef(torch.cat([a, b], dim=1).T)[:3, 3:].square().sum()
    assert float(orthogonality(5 * a + 3, b, eps=0.0)) == pytest.approx(float(expected), abs=1e-12)
    assert float(orthogonality(a[:, :1], -2 * a[:, :1])) == pytest.approx(1, abs=1e-5)


def test_orthogonality_of_a_constant_or_a_single_row_is_zero() -> None:
    a = sample(10, 3).requires_grad_()
    value = orthogonality(a, torch.ones(10, 2, dtype=torch.float64))
    value.backward()
    assert float(value.detach()) == 0 and a.grad is not None and a.grad.isfinite().all()
    few = a.detach()
    assert float(orthogonality(few[:1], few[:1])) == 0 and float(orthogonality(few[:0], few[:0])) == 0


def test_orthogonality_sees_linear_dependence_only() -> None:
    a = torch.linspace(-1, 1, 101, dtype=torch.float64).unsqueeze(1)
    assert float(orthogonality(a, a.square())) == pytest.approx(0, abs=1e-12)


def test_sinkhorn_rows_are_exact_and_clusters_balanced() -> None:
    scores = torch.nn.functional.normalize(sample(400, 8) + 0.5, dim=1) @ torch.eye(8, dtype=torch.float64)[:, :5]
    scores[:, 0] += 0.5  # without balancing nearly all would go to the first
    q = sinkhorn(scores, eps=0.05, iterations=50)
    assert torch.allclose(q.sum(dim=1), torch.ones(400, dtype=torch.float64), atol=1e-12)
    assert (q.sum(dim=0) / 80 - 1).abs().max() < 0.04
    assert (scores / 0.05).softmax(dim=1).sum(dim=0)[0] > 200


def test_sinkhorn_equals_the_plain_scaling_where_that_is_safe() -> None:
    scores = sample(12, 3)
    q = (scores / 0.5).exp()
    for _ in range(7):
        q = q / q.sum(dim=0, keepdim=True) * (12 / 3)
        q = q / q.sum(dim=1, keepdim=True)
    assert torch.allclose(sinkhorn(scores, eps=0.5, iterations=7), q, atol=1e-12)


def test_sinkhorn_does_not_overflow_and_takes_no_gradient() -> None:
    scores = (1e3 * sample(20, 4)).float().requires_grad_()
    q = sinkhorn(scores, eps=1e-2)
    assert q.isfinite().all() and not q.requires_grad
    assert sinkhorn(scores[:0]).shape == (0, 4)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="two samples"):
        mmd(sample(3, 2), sample(3, 4))
    with pytest.raises(ValueError, match="paired rows"):
        orthogonality(sample(3, 2), sample(4, 2))
