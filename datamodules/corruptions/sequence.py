"""Corruptions of sequences `[B, T, C]`, taken to be standardised: zero is the mean and fills what is lost."""

from __future__ import annotations

import torch
from torch import Tensor

from datamodules.corruptions.every import row_mean
from datamodules.corruptions.registry import Draw, corruption


@corruption("frame_noise", kinds=("sequence",), version=1)
def frame_noise(x: Tensor, decibel: float, draw: Draw) -> Tensor:
    """White noise on the values of the frames (MFCC, sensors; no sound), at a signal-to-noise ratio of each row."""
    peak = x.abs().amax((1, 2), keepdim=True)
    # Divided by the peak first: the square of a large value would overflow.
    power = row_mean((x / torch.where(peak > 0, peak, 1.0)).square())
    sigma = peak * power.sqrt() * 10 ** (-decibel / 20)
    return x + sigma * draw.normal(*x.shape[1:]).to(x.dtype)


@corruption("time_mask", kinds=("sequence",), version=1)
def time_mask(x: Tensor, share: float, draw: Draw) -> Tensor:
    """One gap; a longer one of the same row covers the shorter."""
    steps = x.shape[1]
    extent = max(1, round(share * steps))
    start = (draw.uniform(1) * (steps - extent + 1)).floor()
    position = torch.arange(steps, device=x.device)
    inside = (position >= start) & (position < start + extent)
    return torch.where(inside.unsqueeze(-1), 0.0, x)


@corruption("missing_segment", kinds=("sequence",), version=1)
def missing_segment(x: Tensor, share: float, draw: Draw) -> Tensor:
    """One gap of a given share of the duration, on the scale of missing rates: `time_mask` uncalibrated."""
    return time_mask(x, share, draw)


@corruption("frame_drop", kinds=("sequence",), version=1)
def frame_drop(x: Tensor, probability: float, draw: Draw) -> Tensor:
    """Single frames lost, each with a probability."""
    return torch.where((draw.uniform(x.shape[1]) < probability).unsqueeze(-1), 0.0, x)


@corruption("time_shift", kinds=("sequence",), version=1)
def time_shift(x: Tensor, share: float, draw: Draw) -> Tensor:
    """Everything earlier or later; what leaves is lost, what enters is silence."""
    steps = x.shape[1]
    offset = max(1, round(share * steps)) * (2 * draw.integer(2, 1) - 1)
    source = torch.arange(steps, device=x.device) + offset
    taken = x.gather(1, source.clamp(0, steps - 1).unsqueeze(-1).expand_as(x))
    return torch.where(((source >= 0) & (source < steps)).unsqueeze(-1), taken, 0.0)


@corruption("frame_gain", kinds=("sequence",), version=1)
def frame_gain(x: Tensor, decibel: float, draw: Draw) -> Tensor:
    """The values of the frames times or divided by a factor, a coin per row: no loudness where they are logarithms."""
    factor = 10 ** (decibel / 20)
    return torch.where(draw.uniform(1, 1) < 0.5, x * factor, x / factor)
