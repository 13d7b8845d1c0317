"""Deep canonically correlated autoencoders."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import Tensor, nn

from datamodules.options import Natural, NonNegative, Positive
from datamodules.spec import Batch, Task
from methods import Output, Recipe, register
from methods.dcca import Dcca
from methods.parts.coordination import PROBE_RATE
from methods.parts.reconstruction import decoders, rebuilding_error
from methods.parts.search import LogUniform, Space


@register("dccae")
class Dccae(Dcca):
    """Deep CCA whose codes must also rebuild their own modality.

    Adds `reconstruction` times the error of a decoder from each code to the modality (`methods.parts.reconstruction`).
    With 0 it is `dcca`, to the bit, whose options the others are.

    Source: Wang et al., 2015.

    Args:
        reconstruction: Weight of the decoders' error, lambda.
    """

    family = "coordination"
    search: ClassVar[Mapping[str, Space]] = {"reconstruction": LogUniform(1e-2, 1.0), "ridge": LogUniform(1e-4, 1e-1)}
    checked = ({}, {"reconstruction": 0.0})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        reconstruction: NonNegative = 0.1,
        components: Natural = 0,
        norm: Literal["nuclear", "frobenius"] = "nuclear",
        ridge: Positive = 1e-2,
        supervised: bool = False,
        weight: NonNegative = 1.0,
        probe_rate: Positive = PROBE_RATE,
    ) -> None:
        super().__init__(
            task,
            recipe,
            components=components,
            norm=norm,
            ridge=ridge,
            supervised=supervised,
            weight=weight,
            probe_rate=probe_rate,
        )
        self.reconstruction = reconstruction
        # Built last, and not at all without a loss that trains them: what dcca has is drawn as dcca draws it.
        self.decoders = decoders(task.modalities if reconstruction else (), self.components, recipe.width)

    def coordinate(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        terms = super().coordinate(out, batch)
        if self.reconstruction:
            error = rebuilding_error(self.task, self.decoders, batch, lambda m, rows: out.z[rows, m])
            terms["reconstruction"] = self.reconstruction * error
        return terms

    def learned(self) -> tuple[nn.Module | nn.Parameter, ...]:
        return (*super().learned(), self.decoders)
