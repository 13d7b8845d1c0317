"""The value function of continuous attention: ridge regression of tokens on Gaussian RBFs over the unit cube."""

# Not every function of torch says what it returns.
# pyright: reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

import math
from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor


def tensor_grid(axes: Sequence[Tensor]) -> Tensor:
    """All points of a tensor grid, row-major: `[L, D]`."""
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, len(axes))


def cell_centers(grid: Sequence[int]) -> Tensor:
    """Cell centres (l + 1/2) / n of a token grid, row-major, float64: `[L, D]`."""
    return tensor_grid([(torch.arange(n, dtype=torch.float64) + 0.5) / n for n in grid])


def rbf_axes(rbf_grid: Sequence[int]) -> tuple[Tensor, ...]:
    """RBF centres `linspace(0, 1, n)` on each axis, float64."""
    return tuple(torch.linspace(0, 1, n, dtype=torch.float64) for n in rbf_grid)


def _axis_basis(cells: int, rbfs: int, var: float, pad: bool) -> Tensor:
    """RBFs of one axis at its cell centres, `[n_rbf, n_cells]` (twice as many cells when padded)."""
    outside = cells // 2 if pad else 0
    t = (torch.arange(-outside, cells + outside, dtype=torch.float64) + 0.5) / cells
    centre = torch.linspace(0, 1, rbfs, dtype=torch.float64)
    return torch.exp(-((t - centre[:, None]) ** 2) / (2 * var)) / math.sqrt(2 * math.pi * var)


def ridge_operator(
    grid: Sequence[int], rbf_grid: Sequence[int], rbf_var: float | Sequence[float], ridge: float, pad: bool = True
) -> Tensor:
    """G = F^T (F F^T + ridge I)^-1, so that the value function of tokens H `[D, L]` has coefficients B = H G.

    With `pad` the regression also sees zeros around the unit cube (the side-2 cube at the same pitch), so that the
    value function decays outside it; that needs an even number of cells on every axis.

    Args:
        grid: Cells per axis.
        rbf_grid: RBFs per axis.
        rbf_var: Variance of every RBF, one for all axes or one per axis.
        ridge: Ridge penalty, positive.
        pad: See above.

    Returns:
        `[L, N]` in float64.
    """
    if pad and any(n % 2 for n in grid):
        raise ValueError(f"Expected an even number of cells per axis for padding, but got {tuple(grid)}.")
    var = rbf_var if isinstance(rbf_var, Sequence) else [rbf_var] * len(grid)
    axes = [_axis_basis(n, k, v, pad) for n, k, v in zip(grid, rbf_grid, var, strict=True)]
    basis = reduce(torch.kron, axes)  # F, [N, L]
    gram = basis @ basis.T + ridge * torch.eye(len(basis), dtype=torch.float64)
    operator = torch.cholesky_solve(basis, torch.linalg.cholesky(gram)).T
    if not pad:
        return operator
    inside = [(torch.arange(2 * n) >= n // 2) & (torch.arange(2 * n) < n // 2 + n) for n in grid]
    return operator[tensor_grid(inside).all(dim=-1)]
