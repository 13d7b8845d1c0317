"""Gated coordination: each modality's code, weighed in the light of all."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from datamodules.options import Natural, NonNegative, Positive
from datamodules.spec import Batch, Task
from methods import Recipe, register
from methods.functional.coordination import cosine_loss
from methods.parts.coordination import PROBE_RATE, Pairwise
from methods.parts.search import LogUniform, Space


@register("gated_coordination")
class GatedCoordination(Pairwise):
    """Gate every modality's code by all modalities, and keep them apart: `z_m = g_m(x_1, .., x_M) * x_m`.

    It is gated fusion without the sum: as many outputs as modalities, g = 1 is the identity. The gate starts at 1/2.
    Paired codes are pulled together by `1 - cos`, beside the task loss. Through its gate a code knows of the other
    modalities: the correlations and probes of single codes in the summary are not those of one modality alone.
    Further options are those of `Pairwise`.

    Args:
        granularity: One gate per modality ("scalar") or per feature ("vector").
    """

    family = "coordination"
    search: ClassVar[Mapping[str, Space]] = {"weight": LogUniform(1e-3, 1.0), "probe_rate": LogUniform(1.0, 100.0)}
    checked = ({}, {"granularity": "scalar", "supervised": False})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        granularity: Literal["scalar", "vector"] = "vector",
        supervised: bool = True,
        weight: NonNegative = 0.1,
        components: Natural = 0,
        probe_rate: Positive = PROBE_RATE,
    ) -> None:
        super().__init__(
            task, recipe, supervised=supervised, weight=weight, components=components, probe_rate=probe_rate
        )
        modalities = len(task.modalities)
        outputs = 1 if granularity == "scalar" else self.components
        self.gate = nn.Linear(modalities * self.components, modalities * outputs)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def gates(self, z: Tensor) -> Tensor:
        """[B, M, 1] or [B, M, k], each between 0 and 1."""
        return torch.sigmoid(self.gate(z.flatten(1))).view(len(z), z.shape[1], -1)

    def codes(self, z: Tensor, present: Tensor) -> Tensor:
        return self.gates(z) * z

    def weights(self, z: Tensor, present: Tensor) -> Tensor:
        return self.gates(z).mean(dim=-1) * present

    def pair_loss(self, a: Tensor, b: Tensor, batch: Batch, rows: Tensor) -> Tensor:
        return cosine_loss(a, b)

    def learned(self) -> tuple[nn.Module | nn.Parameter, ...]:
        return (*super().learned(), self.gate)
