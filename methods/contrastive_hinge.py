"""Contrastive coordination with a margin."""

from typing import Literal

import torch
from torch import Tensor

from datamodules.spec import Batch, Task
from methods import Recipe, register
from methods.functional.coordination import hinge_loss
from methods.parts.coordination import Pairwise
from methods.parts.identity import Identity, identities


@register("contrastive_hinge")
class ContrastiveHinge(Pairwise):
    """A pair must be more similar than its mismatches, by a margin: `[margin - s_ii + s_ij]_+`.

    **Differs from the source**, whose sign is inverted and makes pairs dissimilar.

    Args:
        margin: Between the cosine of a pair and that of a mismatch.
        negatives: "mean" over the batch, or the "hardest" per row (VSE++).
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
        margin: float = 0.2,
        negatives: Literal["mean", "hardest"] = "mean",
        same_id: Identity = "auto",
        supervised: bool = False,
        weight: float = 1.0,
        components: int = 0,
    ) -> None:
        if not margin > 0:
            raise ValueError(f"contrastive_hinge: `margin` must be > 0, got {margin!r}")
        if negatives not in ("mean", "hardest"):
            raise ValueError(f"contrastive_hinge: `negatives` must be 'mean' or 'hardest', got {negatives!r}")
        super().__init__(task, recipe, components, supervised, weight)
        self.margin = margin
        self.negatives: Literal["mean", "hardest"] = negatives
        self.identify = identities(task, same_id)

    def pair_loss(self, a: Tensor, b: Tensor, batch: Batch, rows: Tensor) -> Tensor:
        ids = self.identify(batch, rows)
        # Gathered only while training: then all ranks step together.
        return hinge_loss(a, b, self.margin, self.negatives, ids, distributed=torch.is_grad_enabled())
