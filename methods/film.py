"""FiLM: the other modalities scale and shift each modality's features."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from datamodules.options import Count, Positive
from datamodules.spec import Task
from methods import Recipe, Stage, Tokens, register
from methods.additive import Additive
from methods.functional.mixing import from_others, modulate
from methods.parts.search import LogUniform, OneOf, Space


@register("film")
class Film(Additive):
    """Scale and shift the features of each modality's tokens by linear maps of the other modalities.

    `x + relu((1 + scale) V x + shift)` for every token, scale and shift starting at zero; then the mean over tokens and
    additive fusion. (Perez, Strub, de Vries, Dumoulin and Courville, 2018.)

    **Differs from the paper**: one modality conditions another there; here every modality is conditioned by all others,
    their scales and shifts summed, so that an absent one adds exactly nothing. No batch normalisation before the
    modulation, because a row must not depend on the others of its batch.

    Args:
        depth: Modulated layers.
        condition: "none" is the twin: the same layers without scales and shifts.
        generator_rate: Multiple of the recipe's learning rate for the maps that make scales and shifts.
    """

    family = "fusion"
    search: ClassVar[Mapping[str, Space]] = {"depth": OneOf((1, 2, 3)), "generator_rate": LogUniform(0.1, 10.0)}
    checked: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"depth": 2, "generator_rate": 0.3}, {"condition": "none"})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        depth: Count = 1,
        condition: Literal["others", "none"] = "others",
        generator_rate: Positive = 1.0,
    ) -> None:
        super().__init__(task, recipe)
        count, width = len(task.modalities), recipe.width
        self.depth, self.condition, self.generator_rate = depth, condition, generator_rate
        self.project = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(width, width, bias=False) for name in task.names}) for _ in range(depth)
        )
        generators = depth if condition == "others" else 0
        shape = (count, count, width, width)  # [m, j]: from modality j to m
        self.scale = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for _ in range(generators))
        self.shift = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for _ in range(generators))

    def pool(self, tokens: dict[str, Tokens], present: Tensor) -> Tensor:
        means = super().pool(tokens, present)
        for layer, project in enumerate(self.project):
            scale = shift = torch.zeros_like(means)
            if self.condition == "others":
                scale = from_others(means, self.scale[layer], present)
                shift = from_others(means, self.shift[layer], present)
            for m, name in enumerate(self.task.names):
                if name in tokens:
                    x = tokens[name].x
                    change = modulate(project.get_submodule(name)(x), scale[:, m : m + 1], shift[:, m : m + 1])
                    tokens = {**tokens, name: tokens[name]._replace(x=x + change.relu())}
        return super().pool(tokens, present)

    def stages(self) -> tuple[Stage, ...]:
        if self.generator_rate == 1 or self.condition == "none":
            return super().stages()
        return (Stage(self, rates=((self.scale, self.generator_rate), (self.shift, self.generator_rate))),)
