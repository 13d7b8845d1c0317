"""Early fusion: the raw inputs, concatenated, go through one encoder."""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from datamodules.options import Count
from datamodules.spec import Task
from methods import Method, Recipe, Tokens, register
from methods.parts.search import OneOf, Space


class JointEncoder(nn.Module):
    """Flatten and concatenate the inputs (text: embedded), then an MLP."""

    def __init__(self, task: Task, width: int, hidden: int) -> None:
        super().__init__()
        self.embed = nn.ModuleDict(
            {m.name: nn.Embedding(m.vocabulary, 8, padding_idx=0) for m in task.modalities if m.kind == "text"}
        )
        sizes = [math.prod(m.shape) * (8 if m.kind == "text" else 1) for m in task.modalities]
        self.names = task.names
        self.layers = nn.Sequential(
            nn.Linear(sum(sizes), hidden), nn.ReLU(), nn.Linear(hidden, width), nn.ReLU(), nn.LayerNorm(width)
        )

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        parts = [self.embed[n](inputs[n].long()) if n in self.embed else inputs[n] for n in self.names]
        return self.layers(torch.cat([p.flatten(1) for p in parts], dim=1))


@register("early")
class Early(Method):
    """One encoder for the concatenated raw inputs.

    Args:
        hidden: Width of the encoder's hidden layer.
    """

    family = "baseline"
    search: ClassVar[Mapping[str, Space]] = {"hidden": OneOf((64, 128, 256, 512))}
    separable = False

    def __init__(self, task: Task, recipe: Recipe, *, hidden: Count = 256) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width, encoders=JointEncoder(task, recipe.width, hidden))

    def encode(self, inputs: dict[str, Tensor], present: Tensor) -> dict[str, Tokens]:
        joint = Tokens(self.encoders(inputs).unsqueeze(1), (1,))
        return dict.fromkeys(self.task.names, joint)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        # Each present modality carries the same joint encoding.
        return z.sum(dim=1) / present.sum(dim=1, keepdim=True).clamp_min(1)
