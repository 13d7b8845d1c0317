"""Contrastive coordination with a learned temperature (CLIP)."""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from msgspec import Meta
from torch import Tensor, nn

from datamodules.options import Natural, NonNegative, Positive
from datamodules.spec import Batch, Task
from methods import Recipe, register
from methods.functional.coordination import clip_loss
from methods.parts.coordination import PROBE_RATE, Pairwise
from methods.parts.identity import Identity, identities
from methods.parts.search import LogUniform, Space

LOWEST_TEMPERATURE = 0.01


@register("contrastive")
class Contrastive(Pairwise):
    """Symmetric InfoNCE between modalities with a learned temperature.

    Further options are those of `Pairwise`.

    Source: Radford et al., 2021 (CLIP).

    **Differs from the lecture**, whose `log sim / sum sim` lacks the exponential and the temperature.

    Args:
        temperature: What the learned temperature starts at; the loss never uses one below 0.01.
        same_id: Which rows are no mismatches of each other: see `methods.parts.identity`.
    """

    family = "coordination"
    search: ClassVar[Mapping[str, Space]] = {"temperature": LogUniform(0.02, 0.5), "probe_rate": LogUniform(1.0, 100.0)}
    checked = ({}, {"supervised": True})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        temperature: Annotated[float, Meta(ge=LOWEST_TEMPERATURE)] = 0.07,
        same_id: Identity = "auto",
        supervised: bool = False,
        weight: NonNegative = 1.0,
        components: Natural = 0,
        probe_rate: Positive = PROBE_RATE,
    ) -> None:
        super().__init__(
            task, recipe, supervised=supervised, weight=weight, components=components, probe_rate=probe_rate
        )
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))
        self.identify = identities(task, same_id)

    def pair_loss(self, a: Tensor, b: Tensor, batch: Batch, rows: Tensor) -> Tensor:
        return clip_loss(a, b, self.scale(), self.identify(batch, rows))

    def scale(self) -> Tensor:
        """The multiplier of the cosines, at most 100."""
        # What is beyond is taken off without gradient: a clamp would have none, and the scale could not come back.
        beyond = (self.log_scale.detach() + math.log(LOWEST_TEMPERATURE)).clamp(min=0)
        return (self.log_scale - beyond).exp()

    def learned(self) -> tuple[nn.Module | nn.Parameter, ...]:
        return (*super().learned(), self.log_scale)

    def undecayed(self) -> tuple[tuple[nn.Module | nn.Parameter, float], ...]:
        return ((self.log_scale, 1.0),)
