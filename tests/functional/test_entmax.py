"""Densities of alpha-entmax against quadrature, against the truncated paraboloid and in the limit of a Gaussian."""

import math

import pytest
import torch
from scipy.integrate import dblquad, quad

from benchmark.studies import integration
from methods.functional.attention import gaussian_expectation, grid_paraboloid_expectation, rbf_axes, tensor_grid
from methods.functional.entmax import entmax_expectation, entmax_nodes

AXIS = rbf_axes((5,))
MU, VAR = torch.tensor([[0.4]], dtype=torch.float64), torch.tensor([[[0.02]]], dtype=torch.float64)
MU2 = torch.tensor([[0.4, 0.6]], dtype=torch.float64)
COV2 = torch.tensor([[[0.02, 0.008], [0.008, 0.01]]], dtype=torch.float64)


def normal(t: float, centre: float, var: float) -> float:
    return math.exp(-((t - centre) ** 2) / (2 * var)) / math.sqrt(2 * math.pi * var)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0, 3.0])
def test_one_dimension_against_quadrature(alpha: float) -> None:
    """p(t) = [(alpha - 1) (c - t^2 / (2 s^2))]_+^(1 / (alpha - 1)), normalised, with the variance asked for."""
    kappa = 1 / (alpha - 1)
    a = math.sqrt((3 + 2 * kappa) * 0.02)

    def p(t: float) -> float:
        return max(0.0, 1 - ((t - 0.4) / a) ** 2) ** kappa

    total = quad(p, 0.4 - a, 0.4 + a)[0]
    assert quad(lambda t: (t - 0.4) ** 2 * p(t), 0.4 - a, 0.4 + a)[0] / total == pytest.approx(0.02, rel=1e-6)
    found = entmax_expectation(MU, VAR, AXIS, (0.01,), alpha)[0]
    for r, centre in zip(found.tolist(), AXIS[0].tolist(), strict=True):
        exact = quad(lambda t, c=centre: p(t) * normal(t, c, 0.01), 0.4 - a, 0.4 + a)[0] / total
        assert r == pytest.approx(exact, abs=1e-7)


def test_two_dimensions_against_quadrature() -> None:
    kappa, root = 2.0, torch.linalg.cholesky(8 * COV2[0])
    found = entmax_expectation(MU2, COV2, rbf_axes((3, 3)), (0.02, 0.03), 1.5)[0]

    def integrand(v: float, u: float, centre: tuple[float, float]) -> float:
        t = MU2[0] + root @ torch.tensor([u, v], dtype=torch.float64)
        return (
            (1 - u * u - v * v) ** kappa * normal(float(t[0]), centre[0], 0.02) * normal(float(t[1]), centre[1], 0.03)
        )

    def edge(u: float) -> float:
        return math.sqrt(max(0.0, 1 - u * u))

    for j in (0, 4, 5):
        centre = tuple(tensor_grid(rbf_axes((3, 3)))[j].tolist())
        exact = dblquad(integrand, -1, 1, lambda u: -edge(u), edge, args=(centre,), epsabs=1e-7)[0]
        assert float(found[j]) == pytest.approx(exact * (kappa + 1) / math.pi, abs=1e-5)


def test_alpha_two_is_the_truncated_paraboloid_and_one_a_gaussian() -> None:
    axes = rbf_axes((6, 6))
    chord = grid_paraboloid_expectation(MU2, COV2, axes[0], axes[1], 0.01, 200)
    torch.testing.assert_close(entmax_expectation(MU2, COV2, axes, (0.01, 0.01), 2.0), chord, rtol=0, atol=1e-5)
    centers = tensor_grid(axes)
    covs = (0.01 * torch.eye(2, dtype=torch.float64)).expand(36, 2, 2)
    gauss = gaussian_expectation(MU2, COV2, centers, covs)
    near, far = (entmax_expectation(MU2, COV2, axes, (0.01, 0.01), alpha, 64) for alpha in (1.01, 1.5))
    assert (near - gauss).abs().max() < 0.1 * (far - gauss).abs().max()


def test_weights_sum_to_one_and_gradients_are_those_of_differences() -> None:
    for dim in (1, 2):
        points, weights = entmax_nodes(1.7, dim, 12)
        assert float(weights.sum()) == pytest.approx(1)
        assert (points.square().sum(dim=1) < 1).all()
    mu, cov = MU2.clone().requires_grad_(), COV2.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda m, c: entmax_expectation(m, (c + c.mT) / 2, rbf_axes((3, 3)), (0.02, 0.02), 1.5, 8), (mu, cov)
    )


@pytest.mark.parametrize("name", ["angular", "jacobi", "grid"])
def test_the_rules_of_the_study_agree(name: str) -> None:
    found = integration.errors(integration.RULES[name], 64, 0.01)
    assert all(found[density] < 2e-3 for density in ("a spot", "an object", "uniform"))


def test_the_repeated_angle_costs_what_the_study_says() -> None:
    once, twice = (integration.errors(integration.RULES[n], 64, 0.01)["an object"] for n in ("angular", "published"))
    assert once < 1e-8 and twice > 1e-3
    assert integration.errors(integration.RULES["chord"], 64, 0.01)["an object"] < 1e-8
