"""Transformer fusion: the tokens of all modalities attend to each other."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from datamodules.options import Count
from datamodules.spec import Task
from methods import Method, Recipe, Tokens, register
from methods.parts.search import OneOf, Space


@register("transformer")
class Transformer(Method):
    """One small transformer over all tokens, with learned modality and position embeddings and a class token.

    Source: Vaswani et al., 2017.

    Args:
        layers: Of self-attention.
        heads: Of attention; must divide the recipe's width.
    """

    family = "baseline"
    search: ClassVar[Mapping[str, Space]] = {"layers": OneOf((1, 2, 3)), "heads": OneOf((2, 4, 8))}
    pools_apart = False

    def __init__(self, task: Task, recipe: Recipe, *, layers: Count = 1, heads: Count = 4) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)
        width = recipe.width
        if width % heads:
            raise ValueError(f"transformer: `heads` must divide the width {width}, got {heads}")
        self.start = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.kind = nn.ParameterDict({n: nn.Parameter(torch.randn(width) * 0.02) for n in task.names})
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.width = width

    def pool(self, tokens: dict[str, Tokens], present: Tensor) -> Tensor:
        rows = len(present)
        # The class token is always visible: attention over nothing would be NaN.
        parts = [self.start.expand(rows, -1, -1)]
        visible = [torch.ones(rows, 1, dtype=torch.bool, device=present.device)]
        for m, name in enumerate(self.task.names):
            x = tokens[name].x
            parts.append(x + self.kind[name] + _positions(x.shape[1], self.width, x))
            mask = tokens[name].mask
            here = present[:, m : m + 1].expand(-1, x.shape[1])
            visible.append(here if mask is None else here & mask)
        x, hidden = torch.cat(parts, dim=1), ~torch.cat(visible, dim=1)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=hidden)
        summary = self.norm(x[:, 0])
        # The class token has seen every modality: it stands at each one that is present.
        return summary.unsqueeze(1).expand(-1, len(self.task.names), -1)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return z.sum(dim=1) / present.sum(dim=1, keepdim=True).clamp_min(1)


def _positions(length: int, width: int, like: Tensor) -> Tensor:
    """Sinusoidal positions [L, D]: the mean pool of other methods discards position, a transformer should not."""
    position = torch.arange(length, device=like.device, dtype=like.dtype).unsqueeze(1)
    rate = torch.exp(torch.arange(0, width, 2, device=like.device, dtype=like.dtype) * (-9.21 / width))
    angles = position * rate
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width] * 0.1
