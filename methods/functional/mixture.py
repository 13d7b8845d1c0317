"""Mixtures of attention densities: weighted EM on a token grid, its starting points, the choice of K (chapter 5)."""

# Not every function of torch says what it returns.
# pyright: reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from methods.functional.gaussian import gaussian_log_density, moments, wide_dtype

# Component masses below this carry no direction; dividing by the floor keeps values and gradients finite.
MASS_FLOOR = 1e-12
# A region with less than this mass starts from its geometry.
REGION_FLOOR = 1e-8
RESTART_VARIANCE = 1e-3


class Mixture(NamedTuple):
    """K Gaussian components per row: `pi [B, K]`, `mu [B, K, D]`, `cov [B, K, D, D]`."""

    pi: Tensor
    mu: Tensor
    cov: Tensor


def _joint_log_density(points: Tensor, mixture: Mixture) -> Tensor:
    """log pi_k + log N(t_l; mu_k, cov_k), `[B, K, L]`."""
    # The floor stops log 0, whose gradient is NaN; such a component keeps zero responsibility.
    return mixture.pi.clamp_min(1e-300).log().unsqueeze(-1) + gaussian_log_density(points, mixture.mu, mixture.cov)


def _maximise(points: Tensor, weights: Tensor, mixture: Mixture, reg: Tensor) -> Mixture:
    """One EM iteration (Eq. 5.12-5.14)."""
    share = weights.unsqueeze(-2) * _joint_log_density(points, mixture).softmax(dim=-2)  # [B, K, L]
    mass = share.sum(-1)
    relative = share / mass.clamp_min(MASS_FLOOR).unsqueeze(-1)
    mu = relative @ points
    centred = points - mu.unsqueeze(-2)
    cov = (relative.unsqueeze(-1) * centred).transpose(-1, -2) @ centred + reg
    return Mixture(mass, mu, cov)


def weighted_em(
    points: Tensor, weights: Tensor, pi: Tensor, mu: Tensor, cov: Tensor, iterations: int, reg: float | Tensor = 1e-6
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gaussian mixture of weighted points by a fixed number of EM iterations, differentiable by unrolling.

    Starts from the mixture `pi, mu, cov`; `weights [B, L]` are normalised inside, `reg` is added to the diagonal of
    every covariance (a number, or `[D]`). Returns `pi, mu, cov` and their weighted log-likelihood `[B]`.
    """
    wide, dtype = wide_dtype(weights), weights.dtype
    t, w = points.to(wide), weights.to(wide)
    w = w / w.sum(-1, keepdim=True)
    diagonal = reg * torch.eye(t.shape[-1], dtype=wide, device=t.device)
    mixture = Mixture(pi.to(wide), mu.to(wide), cov.to(wide))
    for _ in range(iterations):
        mixture = _maximise(t, w, mixture, diagonal)
    log_likelihood = (w * _joint_log_density(t, mixture).logsumexp(dim=-2)).sum(-1)
    return mixture.pi.to(dtype), mixture.mu.to(dtype), mixture.cov.to(dtype), log_likelihood.to(dtype)


def cell_variance(points: Tensor) -> Tensor:
    """Variance of a point drawn uniformly from a cell of the grid, per axis, `[D]`: pitch^2 / 12.

    Weights say nothing finer than a cell. With a smaller floor the likelihood of a component that sits on one cell
    grows without a mode being there.
    """
    return (2 * points.amin(dim=0)).square() / 12  # the first centre of an axis is half a pitch from 0


def regions(points: Tensor, components: int) -> Tensor:
    """Masks `[K, L]` of the starting regions: K intervals in 1-D; upper and lower halves or quadrants in 2-D."""
    if points.shape[-1] == 1 or components in (1, 2):
        index = (points[:, 0] * components).long()
    elif components == 4:
        halves = (points * 2).long()
        index = 2 * halves[:, 0] + halves[:, 1]
    else:
        raise ValueError(f"Expected `components` to be 1, 2 or 4 on a two-dimensional grid, but got {components}.")
    return index == torch.arange(components, device=points.device).unsqueeze(-1)


def region_start(points: Tensor, weights: Tensor, components: int, eps: float = 1e-6) -> Mixture:
    """Start EM from the moments of each region; one without mass starts from its centre and its cells' variance."""
    wide = wide_dtype(weights)
    t, w = points.to(wide), weights.to(wide)
    inside = regions(t, components).to(wide)  # [K, L]
    share = w.unsqueeze(-2) * inside / w.sum(-1, keepdim=True).unsqueeze(-1)
    mass = share.sum(-1)
    empty = (mass < REGION_FLOOR).unsqueeze(-1)
    cells = inside.sum(-1, keepdim=True)
    # A region finer than the cells (more components than tokens) starts from the whole grid.
    geometry = torch.where(cells == 0, 1 / len(t), inside / cells.clamp_min(1))
    relative = torch.where(empty, geometry, share / mass.clamp_min(REGION_FLOOR).unsqueeze(-1))
    mu, cov = moments(t, relative, eps)
    mass = mass.clamp_min(REGION_FLOOR)
    return Mixture(mass / mass.sum(-1, keepdim=True), mu, cov)


def random_start(batch: int, components: int, dim: int, restarts: int, seed: int, like: Tensor) -> Mixture:
    """Start EM from uniform means, one draw per restart shared by all rows, so that a row's fit ignores its batch."""
    generator = torch.Generator().manual_seed(seed)
    wide = wide_dtype(like)
    draw = torch.rand(restarts, 1, components, dim, generator=generator, dtype=torch.float64, device="cpu")
    mu = draw.to(like.device, wide).expand(restarts, batch, components, dim).reshape(-1, components, dim)
    pi = torch.full((restarts * batch, components), 1 / components, dtype=wide, device=like.device)
    cov = RESTART_VARIANCE * torch.eye(dim, dtype=wide, device=like.device)
    return Mixture(pi, mu, cov.expand(restarts * batch, components, dim, dim))


def _pad(mixture: Mixture, components: int) -> Mixture:
    """Append copies of the first component with zero weight, so that mixtures of different K stack."""
    missing = components - mixture.pi.shape[-1]
    if missing == 0:
        return mixture
    first_mu, first_cov = (x[:, :1].expand(-1, missing, *x.shape[2:]) for x in (mixture.mu, mixture.cov))
    return Mixture(
        torch.nn.functional.pad(mixture.pi, (0, missing)),
        torch.cat([mixture.mu, first_mu], dim=1),
        torch.cat([mixture.cov, first_cov], dim=1),
    )


def select_mixture(
    points: Tensor,
    weights: Tensor,
    max_components: int,
    penalty: float,
    restarts: int = 3,
    iterations: int = 10,
    reg: float | Tensor | None = None,
    seed: int = 0,
) -> tuple[Mixture, Tensor]:
    """Choose K in 1..max_components per row by the penalised likelihood, with random restarts for every K > 1.

    Each row is scored by its own weights alone; the published code sums over the batch. `reg` is added to the diagonal
    of every covariance, by default the variance of a cell, so that modes are found and not cells.

    Returns:
        A mixture of `max_components` components, the unused ones with weight 0, and the chosen K `[B]`.
    """
    batch, dim = len(weights), points.shape[-1]
    reg = cell_variance(points) if reg is None else reg
    mu, cov = moments(points, weights / weights.sum(-1, keepdim=True), reg)
    candidates, scores = [], []
    for k in range(1, max_components + 1):
        single = Mixture(torch.ones_like(mu[:, :1]), mu.unsqueeze(1), cov.unsqueeze(1))
        start = random_start(batch, k, dim, restarts, seed + k, weights) if k > 1 else single
        copies = len(start.pi) // batch
        # For K = 1 the moments are the optimum already: no iteration.
        *fit, log_likelihood = weighted_em(
            points, weights.repeat(copies, 1), *start, iterations=iterations if k > 1 else 0, reg=reg
        )
        padded = _pad(Mixture(*fit), max_components)
        candidates += [Mixture(*rows) for rows in zip(*(x.chunk(copies) for x in padded), strict=True)]
        scores += (-2 * log_likelihood + penalty * k).chunk(copies)  # Eq. 5.18
    best = torch.stack(scores).argmin(dim=0)
    row = torch.arange(batch, device=weights.device)
    chosen = Mixture(*(torch.stack(parts)[best, row] for parts in zip(*candidates, strict=True)))
    sizes = torch.tensor([1] + [k for k in range(2, max_components + 1) for _ in range(restarts)], device=best.device)
    return chosen, sizes[best]


def mixture_expectation(mixture: Mixture, expectation: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """r = sum_k pi_k r_k; `expectation(mu, cov)` of one density broadcasts over leading dimensions."""
    return (mixture.pi.unsqueeze(-1) * expectation(mixture.mu, mixture.cov)).sum(-2)
