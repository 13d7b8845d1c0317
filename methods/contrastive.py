"""Contrastive coordination with a learned temperature (CLIP)."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from datamodules.spec import Batch, Task
from methods import Recipe, register
from methods.functional.coordination import clip_loss
from methods.parts.coordination import Pairwise
from methods.parts.identity import Identity, identities

LARGEST_SCALE = 100.0


@register("contrastive")
class Contrastive(Pairwise):
    """Symmetric InfoNCE between modalities with a learned temperature; zero-shot scores are in the summary.

    The logit scale starts at 1/0.07 and is clamped to 100 after every step. In a distributed run every rank contrasts
    with the rows of all, with exact gradients.

    **Differs from the source**, whose `log sim / sum sim` lacks the exponential and the temperature.

    Args:
        temperature: What the learned temperature starts at.
        same_id: Which rows are no mismatches of each other: see `methods.parts.identity`.
        supervised: Train on task and coordination together.
        weight: Of the coordination loss, beside the task loss.
        components: Width of a code; 0 means the recipe's width.
    """

    family = "coordination"
    gathers = True

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        temperature: float = 0.07,
        same_id: Identity = "auto",
        supervised: bool = False,
        weight: float = 1.0,
        components: int = 0,
    ) -> None:
        if not temperature >= 1 / LARGEST_SCALE:
            raise ValueError(f"contrastive: `temperature` must be >= {1 / LARGEST_SCALE}, got {temperature!r}")
        super().__init__(task, recipe, components, supervised, weight)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))
        self.identify = identities(task, same_id)

    def pair_loss(self, a: Tensor, b: Tensor, batch: Batch, rows: Tensor) -> Tensor:
        ids = self.identify(batch, rows)
        # Gathered only while training: then all ranks step together.
        return clip_loss(a, b, self.log_scale.exp(), ids, distributed=torch.is_grad_enabled())

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        with torch.no_grad():
            self.log_scale.clamp_(max=math.log(LARGEST_SCALE))

    def learned(self) -> tuple[nn.Module | nn.Parameter, ...]:
        return (*super().learned(), self.log_scale)

    def undecayed(self) -> tuple[tuple[nn.Module | nn.Parameter, float], ...]:
        return ((self.log_scale, 1.0),)
