"""Densities of continuous alpha-entmax: powers of a truncated paraboloid, between a Gaussian and a hard edge.

p(t) is proportional to (1 - |u|^2)_+^kappa with u = R^-1 (t - mu), kappa = 1 / (alpha - 1) and R R^T = (D + 2 + 2
kappa) Var: alpha = 2 is the truncated paraboloid, alpha = 1.5 the biweight, and alpha towards 1 the Gaussian. The
normaliser has a closed form for every alpha. The expectation of a Gaussian RBF has one only where kappa is a whole
number, and then as a sum of incomplete moments that cancel. Gauss-Jacobi nodes for the weight (1 - u^2)^kappa are exact
for polynomials, and a Gaussian RBF is analytic, so the rule converges faster than any power of the nodes, for every
alpha and with plain gradients.
"""

# Not every function of torch says what it returns.
# pyright: reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from methods.functional.gaussian import wide_dtype
from methods.functional.value_function import tensor_grid

FLOOR = 1e-9  # of the variance: a support that is a line has no root


@lru_cache(maxsize=32)
def entmax_nodes(alpha: float, dim: int, nodes: int) -> tuple[Tensor, Tensor]:
    """Points of the unit ball `[n ** D, D]` and their weights, which sum to 1, in float64; D = 1 or 2."""
    from scipy.special import roots_jacobi

    if alpha <= 1 or dim not in (1, 2):
        raise ValueError(f"Expected `alpha` > 1 and one or two dimensions, but got {alpha} and {dim}")
    kappa = 1 / (alpha - 1)

    def rule(power: float) -> tuple[Tensor, Tensor]:
        points, weights = roots_jacobi(nodes, power, power)
        return torch.from_numpy(points), torch.from_numpy(weights / weights.sum())

    with torch.device("cpu"):  # a plan builds under "meta", and what is kept must not become meta with it
        inner, weight = rule(kappa)
        if dim == 1:
            return inner.unsqueeze(1), weight
        # u = (v, w sqrt(1 - v^2)): (1 - |u|^2)^kappa = ((1 - v^2) (1 - w^2))^kappa, and du = sqrt(1 - v^2) dv dw.
        outer, over = rule(kappa + 0.5)
        v, w = tensor_grid((outer, inner)).unbind(dim=1)
        return torch.stack([v, w * (1 - v * v).sqrt()], dim=1), torch.outer(over, weight).flatten()


def entmax_expectation(
    mu: Tensor, cov: Tensor, axes: Sequence[Tensor], var: Sequence[float], alpha: float, nodes: int = 32
) -> Tensor:
    """The expectation `[..., N]` of a tensor grid of axis-aligned Gaussian RBFs; `cov` is the density's variance.

    Args:
        mu: `[..., D]`, D = 1 or 2.
        cov: `[..., D, D]`.
        axes: RBF centres on each axis; N is row-major.
        var: Variance of the RBFs on each axis.
        alpha: Above 1.
        nodes: Per axis; more where the support is many deviations of an RBF wide (`polymodal study integration`).
    """
    dim, wide = mu.shape[-1], wide_dtype(mu)
    m, c = mu.reshape(-1, dim).to(wide), cov.reshape(-1, dim, dim).to(wide)
    u, weight = (x.to(m) for x in entmax_nodes(alpha, dim, nodes))
    floor = FLOOR * torch.eye(dim, dtype=wide, device=m.device)
    root = torch.linalg.cholesky((dim + 2 + 2 / (alpha - 1)) * (c + floor))
    t = m.unsqueeze(1) + u @ root.mT  # [B, n ** D, D]
    seen = []
    for d, (axis, variance) in enumerate(zip(axes, var, strict=True)):
        far = (t[..., d].unsqueeze(-1) - axis.to(m)) ** 2 / (-2 * variance)
        seen.append(far.exp() / (2 * torch.pi * variance) ** 0.5)
    first = seen[0] * weight.unsqueeze(-1)
    r = first.sum(dim=1) if dim == 1 else (first.mT @ seen[1]).flatten(1)
    return r.to(mu.dtype).reshape(*mu.shape[:-1], -1)
