"""Gaussian attention densities: moments of discrete weights, and expectations of RBFs under a Gaussian.

Everywhere in the continuous attention, `mu [..., D]` and `cov [..., D, D]` are the moments of a density, `centers
[N, D]` and `covs [N, D, D]` those of the RBFs, and `points [L, D]` cell centres; what is returned has the dtype of the
attention. Equation numbers are those of Farinhas, *Visual Attention with Sparse and Continuous Transformations*.
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


def wide_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which densities are integrated: float64, except on devices that have none."""
    # Near one-hot attention the covariance is ~1e-6, where float32 differences lose every digit.
    return torch.float32 if x.device.type == "mps" else torch.float64


def symmetric(a: Tensor) -> Tensor:
    """The symmetric part of the matrices in the last two dimensions."""
    return 0.5 * (a + a.transpose(-1, -2))


def moments(points: Tensor, weights: Tensor, eps: float | Tensor = 1e-6) -> tuple[Tensor, Tensor]:
    """Mean and covariance of attention weights `[..., L]` that sum to 1.

    Two passes, so that near one-hot rows keep their digits; `eps` is added to the diagonal of the covariance, without
    which one row or one cell of attention is singular.
    """
    wide = wide_dtype(weights)
    t, w = points.to(wide), weights.to(wide)
    mu = w @ t
    centred = t - mu.unsqueeze(-2)
    cov = (w.unsqueeze(-1) * centred).transpose(-1, -2) @ centred
    cov = cov + eps * torch.eye(t.shape[-1], dtype=wide, device=t.device)
    return mu.to(weights.dtype), cov.to(weights.dtype)


def precision(cov: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse and log-determinant of symmetric positive definite matrices `[..., D, D]`."""
    dim = cov.shape[-1]
    if dim == 1:
        return cov.reciprocal(), cov[..., 0, 0].log()
    if dim == 2:
        # Batches of thousands of 2x2 matrices: LAPACK's call per matrix would dominate.
        a, b, d = cov[..., 0, 0], 0.5 * (cov[..., 0, 1] + cov[..., 1, 0]), cov[..., 1, 1]
        det = a * d - b * b
        inverse = torch.stack([d, -b, -b, a], dim=-1) / det.unsqueeze(-1)
        return inverse.unflatten(-1, (2, 2)), det.log()
    factor = torch.linalg.cholesky(cov)
    return torch.cholesky_inverse(factor), 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class _GaussianExpectation(torch.autograd.Function):
    """r_j = N(mu_j; mu, Var + Sigma_j) with its gradient in (mu, Var): no inverse of Var."""

    @staticmethod
    def forward(ctx: Any, mu: Tensor, cov: Tensor, centers: Tensor, covs: Tensor) -> Tensor:
        inverse, log_det = precision(symmetric(cov).unsqueeze(-3) + symmetric(covs))  # [B, N, D, D]
        delta = centers - mu.unsqueeze(-2)
        e = (inverse @ delta.unsqueeze(-1)).squeeze(-1)
        exponent = (delta * e).sum(-1) + log_det + mu.shape[-1] * math.log(2 * math.pi)
        r = torch.exp(-0.5 * exponent)  # Eq. 4.10
        ctx.save_for_backward(r, e, inverse)
        return r

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        r, e, inverse = ctx.saved_tensors
        weighted = (grads[0] * r).unsqueeze(-1)
        by_mean = weighted * e  # dr/dmu = r e
        by_cov = 0.5 * (by_mean.unsqueeze(-1) * e.unsqueeze(-2) - weighted.unsqueeze(-1) * inverse)
        # r depends on mu_j - mu and Var + Sigma_j alone, which gives the RBFs' gradients for free.
        return by_mean.sum(-2), by_cov.sum(-3), -by_mean.sum(0), by_cov.sum(0)


def gaussian_expectation(mu: Tensor, cov: Tensor, centers: Tensor, covs: Tensor) -> Tensor:
    """Continuous softmax: the expectation `[..., N]` of Gaussian RBFs under N(mu, cov), any dimension (Eq. 4.10-4.12).

    `cov` may be singular.
    """
    wide = wide_dtype(mu)
    dim = mu.shape[-1]
    r = _GaussianExpectation.apply(
        mu.reshape(-1, dim).to(wide), cov.reshape(-1, dim, dim).to(wide), centers.to(wide), covs.to(wide)
    )
    return r.to(mu.dtype).reshape(*mu.shape[:-1], len(centers))  # type: ignore[union-attr]


def gaussian_log_density(points: Tensor, mu: Tensor, cov: Tensor) -> Tensor:
    """log N(t; mu, cov) at the points: `[..., L]`."""
    dim = mu.shape[-1]
    delta = points - mu.unsqueeze(-2)
    inverse, log_det = precision(cov)
    distance = ((delta @ inverse) * delta).sum(-1)
    return -0.5 * (distance + log_det.unsqueeze(-1) + dim * math.log(2 * math.pi))


def gaussian_density(points: Tensor, mu: Tensor, cov: Tensor) -> Tensor:
    """N(t; mu, cov) at the points: `[..., L]`."""
    return gaussian_log_density(points, mu, cov).exp()
