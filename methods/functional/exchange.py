"""Channel exchange between modalities that share their convolutions (Wang et al., 2020)."""

from collections.abc import Sequence

import torch
from torch import Tensor


def exchanged(gammas: Tensor, threshold: float) -> Tensor:
    """Which channels are replaced, `[M, C]` bool: those whose scale fell below the threshold. No gradient passes."""
    return gammas.detach().abs() < threshold


def swap(x: Tensor, dead: Tensor, there: Tensor) -> Tensor:
    """Replace dead channels by the mean of the other modalities' that the row has; with none, keep them.

    Args:
        x: `[M, B, C, H, W]`, normalised and scaled.
        dead: `[M, C]` bool.
        there: `[M, B]` bool.
    """
    seen = torch.where(there[:, :, None, None, None], x, torch.zeros((), dtype=x.dtype, device=x.device))
    others = (there.sum(dim=0, keepdim=True) - there.long())[:, :, None, None, None]
    mean = (seen.sum(dim=0, keepdim=True) - seen) / others.clamp_min(1)
    # out_m[:, c] = z_m[:, c] if |gamma_m[c]| >= theta else mean_{j != m} z_j[:, c]
    return torch.where(dead[:, None, :, None, None] & (others > 0), mean, x)


def exchange_channels(zs: Sequence[Tensor], gammas: Tensor, threshold: float) -> list[Tensor]:
    """`swap` of rows that have everything: `zs[m]` `[B, C, H, W]`, batch-norm scales `gammas` `[M, C]`."""
    if len(zs) < 2 or len(gammas) != len(zs):
        raise ValueError(f"Expected at least two modalities and one row of `gammas` each, got {len(zs)}, {len(gammas)}")
    x = torch.stack(list(zs))
    there = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    return list(swap(x, exchanged(gammas, threshold), there).unbind(dim=0))


def channel_groups(modalities: int, channels: int) -> Tensor:
    """`[M, C]` bool: disjoint contiguous groups of channels, one per modality, larger groups first."""
    groups = torch.arange(channels).tensor_split(modalities)
    return torch.stack([torch.isin(torch.arange(channels), group) for group in groups])


def exchange_penalty(gammas: Tensor) -> Tensor:
    """L1 of the scales `[M, C]` on `channel_groups`: only there may a modality's channels die."""
    groups = [row.tensor_split(len(gammas))[m] for m, row in enumerate(gammas)]
    return sum((group.abs().sum() for group in groups), gammas.new_zeros(()))
