"""EmbraceNet: every fused feature is copied from one modality, drawn at random."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from datamodules.options import Count
from datamodules.spec import Task
from methods import Method, Recipe, register
from methods.functional.mixing import embrace
from methods.parts.global_noise import own_uniforms
from methods.parts.search import OneOf, Space


@register("embrace")
class Embrace(Method):
    """Copy each fused feature from one present modality, drawn anew for every row and feature in training.

    Each modality is docked to the fused width by a layer of its own; testing takes the mean over the modalities that
    are present, which gives the expected logits exactly, because the head is linear. (Choi and Lee, 2019.)

    **Differs from the paper**: the authors' code draws when testing too.

    Args:
        multiple: Width of the fused vector in widths of the recipe.
        sample: False is the twin: the mean in training too.
    """

    family = "fusion"
    search: ClassVar[Mapping[str, Space]] = {"multiple": OneOf((1, 2, 4))}
    checked: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"sample": False, "multiple": 2})

    def __init__(self, task: Task, recipe: Recipe, *, multiple: Count = 1, sample: bool = True) -> None:
        wide = multiple * recipe.width
        super().__init__(task, recipe, fused_dim=wide)
        self.sample = sample
        self.dock = nn.ModuleList(nn.Sequential(nn.Linear(recipe.width, wide), nn.ReLU()) for _ in task.modalities)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        docked = torch.stack([dock(x) for dock, x in zip(self.dock, z.unbind(dim=1), strict=True)], dim=1)
        drawn = own_uniforms(docked[:, 0].float()) if self.training and self.sample else None
        return embrace(docked, present, drawn)
