"""Corruptions of recordings `[B, T, 1]`: samples in [-1, 1] with silence (zeros) behind them, before any features.

Only a dataset that has the recordings can apply them (`datamodules.bases.recorded`). Features of sound are corrupted by
`frame_noise` and `frame_gain`, which are no noise and no loudness of the sound.
"""

from __future__ import annotations

import torch
from torch import Tensor

from datamodules.corruptions.every import row_mean
from datamodules.corruptions.registry import Draw, corruption

_STEP = 1 / 32768  # of 16-bit samples


@corruption("sound_noise", kinds=("sequence",), version=1)
def sound_noise(x: Tensor, decibel: float, draw: Draw) -> Tensor:
    """White noise on the recorded sound at a signal-to-noise ratio, which goes on in the silence after it."""
    power = row_mean(_samples(x).square()) * x.shape[1] / _length(x)
    return _recorded(x + power.sqrt() * 10 ** (-decibel / 20) * draw.normal(*x.shape[1:]).to(x.dtype))


@corruption("sound_mask", kinds=("sequence",), version=1)
def sound_mask(x: Tensor, share: float, draw: Draw) -> Tensor:
    """One gap of silence in the recorded sound; a longer one of the same row covers the shorter."""
    length = _length(_samples(x))
    extent = (share * length).round().clamp(min=1)
    start = (draw.uniform(1, 1) * (length - extent + 1)).floor()
    position = torch.arange(x.shape[1], device=x.device).view(-1, 1)
    return torch.where((position >= start) & (position < start + extent), 0.0, x)


@corruption("sound_gain", kinds=("sequence",), version=1)
def sound_gain(x: Tensor, decibel: float, draw: Draw) -> Tensor:
    """Recorded too loud, so that peaks are clipped, or too low, so that 16 bits round it: a coin per row."""
    factor = 10 ** (decibel / 20)
    return _recorded(torch.where(draw.uniform(1, 1) < 0.5, _samples(x) * factor, x / factor))


def _samples(x: Tensor) -> Tensor:
    if x.ndim != 3 or x.shape[2] != 1:
        raise ValueError(
            f"a sound corruption needs recordings [rows, samples, 1], but got {tuple(x.shape)}: the dataset, or one "
            "around it (`absent`, frozen encoders), has only features"
        )
    return x


def _length(x: Tensor) -> Tensor:
    """`[B, 1, 1]`: samples up to the last that is not silence."""
    place = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype).view(-1, 1)
    return (place * (x != 0)).amax(dim=1, keepdim=True).clamp(min=1)


def _recorded(x: Tensor) -> Tensor:
    """As 16-bit samples have it."""
    return ((x / _STEP).round() * _STEP).clamp(-1, 1 - _STEP)
