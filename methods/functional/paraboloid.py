"""Truncated paraboloids (continuous sparsemax): densities and expectations of Gaussian RBFs in one and two dimensions.

A density with mean mu and variance Var has the support matrix S = (D + 4) Var: it lives on the ellipse
(t - mu)^T S^-1 (t - mu) <= 1 and is h (1 - |u|^2)_+ there. Everything is written in S, never in the thesis' Sigma or
theta, which would have to be inverted.

In two dimensions the ellipse is cut into chords along the first axis. On a chord the integral has a closed form, and
across chords the midpoint rule in the angle converges spectrally: the integrand is even, periodic and analytic.
"""

# Not every function of torch says what it returns.
# pyright: reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from methods.functional.gaussian import symmetric, wide_dtype

# Smallest squared half-axis kept: a singular covariance stays finite, a real one (eps = 1e-6) is never touched.
FLOOR = 6e-12
# Below this half-width (in RBF deviations) differences of erf lose digits like eps / kappa^3: a series takes over.
SHORT = 0.2
SERIES_TERMS = 12
ROOT_2PI = math.sqrt(2 * math.pi)


def _normal(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x * x) / ROOT_2PI


def _long_slice(kappa: Tensor, delta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    plus, minus = _normal(kappa + delta), _normal(kappa - delta)
    root = 1 / math.sqrt(2)
    m0 = 0.5 * (torch.erf((kappa - delta) * root) + torch.erf((kappa + delta) * root))
    m1 = delta * m0 + plus - minus
    m2 = (1 + delta * delta) * m0 - (kappa - delta) * plus - (kappa + delta) * minus
    square = kappa.square().reciprocal()
    second = m2 * square
    return m0 - second, m1 * square, 3 * second - m0


def _short_slice(kappa: Tensor, delta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # n(z - delta) = n(delta) sum_m He_m(delta) z^m / m!, integrated term by term over [-kappa, kappa].
    previous, term = torch.zeros_like(delta), torch.ones_like(delta)
    bump, tilt, growth = torch.zeros_like(delta), torch.zeros_like(delta), torch.zeros_like(delta)
    step, square = kappa * delta, kappa.square()
    for m in range(SERIES_TERMS):
        if m % 2:
            tilt.add_(term, alpha=2 / (m + 2))
        else:
            bump.add_(term, alpha=4 / ((m + 1) * (m + 3)))
            growth.add_(term, alpha=4 * m / ((m + 1) * (m + 3)))
        previous, term = term, (step * term).addcmul_(square, previous, value=-1).mul_(1 / (m + 1))
    height = _normal(delta)
    scaled = kappa * height
    return bump.mul_(scaled), tilt.mul_(height), growth.mul_(scaled)


def slice_integrals(kappa: Tensor, delta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Integrals of a parabola on [-kappa, kappa] against a unit normal at delta, stable for every kappa > 0.

    Returns:
        `K` = int (1 - z^2/kappa^2) n(z - delta) dz, `-dK/ddelta / 2` and `kappa dK/dkappa - K`: the last two are what
        the gradients need, already divided by the powers of kappa that would blow them up.
    """
    delta = delta.expand(torch.broadcast_shapes(kappa.shape, delta.shape))
    short = kappa < SHORT
    pairs = zip(_short_slice(kappa, delta), _long_slice(kappa, delta), strict=True)
    first, second, third = (torch.where(short, a, b) for a, b in pairs)
    return first, second, third


class _Interval(torch.autograd.Function):
    """D = 1, in closed form: r = h K(a / s_j, (mu_j - mu) / s_j) with h = 3 / (4 a)."""

    @staticmethod
    def forward(ctx: Any, mu: Tensor, var: Tensor, centers: Tensor, deviations: Tensor) -> Tensor:
        a = (5 * var).clamp_min(FLOOR).sqrt()
        value, slope, growth = slice_integrals(a / deviations, (centers - mu) / deviations)
        height = 0.75 / a
        ctx.save_for_backward(height * slope * 2 / deviations, height * growth / a, a, 5 * var > FLOOR)
        return height * value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        by_mu, by_a, a, free = ctx.saved_tensors
        grad_var = (grads[0] * by_a).sum(-1, keepdim=True) * 2.5 / a * free
        return (grads[0] * by_mu).sum(-1, keepdim=True), grad_var, None, None


def _support_factor(cov: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Lower Cholesky factor (l11, l21, l22) of S = 6 cov, each `[B]`."""
    s = 6 * cov
    l11 = s[:, 0, 0].clamp_min(FLOOR).sqrt()
    l21 = s[:, 0, 1] / l11
    return l11, l21, (s[:, 1, 1] - l21 * l21).clamp_min(FLOOR).sqrt()


def _support_factor_backward(cov: Tensor, factor: tuple[Tensor, ...], grads: tuple[Tensor, ...]) -> Tensor:
    """Gradient with respect to cov from gradients with respect to (l11, l21, l22)."""
    (l11, l21, l22), (g11, g21, g22) = factor, grads
    g22 = torch.where(6 * cov[:, 1, 1] - l21 * l21 > FLOOR, g22 / l22, 0)
    g21 = g21 - g22 * l21
    g11 = torch.where(6 * cov[:, 0, 0] > FLOOR, g11 - g21 * l21 / l11, 0)
    off = 3 * g21 / l11  # half of 6 g21 / l11: the other half goes to the mirrored entry
    return torch.stack([3 * g11 / l11, off, off, 3 * g22], dim=-1).unflatten(-1, (2, 2))


def _chords(nodes: int, like: Tensor) -> tuple[Tensor, Tensor]:
    angle = (torch.arange(nodes, dtype=like.dtype, device=like.device) + 0.5) * (math.pi / nodes)
    return angle.cos(), angle.sin()


class _ChordGrid(torch.autograd.Function):
    """Chord rule on a tensor grid of RBFs: slice integrals depend on (chord, y), Gaussians on (chord, x) alone."""

    @staticmethod
    def forward(
        ctx: Any, mu: Tensor, cov: Tensor, axis_x: Tensor, axis_y: Tensor, var: tuple[float, float], nodes: int
    ) -> Tensor:
        factor = _support_factor(cov)
        l11, l21, l22 = (x.unsqueeze(-1) for x in factor)
        cos, sin = _chords(nodes, mu)
        dx = axis_x - (mu[:, :1] + l11 * cos).unsqueeze(-1)  # [B, n, Nx]
        across = torch.exp(dx.square() * (-0.5 / var[0])) / math.sqrt(2 * math.pi * var[0])
        scale = math.sqrt(var[1])
        delta = (axis_y - (mu[:, 1:] + l21 * cos).unsqueeze(-1)) / scale  # [B, n, Ny]
        value, slope, growth = slice_integrals((l22 * sin / scale).unsqueeze(-1), delta)
        coefficient = (2 * sin**3 / (nodes * l22)).unsqueeze(-1)
        along = coefficient * value
        ctx.save_for_backward(cov, *factor, dx, across, along, coefficient * slope, coefficient * growth, cos)
        ctx.var = var
        return (across.transpose(1, 2) @ along).flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        cov, l11, l21, l22, dx, across, along, slope, growth, cos = ctx.saved_tensors
        grad = grads[0].unflatten(1, (dx.shape[-1], along.shape[-1]))
        on_across, on_along = along @ grad.transpose(1, 2), across @ grad
        by_position = (on_across * across * dx).sum(-1) / ctx.var[0]  # d/dt1, [B, n]
        by_centre = (on_along * slope).sum(-1) * (2 / math.sqrt(ctx.var[1]))
        by_width = (on_along * growth).sum((-1, -2)) / l22
        grad_mu = torch.stack([by_position.sum(-1), by_centre.sum(-1)], dim=-1)
        by_factor = (by_position @ cos, by_centre @ cos, by_width)
        return grad_mu, _support_factor_backward(cov, (l11, l21, l22), by_factor), None, None, None, None


class _ChordGeneral(torch.autograd.Function):
    """Chord rule for scattered RBFs with full covariances: marginal of t1, conditional of t2 given t1."""

    @staticmethod
    def forward(ctx: Any, mu: Tensor, cov: Tensor, centers: Tensor, covs: Tensor, nodes: int) -> Tensor:
        factor = _support_factor(cov)
        l11, l21, l22 = (x.unsqueeze(-1) for x in factor)
        cos, sin = _chords(nodes, mu)
        marginal = covs[:, 0, 0].unsqueeze(-1)  # [N, 1], as are the next two
        slant = covs[:, 0, 1].unsqueeze(-1) / marginal
        scale = (covs[:, 1, 1].unsqueeze(-1) - slant * covs[:, 0, 1].unsqueeze(-1)).sqrt()
        dx = centers[:, :1] - (mu[:, :1] + l11 * cos).unsqueeze(1)  # [B, N, n]
        delta = (centers[:, 1:] - slant * dx - (mu[:, 1:] + l21 * cos).unsqueeze(1)) / scale
        value, slope, growth = slice_integrals((l22 * sin).unsqueeze(1) / scale, delta)
        weight = (2 * sin**3 / (nodes * l22)).unsqueeze(1) * torch.exp(-0.5 * dx * dx / marginal)
        weight = weight / (2 * math.pi * marginal).sqrt()
        by_centre = weight * slope * 2 / scale
        by_position = weight * value * dx / marginal - by_centre * slant
        ctx.save_for_backward(cov, *factor, by_position, by_centre, (weight * growth).sum(-1), cos)
        return (weight * value).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        cov, l11, l21, l22, by_position, by_centre, by_width, cos = ctx.saved_tensors
        position, centre = (torch.einsum("bj,bjk->bk", grads[0], x) for x in (by_position, by_centre))
        grad_mu = torch.stack([position.sum(-1), centre.sum(-1)], dim=-1)
        by_factor = (position @ cos, centre @ cos, (grads[0] * by_width).sum(-1) / l22)
        return grad_mu, _support_factor_backward(cov, (l11, l21, l22), by_factor), None, None, None


def _widen(mu: Tensor, cov: Tensor, *rbfs: Tensor) -> tuple[Tensor, Tensor]:
    if any(x.requires_grad for x in rbfs):
        raise ValueError("Expected RBF centres and covariances to be constants, but one of them requires a gradient.")
    dim, wide = mu.shape[-1], wide_dtype(mu)
    return mu.reshape(-1, dim).to(wide), symmetric(cov.reshape(-1, dim, dim).to(wide))


def paraboloid_expectation(mu: Tensor, cov: Tensor, centers: Tensor, covs: Tensor, nodes: int = 64) -> Tensor:
    """Continuous sparsemax: the expectation `[..., N]` of Gaussian RBFs under a truncated paraboloid, D = 1 or 2.

    `cov` is the variance of the density, not the thesis' Sigma. In two dimensions 64 chords (`nodes`) are exact to
    1e-6; take 160 when thin diagonal supports matter.
    """
    m, c = _widen(mu, cov, centers, covs)
    t, s = centers.to(m.dtype), covs.to(m.dtype)
    if mu.shape[-1] == 1:
        r = _Interval.apply(m, c[:, 0], t[:, 0], s[:, 0, 0].sqrt())
    elif mu.shape[-1] == 2:
        r = _ChordGeneral.apply(m, c, t, symmetric(s), nodes)
    else:
        raise ValueError(f"Expected `mu` to have 1 or 2 coordinates, but got {mu.shape[-1]}.")
    return r.to(mu.dtype).reshape(*mu.shape[:-1], len(centers))  # type: ignore[union-attr]


def grid_paraboloid_expectation(
    mu: Tensor, cov: Tensor, axis_x: Tensor, axis_y: Tensor, var: float | tuple[float, float], nodes: int = 64
) -> Tensor:
    """`paraboloid_expectation` on a tensor grid of axis-aligned RBFs: one batched product, erf calls per axis only.

    RBF centres have the coordinates `axis_x [Nx]` and `axis_y [Ny]`, `var` is their variance, one for both axes or
    (x, y); the result is `[..., Nx * Ny]`, row-major.
    """
    m, c = _widen(mu, cov, axis_x, axis_y)
    pair = (float(var[0]), float(var[1])) if isinstance(var, (tuple, list)) else (float(var), float(var))
    r = _ChordGrid.apply(m, c, axis_x.to(m.dtype), axis_y.to(m.dtype), pair, nodes)
    return r.to(mu.dtype).reshape(*mu.shape[:-1], len(axis_x) * len(axis_y))  # type: ignore[union-attr]


def paraboloid_density(points: Tensor, mu: Tensor, cov: Tensor) -> Tensor:
    """The truncated paraboloid at the points, `[..., L]`; exactly 0 off its support."""
    dim = mu.shape[-1]
    root = torch.linalg.cholesky((dim + 4) * cov)
    u = torch.linalg.solve_triangular(root, (points - mu.unsqueeze(-2)).transpose(-1, -2), upper=False)
    unit_ball = math.pi ** (dim / 2) / math.gamma(dim / 2 + 1)
    volume = unit_ball * root.diagonal(dim1=-2, dim2=-1).prod(-1, keepdim=True)
    return (dim + 2) / (2 * volume) * (1 - u.square().sum(-2)).clamp_min(0)


def support_ellipse(mu: Tensor, cov: Tensor, steps: int = 100) -> Tensor:
    """The boundary t = mu + R (cos, sin), R R^T = 6 cov, of a two-dimensional support: `[..., steps, 2]`."""
    angle = torch.linspace(0, 2 * math.pi, steps, dtype=mu.dtype, device=mu.device)
    circle = torch.stack([angle.cos(), angle.sin()], dim=-1)
    return mu.unsqueeze(-2) + circle @ torch.linalg.cholesky(6 * cov).transpose(-1, -2)
