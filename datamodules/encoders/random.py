"""Encoders with random weights: the honest floor under every pretrained one."""

from __future__ import annotations

import math
import zlib

import torch
from torch import Tensor, nn

from datamodules.encoders.base import Encoder
from datamodules.registry import did_you_mean
from datamodules.spec import Modality

WIDTH = 128
KINDS = {"image": ("conv", "linear"), "sequence": ("conv", "linear"), "vector": ("linear",), "text": ("embedding",)}


class RandomEncoder(Encoder):
    """A fixed random map of one modality to features.

    "conv": two convolutions with ReLU, the mean of the last map; "linear": a Gaussian projection of all values with a
    ReLU; "embedding": the mean of Gaussian word vectors.

    Args:
        kind: One of the above.
        modality: What is encoded; its name is part of the seed, so that two modalities get different weights.
        tokens: Keep the last map, or the word vectors, instead of their mean.
    """

    transform = "none"

    def __init__(self, kind: str, modality: Modality, tokens: bool) -> None:
        super().__init__()
        if kind not in KINDS[modality.kind]:
            raise ValueError(
                f"random:{kind} does not encode a {modality.kind} ({modality.name}). "
                f"{did_you_mean(kind, KINDS[modality.kind])}"
            )
        if tokens and kind == "linear":
            raise ValueError("random:linear has no tokens to keep: leave +tokens out, or take random:conv")
        self.kind, self.tokens = kind, tokens
        self.modality = modality
        # On the CPU, wherever models are being built, and drawn from a generator of its own: the same everywhere.
        with torch.device("cpu"):
            self._draw(torch.Generator().manual_seed(zlib.crc32(f"{kind}/{modality.name}".encode())))

    def _draw(self, generator: torch.Generator) -> None:
        shape = self.modality.shape

        def normal(fan_in: int, *size: int) -> nn.Parameter:
            drawn = torch.randn(size, generator=generator) * math.sqrt(2 / fan_in)
            return nn.Parameter(drawn, requires_grad=False)

        if self.kind == "embedding":
            self.table = normal(2, self.modality.vocabulary, WIDTH)
        elif self.kind == "linear":
            self.project = normal(math.prod(shape), math.prod(shape), WIDTH)
        else:
            channels, dims = (shape[0], 2) if self.modality.kind == "image" else (shape[1], 1)
            self.first = normal(channels * 3**dims, 32, channels, *[3] * dims)
            self.second = normal(32 * 3**dims, WIDTH, 32, *[3] * dims)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "embedding":
            ids = x.long()
            mask = (ids != 0).unsqueeze(-1)
            vectors = self.table[ids] * mask
            return vectors if self.tokens else vectors.sum(dim=1) / mask.sum(dim=1).clamp_min(1)
        if self.kind == "linear":
            return (x.flatten(1) @ self.project).relu()
        maps = self._convolved(x)
        if self.tokens:
            return maps if self.modality.kind == "image" else maps.transpose(1, 2)
        return maps.flatten(2).mean(dim=2)

    def _convolved(self, x: Tensor) -> Tensor:
        convolve = torch.conv2d
        if self.modality.kind == "sequence":
            x, convolve = x.transpose(1, 2), torch.conv1d
        # About eight cells on the shorter side of what comes out.
        stride = max(1, min(x.shape[2:]) // 16)
        x = convolve(x, self.first, stride=stride, padding=1).relu()
        return convolve(x, self.second, stride=2 if min(x.shape[2:]) > 8 else 1, padding=1).relu()

    def probe(self) -> torch.Size:
        """The shape of one row's features."""
        dtype = torch.long if self.kind == "embedding" else torch.float32
        with torch.device("cpu"):
            return self(torch.zeros(1, *self.modality.shape, dtype=dtype)).shape[1:]
