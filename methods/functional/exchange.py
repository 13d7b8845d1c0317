"""Channel exchange between modalities that share their convolutions (spec: fusion-coordination-fission, section 3)."""

from collections.abc import Sequence

import torch
from torch import Tensor


def exchanged(gammas: Tensor, threshold: float) -> Tensor:
    """Which channels are replaced, `[M, C]` bool: those whose scale fell below the threshold. No gradient passes."""
    return gammas.detach().abs() < threshold


def exchange_channels(zs: Sequence[Tensor], gammas: Tensor, threshold: float) -> list[Tensor]:
    """Replace a modality's dead channels by the mean of the others'.

    Args:
        zs: `[B, C, H, W]` per modality, normalised and scaled.
        gammas: `[M, C]` batch-norm scales.
        threshold: Below it a channel is dead.

    Returns:
        One tensor per modality.
    """
    if len(zs) < 2 or len(gammas) != len(zs):
        raise ValueError(f"Expected at least two modalities and one row of `gammas` each, got {len(zs)}, {len(gammas)}")
    stacked = torch.stack(list(zs))
    others = (stacked.sum(dim=0, keepdim=True) - stacked) / (len(zs) - 1)
    mask = exchanged(gammas, threshold)[:, None, :, None, None]
    # out_m[:, c] = z_m[:, c] if |gamma_m[c]| >= theta else mean_{j != m} z_j[:, c]
    return list(torch.where(mask, others, stacked).unbind(dim=0))


def exchange_penalty(gammas: Tensor) -> Tensor:
    """L1 on disjoint contiguous channel groups, one per modality: only there may a modality's channels die.

    Args:
        gammas: `[M, C]`.
    """
    groups = gammas.new_zeros(gammas.shape[1]).tensor_split(len(gammas))
    total, start = gammas.new_zeros(()), 0
    for row, group in zip(gammas, groups, strict=True):
        total = total + row[start : start + len(group)].abs().sum()
        start += len(group)
    return total
