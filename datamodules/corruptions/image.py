"""Corruptions of images `[B, C, H, W]`, after Hendrycks & Dietterich (2019), at any size, range and number of channels.

They are sums of shifted copies and elementwise arithmetic, which round the same way wherever a pixel lies in memory, so
that a row is bit-equal in any batch. torchvision is the reference in the tests, not the engine: its blur is a `conv2d`,
which rounds by batch size on small images (measured on 4 x 8 pixels) and takes the whole 2-D kernel; its colour
operations want 1 or 3 channels in [0, 1]; resizing by nearest neighbours is worse at 0.6 of the resolution than at 0.5;
its JPEG codec is deprecated since 0.29, and Pillow's is the same library.
"""

from __future__ import annotations

import io
import math
from itertools import pairwise

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad

from datamodules.corruptions.every import clamp, row_mean, window
from datamodules.corruptions.registry import Draw, corruption

_DIRECTIONS = 8  # of motion, over half a turn: a path and its reverse are the same blur


@corruption("shot_noise", kinds=("image",), version=1)
def shot_noise(x: Tensor, photons: float, draw: Draw) -> Tensor:
    """Noise of a low light level: the variance grows with the signal, as the Poisson distribution's does."""
    low, high = window(draw)
    light = ((x - low) / (high - low)).clamp(min=0.0)
    # The normal limit of the Poisson distribution, so that `photons` scales one draw.
    return clamp(x + (light / photons).sqrt() * (high - low) * draw.normal(*x.shape[1:]).to(x.dtype), draw)


@corruption("impulse_noise", kinds=("image",), version=1)
def impulse_noise(x: Tensor, share: float, draw: Draw) -> Tensor:
    """Salt and pepper: a share of values becomes the lowest or the highest one."""
    low, high = window(draw)
    # One uniform says whether and which, from its two ends: a pixel keeps its colour at all severities.
    u = draw.uniform(*x.shape[1:])
    x = torch.where(u < share / 2, low, x)
    return torch.where(u >= 1 - share / 2, high, x)


@corruption("gaussian_blur", kinds=("image",), version=1)
def gaussian_blur(x: Tensor, share: float, draw: Draw) -> Tensor:
    """Out of focus: a Gaussian kernel whose standard deviation is a share of the shorter side."""
    sigma = share * min(x.shape[-2:])
    radius = math.ceil(3 * sigma)
    weights = [math.exp(-0.5 * (k / sigma) ** 2) for k in range(radius + 1)]
    total = weights[0] + 2 * sum(weights[1:])
    for step in ((0, 1), (1, 0)):
        x = _along(x, [w / total for w in weights], step, radius)
    return clamp(x, draw)  # weights add up to one but for rounding


@corruption("motion_blur", kinds=("image",), version=1)
def motion_blur(x: Tensor, share: float, draw: Draw) -> Tensor:
    """The mean along a straight path through each pixel, in one of eight directions per row."""
    half = share * min(x.shape[-2:]) / 2
    radius = math.ceil(half)
    # The last step of the path counts for what is left of it: a short path on a small image is not lost to rounding.
    weights = [min(1.0, half - k + 1) for k in range(radius + 1)]
    weights[0] = 1.0
    total = 1.0 + 2 * sum(weights[1:])
    direction = draw.integer(_DIRECTIONS)
    out = torch.empty_like(x)
    for turn in range(_DIRECTIONS):
        chosen = (direction == turn).nonzero().squeeze(1)
        if len(chosen) == 0:
            continue
        angle = math.pi * turn / _DIRECTIONS
        step = (math.sin(angle), math.cos(angle))
        out[chosen] = _along(x[chosen], [w / total for w in weights], step, radius)
    return clamp(out, draw)


@corruption("contrast", kinds=("image",), version=1)
def contrast(x: Tensor, factor: float, draw: Draw) -> Tensor:
    """Everything closer to the image's mean."""
    mean = row_mean(x)
    return clamp(mean + factor * (x - mean), draw)


@corruption("brightness", kinds=("image",), version=1)
def brightness(x: Tensor, amount: float, draw: Draw) -> Tensor:
    """Overexposure: a share of the range is added."""
    low, high = window(draw)
    return clamp(x + amount * (high - low), draw)


@corruption("occlusion", kinds=("image",), version=1)
def occlusion(x: Tensor, share: float, draw: Draw) -> Tensor:
    """A grey patch somewhere; a larger one of the same row covers the smaller."""
    low, high = window(draw)
    place = draw.uniform(2)
    covered = torch.ones(len(x), 1, 1, 1, dtype=torch.bool, device=x.device)
    for axis, size in enumerate(x.shape[-2:]):
        extent = max(1, round(share * size))
        start = (place[:, axis] * (size - extent + 1)).floor()[:, None]
        position = torch.arange(size, device=x.device)
        inside = (position >= start) & (position < start + extent)
        covered = covered & (inside[:, None, :, None] if axis == 0 else inside[:, None, None, :])
    return torch.where(covered, (low + high) / 2, x)


@corruption("jpeg", kinds=("image",), version=1)
def jpeg(x: Tensor, quality: float, draw: Draw) -> Tensor:
    """JPEG at low quality; coded sample by sample on the CPU, in 8 bits, whatever the device of `x`."""
    if draw.modality.range is None:
        low, high = x.amin((1, 2, 3), keepdim=True), x.amax((1, 2, 3), keepdim=True)
        span = torch.where(high > low, high - low, 1.0)
    else:
        low, span = draw.modality.range[0], draw.modality.range[1] - draw.modality.range[0]
    bytes_ = ((x - low) / span * 255).clamp(0, 255).round().to("cpu", torch.uint8)
    # Three channels are a colour image; any other number is as many grey ones.
    pictures = bytes_.permute(0, 2, 3, 1) if x.shape[1] == 3 else bytes_.flatten(0, 1)
    coded = torch.stack([_through_jpeg(picture, int(quality)) for picture in pictures])
    coded = coded.permute(0, 3, 1, 2) if x.shape[1] == 3 else coded.view(x.shape)
    return clamp(coded.to(x.device, x.dtype) / 255 * span + low, draw)


@corruption("pixelate", kinds=("image",), version=1)
def pixelate(x: Tensor, share: float, draw: Draw) -> Tensor:
    """Fewer, larger pixels: the mean of each block, of whole pixels, of a coarser grid."""
    for axis in (2, 3):
        size = x.shape[axis]
        edges = [round(i * size / max(1, round(share * size))) for i in range(max(1, round(share * size)) + 1)]
        x = _block_means(x, axis, edges)
    return clamp(x, draw)


def _through_jpeg(picture: Tensor, quality: int) -> Tensor:
    file = io.BytesIO()
    Image.fromarray(picture.numpy()).save(file, "JPEG", quality=quality)
    return torch.from_numpy(np.array(Image.open(file)))


def _block_means(x: Tensor, axis: int, edges: list[int]) -> Tensor:
    """Each value replaced by the mean of its block `edges[i] .. edges[i + 1]` along an axis."""
    bounds = [(low, high) for low, high in pairwise(edges) for _ in range(low, high)]  # of the block of each position
    out = torch.zeros_like(x)
    for k in range(max(high - low for low, high in bounds)):
        # Blocks with fewer than k + 1 values add nothing.
        source = torch.tensor([min(low + k, high - 1) for low, high in bounds], device=x.device)
        weight = torch.tensor([(low + k < high) / (high - low) for low, high in bounds], dtype=x.dtype, device=x.device)
        out += x.index_select(axis, source) * (weight[:, None] if axis == 2 else weight)
    return out


def _along(x: Tensor, weights: list[float], step: tuple[float, float], radius: int) -> Tensor:
    """`sum_k weights[|k|] x(position + k step)` over k = -radius .. radius, edges repeated, whole-pixel shifts."""
    height, width = x.shape[-2:]
    down, right = math.ceil(abs(step[0]) * radius), math.ceil(abs(step[1]) * radius)
    padded = pad(x, (right, right, down, down), mode="replicate")
    out = x * weights[0]
    for k, weight in enumerate(weights[1:], start=1):
        dy, dx = round(k * step[0]), round(k * step[1])
        for y, z in ((down + dy, right + dx), (down - dy, right - dx)):
            out += padded[..., y : y + height, z : z + width] * weight
    return out
