"""Cross-modal attention: the tokens of each modality look at those of every other."""

from collections.abc import Mapping
from itertools import permutations
from typing import Annotated, Any, ClassVar

import torch
from msgspec import Meta
from torch import Tensor, nn

from datamodules.options import Count, Natural
from datamodules.spec import Task
from methods import Method, Recipe, Tokens, register
from methods.functional.mixing import present_mean
from methods.parts.attention import attended_names
from methods.parts.search import OneOf, Space
from methods.parts.token_attention import (
    Attend,
    check_heads,
    encoder_layer,
    one_visible,
    visible_tokens,
    with_positions,
)


class CrossBlock(nn.Module):
    """A pre-norm block in which one modality's tokens query another's."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.last_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend = Attend(width, heads, dropout)
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(2 * width, width)
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, h: Tensor, other: Tensor, visible: Tensor) -> Tensor:
        h = h + self.drop(self.attend(self.norm(h), self.norm(other), visible))
        return h + self.drop(self.feed(self.last_norm(h)))


@register("cross_attention")
class CrossAttention(Method):
    """Let each modality's tokens query the tokens of every other modality, direction by direction.

    For every ordered pair a few cross-attention blocks, whose keys and values stay the other modality's first tokens;
    then self-attention, the mean over tokens, and a residual layer on the concatenation. (MulT: Tsai, Bai, Liang,
    Kolter, Morency and Salakhutdinov, 2019.)

    **Differs from the paper**: the results of several sources are averaged over those that are present, not
    concatenated (the same for two modalities), so that the width stays and an absent source drops out; the mean over
    tokens that are no padding, not the last step; padding is masked, and nothing is causal.

    Args:
        layers: Cross-attention blocks of a direction.
        memory: Self-attention layers after them.
        heads: Of attention; must divide the recipe's width.
        dropout: In the attention layers.
    """

    family = "fusion"
    search: ClassVar[Mapping[str, Space]] = {"layers": OneOf((1, 2)), "heads": OneOf((2, 4, 8))}
    checked: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"layers": 2, "memory": 0, "dropout": 0.1})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        layers: Count = 1,
        memory: Natural = 1,
        heads: Count = 4,
        dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
    ) -> None:
        width = recipe.width
        joint = len(task.modalities) * width
        super().__init__(task, recipe, fused_dim=joint)
        check_heads(heads, width)
        self.cross = nn.ModuleDict(
            {
                _direction(source, name): nn.ModuleList(CrossBlock(width, heads, dropout) for _ in range(layers))
                for source, name in permutations(task.names, 2)
            }
        )
        self.memory = nn.ModuleDict(
            {name: nn.ModuleList(encoder_layer(width, heads, dropout) for _ in range(memory)) for name in task.names}
        )
        self.mix = nn.Sequential(nn.Linear(joint, joint), nn.ReLU(), nn.Linear(joint, joint))

    def pool(self, tokens: dict[str, Tokens], present: Tensor) -> Tensor:
        names = self.task.names
        seen = {name: visible_tokens(t, present[:, names.index(name)]) for name, t in tokens.items()}
        placed = {name: with_positions(t.x) for name, t in tokens.items()}
        summaries = {}
        for m, name in enumerate(names):
            if name not in tokens:
                continue
            x = placed[name]
            sources = [j for j, other in enumerate(names) if j != m and other in tokens]
            if sources:
                heard = torch.stack([self.listen(names[j], name, x, placed, seen) for j in sources], dim=1)
                here = present[:, sources]
                x = torch.where(here.any(dim=1)[:, None, None], present_mean(heard, here).to(x.dtype), x)
            for layer in self.memory[name].children():
                x = layer(x, src_key_padding_mask=~one_visible(seen[name]))
            summaries[name] = tokens[name]._replace(x=x)
        return super().pool(summaries, present)

    def listen(self, source: str, name: str, x: Tensor, placed: dict[str, Tensor], seen: dict[str, Tensor]) -> Tensor:
        """Modality `name` after what `source` had to say."""
        for block in self.cross[_direction(source, name)].children():
            x = block(x, placed[source], seen[source])
        return x

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        joint = z.flatten(1)
        return joint + self.mix(joint)

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        if not attended_names(task):
            return "needs a modality with several tokens: over one token, attention is constant"
        return super().applies_to(task, options)


def _direction(source: str, name: str) -> str:
    return f"{source}_to_{name}"
