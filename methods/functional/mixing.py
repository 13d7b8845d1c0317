"""Mixing the vectors of modalities: conditioning, sampling, products of Gaussians, shared codes, bottlenecks.

Values are `[B, M, ...]`, `present` is `[B, M]` bool. The content of an absent modality never enters: not even a NaN.
"""

import torch
from torch import Tensor

from methods.functional.fusion import full_precision
from methods.functional.rows import no_autocast


def keep_present(x: Tensor, present: Tensor) -> Tensor:
    """`[B, M, ...]` with zeros where absent."""
    return torch.where(_over(present, x), x, torch.zeros((), dtype=x.dtype, device=x.device))


@full_precision
def present_mean(x: Tensor, present: Tensor) -> Tensor:
    """`[B, M, ...] -> [B, ...]`, the mean over the modalities that are present; zero where none is."""
    return keep_present(x, present).sum(dim=1) / _over(present, x).sum(dim=1).clamp_min(1)


def from_others(z: Tensor, weight: Tensor, present: Tensor) -> Tensor:
    """`sum_{j != m, present} W_mj z_j`: what the others say to each modality, `[B, M, O]`.

    Args:
        z: `[B, M, D]`.
        weight: `[M, M, O, D]`; `weight[m, j]` maps z_j to what m hears, and `weight[m, m]` is not used.
        present: `[B, M]`.
    """
    others = ~torch.eye(len(weight), dtype=torch.bool, device=weight.device)
    heard = weight * others[:, :, None, None].to(weight.dtype)
    return torch.einsum("mjod,bjd->bmo", heard, keep_present(z, present))


def modulate(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """`(1 + scale) * x + shift` (Perez et al., 2018): at zero, the identity."""
    return (1 + scale) * x + shift


def film(z: Tensor, scale_weight: Tensor, shift_weight: Tensor, present: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scale and shift every modality by linear maps of the others.

    Args:
        z: `[B, M, D]`.
        scale_weight: `[M, M, D, D]`, as in `from_others`.
        shift_weight: `[M, M, D, D]`.
        present: `[B, M]`.

    Returns:
        The modulated vectors, zero where absent; the scales and the shifts, `[B, M, D]` each.
    """
    scale, shift = (from_others(z, weight, present) for weight in (scale_weight, shift_weight))
    return keep_present(modulate(z, scale, shift), present), scale, shift


def embrace(values: Tensor, present: Tensor, uniform: Tensor | None = None) -> Tensor:
    """Copy every feature from one present modality, drawn with equal probabilities (Choi and Lee, 2019).

    Args:
        values: `[B, M, F]`.
        present: `[B, M]`.
        uniform: `[B, F]` draws from [0, 1), read by inverse cdf over the present modalities in order. None takes the
            mean over them, which is the expectation.

    Returns:
        `[B, F]`.
    """
    if uniform is None:
        return present_mean(values, present)
    count = present.sum(dim=1, keepdim=True)
    # A draw just below 1 may be rounded up to it.
    drawn = torch.minimum((uniform * count).floor().long(), count - 1)
    place = present.cumsum(dim=1) - 1
    chosen = (place.unsqueeze(2) == drawn.unsqueeze(1)) & present.unsqueeze(2)
    return torch.where(chosen, values, torch.zeros((), dtype=values.dtype, device=values.device)).sum(dim=1)


def product_of_experts(mu: Tensor, log_var: Tensor, present: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The product of the present Gaussian experts and of one N(0, I) prior (Wu and Goodman, 2018).

    Args:
        mu: `[B, M, D]`.
        log_var: `[B, M, D]`.
        present: `[B, M]`.

    Returns:
        Mean and log-variance of the product, `[B, D]` each, and the weights of the experts, `[B, M]`: their mean over
        features; the prior has what is missing from one.
    """
    wide = torch.promote_types(mu.dtype, torch.float32)
    with no_autocast(mu):
        log_precision = -keep_present(log_var.to(wide), present)
        log_precision = log_precision.masked_fill(~present.unsqueeze(-1), -torch.inf)
        # log L = log(1 + sum_m exp(-s_m)); the prior's log-precision 0 keeps it finite when everything is absent.
        prior = torch.zeros_like(log_precision[:, :1])
        total = torch.cat([prior, log_precision], dim=1).logsumexp(dim=1)
        weights = (log_precision - total.unsqueeze(1)).exp()
        mean = (weights * keep_present(mu.to(wide), present)).sum(dim=1)
    return mean.to(mu.dtype), -total.to(mu.dtype), weights.mean(dim=-1).to(mu.dtype)


@full_precision
def gaussian_kl(mu: Tensor, log_var: Tensor) -> Tensor:
    """`KL(N(mu, exp(log_var)) || N(0, I))`, summed over features: `[..., D] -> [...]`."""
    return 0.5 * (mu.square() + log_var.exp() - 1 - log_var).sum(dim=-1)


def compose(shared: Tensor, specific: Tensor, weight: Tensor, present: Tensor) -> Tensor:
    """The shared code with a residual of both codes; where absent, the mean of the present shared codes (Wang, 2023).

    Args:
        shared: `[B, M, D]`.
        specific: `[B, M, D]`.
        weight: `[D, 2D]`, of `[s_m; r_m]`.
        present: `[B, M]`.

    Returns:
        `[B, M, D]`.
    """
    own = shared + torch.cat([shared, specific], dim=-1) @ weight.T
    return torch.where(present.unsqueeze(-1), own, present_mean(shared, present).to(own.dtype).unsqueeze(1))


@full_precision
def shared_distance(shared: Tensor, present: Tensor) -> Tensor:
    """Mean absolute difference of two shared codes `[B, M, D]`, over all rows and pairs i < j that are present."""
    first, second = torch.triu_indices(shared.shape[1], shared.shape[1], offset=1, device=shared.device)
    both = present[:, first] & present[:, second]
    known = keep_present(shared, present)
    distance = (known[:, first] - known[:, second]).abs().mean(dim=-1)
    return keep_present(distance, both).sum() / both.sum().clamp_min(1)


def exchange_bottleneck(bottlenecks: Tensor, present: Tensor) -> Tensor:
    """`[B, M, T, D] -> [B, T, D]`: the mean of the bottleneck tokens of the present modalities (Nagrani, 2021)."""
    return present_mean(bottlenecks, present)


def _over(present: Tensor, x: Tensor) -> Tensor:
    return present.reshape(*present.shape, *[1] * (x.dim() - present.dim()))
