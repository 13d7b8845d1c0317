"""One modality alone: what fusion has to add to."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from datamodules.registry import did_you_mean
from datamodules.spec import Task
from methods import Method, Recipe, register
from methods.parts.encoders import Encoders


@register("unimodal")
class Unimodal(Method):
    """Predict from one modality; a bare name in a matrix stands for one entry per modality.

    Args:
        modality: Its name; empty is the first of the task.
    """

    family = "baseline"

    def __init__(self, task: Task, recipe: Recipe, *, modality: str = "") -> None:
        modality = modality or task.names[0]
        if modality not in task.names:
            raise ValueError(f"unimodal: no modality {modality!r} in {task.name}. {did_you_mean(modality, task.names)}")
        super().__init__(task, recipe, fused_dim=recipe.width, encoders=Encoders(task, recipe.width, only=(modality,)))
        self.index = task.names.index(modality)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return z[:, self.index]

    @classmethod
    def variants(cls, task: Task) -> tuple[dict[str, Any], ...]:
        return tuple({"modality": name} for name in task.names)

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        modality = options.get("modality")
        if modality and modality not in task.names:
            return f"{task.name} has no modality {modality!r}"
        return super().applies_to(task, options)
