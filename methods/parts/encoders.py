"""Encoders by modality kind: the same for every method, so that methods differ in their idea alone.

Each turns one modality into tokens of the recipe's width on a grid. None uses batch statistics: a row's tokens depend
on that row only, in training too, and a run on two devices equals a run on one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from datamodules.encoders.pretrained import EncoderName, build
from datamodules.registry import did_you_mean
from datamodules.spec import Modality, Task


class Tokens(NamedTuple):
    """One modality as tokens.

    `x` [B, L, D]; `grid` (h, w), (t,) or (1,) with L cells; `mask` [B, L], False = padding.
    """

    x: Tensor
    grid: tuple[int, ...]
    mask: Tensor | None = None

    def mean(self) -> Tensor:
        """[B, D], over the tokens that are not padding."""
        if self.mask is None:
            return self.x[:, 0] if self.x.shape[1] == 1 else self.x.mean(dim=1)
        mask = self.mask.unsqueeze(-1).to(self.x.dtype)
        return (self.x * mask).sum(dim=1) / mask.sum(dim=1).clamp_min(1)


def _keep_signal(layers: nn.Sequential) -> None:
    """Draw convolutions so that ReLUs keep the variance of their input.

    torch's default loses half of it and more at every layer: after four, tokens are what the biases say, nearly the
    same in every cell, and a method that must tell cells apart stays at chance for thousands of steps.
    """
    for layer in layers:
        if isinstance(layer, nn.Conv1d | nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")


class MLP(nn.Module):
    """Vector -> one token."""

    def __init__(self, modality: Modality, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(modality.shape[0], width), nn.ReLU(), nn.Linear(width, width), nn.LayerNorm(width)
        )

    def forward(self, x: Tensor) -> Tokens:
        return Tokens(self.layers(x).unsqueeze(1), (1,))


class Conv1d(nn.Module):
    """Sequence [T, C] -> T/4 tokens."""

    def __init__(self, modality: Modality, width: int) -> None:
        super().__init__()
        channels = modality.shape[1]
        self.layers = nn.Sequential(
            nn.Conv1d(channels, width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, padding=1),
        )
        _keep_signal(self.layers)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tokens:
        x = self.layers(x.transpose(1, 2)).transpose(1, 2)
        return Tokens(self.norm(x), (x.shape[1],))


class Conv2d(nn.Module):
    """Image [C, H, W] -> the last map of a small conv net: even sides, at most 8 cells on the shorter one."""

    def __init__(self, modality: Modality, width: int) -> None:
        super().__init__()
        channels, height, breadth = modality.shape
        halvings = max(1, math.ceil(math.log2(min(height, breadth) / 8)))
        strides = [1] * (2 - halvings) + [2] * halvings + [1]
        layers: list[nn.Module] = []
        for i, stride in enumerate(strides):
            out = width if i == len(strides) - 1 else max(8, width >> (len(strides) - 1 - i))
            # Continuous attention regresses on a grid with even sides, so 14 becomes 8, not 7.
            padding = (_padding(height, stride), _padding(breadth, stride))
            height, breadth = _convolved(height, stride, padding[0]), _convolved(breadth, stride, padding[1])
            layers += [nn.Conv2d(channels, out, 3, stride=stride, padding=padding), nn.ReLU()]
            channels = out
        self.layers = nn.Sequential(*layers[:-1])
        _keep_signal(self.layers)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tokens:
        x = self.layers(x)
        grid = (x.shape[2], x.shape[3])
        return Tokens(self.norm(x.flatten(2).transpose(1, 2)), grid)


def _padding(size: int, stride: int) -> int:
    return 2 if stride == 2 and size % 4 == 2 else 1


def _convolved(size: int, stride: int, padding: int) -> int:
    return (size + 2 * padding - 3) // stride + 1


class _Embedding(nn.Embedding):
    """Of token ids; a word that training hardly has is read as 1, "unknown": its own weights would stay random."""

    def __init__(self, modality: Modality, width: int) -> None:
        super().__init__(modality.known or modality.vocabulary, width, padding_idx=0)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.where(x < self.num_embeddings, 1))


class Gru(nn.Module):
    """Text [L] of token ids -> L tokens, padding masked."""

    def __init__(self, modality: Modality, width: int) -> None:
        super().__init__()
        self.embed = _Embedding(modality, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tokens:
        x = x.long()
        hidden, _ = self.gru(self.embed(x))
        return Tokens(self.norm(hidden), (x.shape[1],), x != 0)


class Transformer(nn.Module):
    """Text [L] of token ids -> L tokens of a one-layer transformer, padding masked."""

    def __init__(self, modality: Modality, width: int) -> None:
        super().__init__()
        self.embed = _Embedding(modality, width)
        self.position = nn.Parameter(torch.randn(modality.shape[0], width) * 0.02)
        self.layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tokens:
        x = x.long()
        mask = x != 0
        # Attention over nothing is NaN: a row of padding alone attends to its first, still masked, token.
        visible = mask | (torch.arange(x.shape[1], device=x.device) == 0)
        hidden = self.layer(self.embed(x) + self.position, src_key_padding_mask=~visible)
        return Tokens(self.norm(hidden), (x.shape[1],), mask)


class TokenFeatures(nn.Module):
    """Token features of a frozen encoder, [C, h, w] or [L, C] -> the same tokens at the recipe's width.

    A text token whose features are all zero is padding.
    """

    def __init__(self, modality: Modality, width: int) -> None:
        super().__init__()
        self.is_map = modality.kind == "image"
        channels = modality.shape[0] if self.is_map else modality.shape[1]
        self.layers = nn.Sequential(nn.Linear(channels, width), nn.ReLU(), nn.Linear(width, width), nn.LayerNorm(width))

    def forward(self, x: Tensor) -> Tokens:
        if self.is_map:
            return Tokens(self.layers(x.flatten(2).transpose(1, 2)), (x.shape[2], x.shape[3]))
        return Tokens(self.layers(x), (x.shape[1],), (x != 0).any(dim=-1))


class FineTuned(nn.Module):
    """A pretrained image encoder (`timm:MODEL`, `open_clip:MODEL/PRETRAINED`), its last map at the recipe's width."""

    def __init__(self, modality: Modality, width: int) -> None:
        super().__init__()
        name = replace(EncoderName.parse(modality.encoder), tokens=True)
        # Planning builds methods on the meta device, where weights cost nothing and mean nothing.
        self.encoder = build(name, modality, load=torch.get_default_device().type != "meta")
        with torch.device("meta"):
            channels = build(name, modality, load=False).probe()[0]
        self.project = nn.Sequential(nn.Linear(channels, width), nn.LayerNorm(width))

    def forward(self, x: Tensor) -> Tokens:
        x = self.encoder(x)
        return Tokens(self.project(x.flatten(2).transpose(1, 2)), (x.shape[2], x.shape[3]))


ENCODERS: dict[str, type[nn.Module]] = {
    "mlp": MLP,
    "conv1d": Conv1d,
    "conv2d": Conv2d,
    "gru": Gru,
    "transformer": Transformer,
    "tokens": TokenFeatures,
}
_DEFAULT = {"vector": "mlp", "sequence": "conv1d", "image": "conv2d", "text": "gru"}


def build_encoder(modality: Modality, width: int) -> nn.Module:
    """The modality's encoder."""
    name = modality.encoder or _DEFAULT[modality.kind]
    if ":" in name:
        return FineTuned(modality, width)
    if name not in ENCODERS:
        raise KeyError(f"no encoder named {name!r} ({modality.name}). {did_you_mean(name, tuple(ENCODERS))}")
    return ENCODERS[name](modality, width)


class Encoders(nn.ModuleDict):
    """One encoder per modality of a task; `only` leaves the others out."""

    def __init__(self, task: Task, width: int, only: tuple[str, ...] | None = None) -> None:
        names = task.names if only is None else only
        super().__init__({m.name: build_encoder(m, width) for m in task.modalities if m.name in names})

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tokens]:
        """Tokens of whichever modalities are given."""
        return {name: encoder(inputs[name]) for name, encoder in self.items() if name in inputs}
