"""Discrete and continuous attention: sparsemax, and the public names of the continuous densities.

Source: Farinhas, *Visual Attention with Sparse and Continuous Transformations*, its errors corrected
(docs/mathematics/attention.md lists them).
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from methods.functional.gaussian import gaussian_density, gaussian_expectation, moments
from methods.functional.mixture import (
    Mixture,
    cell_variance,
    mixture_expectation,
    region_start,
    select_mixture,
    weighted_em,
)
from methods.functional.paraboloid import (
    grid_paraboloid_expectation,
    paraboloid_density,
    paraboloid_expectation,
    support_ellipse,
)
from methods.functional.value_function import cell_centers, rbf_axes, ridge_operator, tensor_grid

__all__ = [
    "Mixture",
    "cell_centers",
    "cell_variance",
    "gaussian_density",
    "gaussian_expectation",
    "grid_paraboloid_expectation",
    "mixture_expectation",
    "moments",
    "paraboloid_density",
    "paraboloid_expectation",
    "rbf_axes",
    "region_start",
    "ridge_operator",
    "select_mixture",
    "sparsemax",
    "support_ellipse",
    "tensor_grid",
    "weighted_em",
]


class _Sparsemax(torch.autograd.Function):
    """Projection on the simplex along the last dimension; J = diag(s) - s s^T / |s| with s the support."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        z = z - z.amax(dim=-1, keepdim=True)
        ordered = z.sort(dim=-1, descending=True).values
        # Entries this far below the maximum are never in the support; -inf would turn the running sum into NaN.
        total = ordered.clamp_min(-2).cumsum(dim=-1) - 1
        rank = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
        size = (rank * ordered > total).sum(dim=-1, keepdim=True)
        tau = total.gather(-1, size - 1) / size
        p = (z - tau).clamp_min(0)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        support = ctx.saved_tensors[0] > 0
        inside = grads[0] * support
        return inside - support * (inside.sum(-1, keepdim=True) / support.sum(-1, keepdim=True))


def sparsemax(z: Tensor, dim: int = -1) -> Tensor:
    """Sparsemax p = (z - tau)_+ along `dim`; entries of -inf get exactly zero, in value and gradient."""
    return _Sparsemax.apply(z.movedim(dim, -1)).movedim(-1, dim)  # type: ignore[union-attr]
