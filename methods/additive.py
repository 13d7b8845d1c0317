"""Additive fusion: a linear map of the concatenation, and so a sum of one linear map per modality."""

from torch import Tensor, nn

from datamodules.spec import Task
from methods import Method, Recipe, register
from methods.functional.fusion import additive


@register("additive")
class Additive(Method):
    """Sum a linear map of each modality."""

    family = "fusion"

    def __init__(self, task: Task, recipe: Recipe) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)
        # One Linear over all: fan_in is the sum of the widths, so a further modality does not grow the variance.
        self.joint = nn.Linear(len(task.modalities) * recipe.width, recipe.width)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        weights = self.joint.weight.split(z.shape[-1], dim=1)
        return additive(z.unbind(dim=1), weights, self.joint.bias)
