"""Corruptions of more than one kind of modality: Gaussian noise, another row's input, a missing modality."""

from __future__ import annotations

import torch
from torch import Tensor

from datamodules.corruptions import noise
from datamodules.corruptions.registry import Draw, corruption


@corruption("gaussian_noise", kinds=("image", "vector"), version=1)
def gaussian_noise(x: Tensor, sigma: float, draw: Draw) -> Tensor:
    """White noise, in units of an image's range or of a standardised feature."""
    if draw.modality.kind == "vector":
        return x + sigma * draw.normal(*x.shape[1:]).to(x.dtype)
    low, high = window(draw)
    return clamp(x + sigma * (high - low) * draw.normal(*x.shape[1:]).to(x.dtype), draw)


@corruption("misaligned", kinds=("image", "sequence", "vector", "text"), version=1)
def misaligned(x: Tensor, share: float, draw: Draw) -> Tensor:
    """The input of another row of the split, for a share of rows: the pairing itself is corrupted."""
    if draw.split is None or len(draw.split) < 2:
        raise ValueError(f"misaligned: `split` must be the whole modality {draw.modality.name!r}, of at least two rows")
    donor = donors(len(draw.split), share, draw)
    chosen = donor != draw.row
    # The split may stay on the CPU, and need not be a tensor: rows shared by many are gathered when asked for.
    where = draw.split.device if isinstance(draw.split, Tensor) else "cpu"
    out = x.clone()
    out[chosen] = draw.split[donor[chosen].to(where)].to(x.device, x.dtype)
    return out


def donors(rows: int, share: float, draw: Draw) -> Tensor:
    """The row of a split of so many whose input each row has under `misaligned`: its own if it is left alone."""
    # An offset of 1 .. N-1 never lands on the row itself.
    other = (draw.row + 1 + draw.integer(rows - 1, stream=1)) % rows
    return torch.where(draw.uniform() < share, other, draw.row)


@corruption("missing", kinds=("image", "sequence", "vector", "text"), version=1)
def missing(present: Tensor, row: Tensor, rate: float | Tensor, key: int) -> Tensor:
    """Modalities absent at random: acts on `present`, not on an input, and keeps at least one per row."""
    u = noise.uniforms(key, row.to(present.device), (present.shape[1],))
    kept = present & (u >= rate)
    # If all would go, the one that survives the highest multiple of the rates stays: the subsets stay nested in them,
    # and where rates differ each that would go is as likely to stay. (A rate of 0 has gone nowhere: not asked.)
    survivor = torch.where(present, u / rate, -1.0).argmax(dim=1, keepdim=True)
    last = torch.zeros_like(present).scatter(1, survivor, True)
    return torch.where(kept.any(dim=1, keepdim=True), kept, last)


def window(draw: Draw) -> tuple[float, float]:
    """The range of an image; a standardised one is taken to span two standard deviations each way."""
    return draw.modality.range or (-2.0, 2.0)


def clamp(x: Tensor, draw: Draw) -> Tensor:
    """Back into the range of the image, unless it is standardised and has none."""
    return x if draw.modality.range is None else x.clamp(*draw.modality.range)


def row_mean(x: Tensor) -> Tensor:
    """`[B, 1, ...]` mean of each row, summed by halves: a library's sum may round by batch size or thread count."""
    flat = x.reshape(len(x), -1) / x[0].numel()
    while (width := flat.shape[1]) > 1:
        half = width // 2
        folded = flat[:, :half] + flat[:, half : 2 * half]
        flat = torch.cat((folded, flat[:, 2 * half :]), dim=1) if width % 2 else folded
    return flat.reshape(-1, *[1] * (x.ndim - 1))
