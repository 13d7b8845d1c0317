"""Attention bottlenecks: modalities exchange through a few shared tokens only."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from datamodules.options import Count, Natural
from datamodules.spec import Task
from methods import Method, Recipe, Tokens, register
from methods.functional.mixing import exchange_bottleneck, present_mean
from methods.parts.search import OneOf, Space
from methods.parts.token_attention import check_heads, encoder_layer, visible_tokens, with_positions


@register("bottleneck")
class Bottleneck(Method):
    """Give each modality a transformer of its own and let them exchange through a few shared tokens.

    From `fusion_layer` on, every modality's layer also reads and writes the bottleneck tokens, which are then averaged
    over the modalities that are present. The prediction is the mean over the modalities' class tokens. (MBT: Nagrani,
    Yang, Arnab, Jansen, Schmid and Sun, 2021.)

    **Differs from the paper**: the loss is that of the averaged prediction, which is what is tested; the authors train
    on the mean of the modalities' losses.

    Args:
        bottlenecks: Shared tokens; 0 is the twin without any exchange.
        layers: Of each modality's transformer.
        fusion_layer: The first layer that exchanges, from 0.
        share: One transformer for all modalities: the parameters of `transformer`.
        heads: Of attention; must divide the recipe's width.
    """

    family = "fusion"
    search: ClassVar[Mapping[str, Space]] = {"bottlenecks": OneOf((2, 4, 8)), "heads": OneOf((2, 4, 8))}
    checked: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"bottlenecks": 0}, {"share": True, "fusion_layer": 0})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        bottlenecks: Natural = 4,
        layers: Count = 2,
        fusion_layer: Natural = 1,
        heads: Count = 4,
        share: bool = False,
    ) -> None:
        width = recipe.width
        super().__init__(task, recipe, fused_dim=width)
        check_heads(heads, width)
        if fusion_layer >= layers:
            raise ValueError(f"`fusion_layer` must be below `layers`, {layers}, got {fusion_layer}")
        self.depth, self.fusion_layer = layers, fusion_layer
        self.start = nn.ParameterDict({name: nn.Parameter(torch.randn(width) * 0.02) for name in task.names})
        # Without tokens to share there is nothing to learn.
        self.shared = nn.Parameter(torch.randn(bottlenecks, width) * 0.02) if bottlenecks else None
        stacks = ("all",) if share else task.names
        self.layers = nn.ModuleDict(
            {name: nn.ModuleList(encoder_layer(width, heads) for _ in range(layers)) for name in stacks}
        )
        self.norm = nn.LayerNorm(width)

    def pool(self, tokens: dict[str, Tokens], present: Tensor) -> Tensor:
        names, rows = [n for n in self.task.names if n in tokens], len(present)
        here = present[:, [self.task.names.index(n) for n in names]]
        # The class token is always visible: attention over nothing would be NaN.
        own = {n: torch.cat([self.start[n].expand(rows, 1, -1), with_positions(tokens[n].x)], dim=1) for n in names}
        hidden = {n: ~_first_visible(visible_tokens(tokens[n], here[:, m])) for m, n in enumerate(names)}
        between = None if self.shared is None else self.shared.expand(rows, -1, -1)
        for depth in range(self.depth):
            if between is None or depth < self.fusion_layer:
                own = {n: self._layer(n, depth)(own[n], src_key_padding_mask=hidden[n]) for n in names}
            else:
                own, written = self.exchange(depth, own, hidden, between)
                between = exchange_bottleneck(torch.stack([written[n] for n in names], dim=1), here).to(between.dtype)
        summary = {n: self.norm(own[n][:, 0]) for n in names}
        absent = torch.zeros_like(next(iter(summary.values())))
        return torch.stack([summary.get(n, absent) for n in self.task.names], dim=1)

    def exchange(
        self, depth: int, own: dict[str, Tensor], hidden: dict[str, Tensor], between: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """`[x_m; b_m] = Layer_m([x_m; b])`, every modality from the same b."""
        fed, written = {}, {}
        for name, x in own.items():
            reads = hidden[name].new_zeros(between.shape[:2])
            joined = self._layer(name, depth)(
                torch.cat([x, between], dim=1), src_key_padding_mask=torch.cat([hidden[name], reads], dim=1)
            )
            fed[name], written[name] = joined.split([x.shape[1], between.shape[1]], dim=1)
        return fed, written

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return present_mean(z, present)

    def _layer(self, name: str, depth: int) -> nn.Module:
        stack = self.layers["all" if "all" in self.layers else name]
        assert isinstance(stack, nn.ModuleList)
        return stack[depth]


def _first_visible(visible: Tensor) -> Tensor:
    """With a class token, which everybody sees, in front."""
    return torch.cat([torch.ones_like(visible[:, :1]), visible], dim=1)
