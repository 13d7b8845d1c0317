"""Concatenation: the baseline every fusion has to beat."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from datamodules.options import Count
from datamodules.spec import Task
from methods import Method, Recipe, register
from methods.parts.search import OneOf, Space


@register("concat")
class Concat(Method):
    """Concatenate the encodings and mix them with one hidden layer.

    Args:
        hidden: Width of the hidden layer, which is the fused width.
    """

    family = "baseline"
    search: ClassVar[Mapping[str, Space]] = {"hidden": OneOf((64, 128, 256, 512))}

    def __init__(self, task: Task, recipe: Recipe, *, hidden: Count = 128) -> None:
        super().__init__(task, recipe, fused_dim=hidden)
        # Without the hidden layer this would be `additive`.
        self.mix = nn.Sequential(nn.Linear(len(task.modalities) * recipe.width, hidden), nn.ReLU())

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return self.mix(z.flatten(1))
