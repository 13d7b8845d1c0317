"""Contrastive coordination with a margin."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import Tensor

from datamodules.options import Natural, NonNegative, Positive
from datamodules.spec import Batch, Task
from methods import Recipe, register
from methods.functional.coordination import hinge_loss
from methods.parts.coordination import PROBE_RATE, Pairwise
from methods.parts.identity import Identity, identities
from methods.parts.search import LogUniform, Space


@register("contrastive_hinge")
class ContrastiveHinge(Pairwise):
    """A pair must be more similar than its mismatches, by a margin: `[margin - s_ii + s_ij]_+`.

    Source: Frome et al., 2013 (mean); Faghri et al., 2018 (hardest). Further options are those of `Pairwise`.

    **Differs from the lecture**, whose sign is inverted and makes pairs dissimilar.

    Args:
        margin: Between the cosine of a pair and that of a mismatch.
        negatives: "mean" over the batch, or the "hardest" per row.
        same_id: Which rows are no mismatches of each other: see `methods.parts.identity`.
    """

    family = "coordination"
    search: ClassVar[Mapping[str, Space]] = {"margin": LogUniform(0.05, 0.8), "probe_rate": LogUniform(1.0, 100.0)}
    checked = ({}, {"negatives": "hardest"}, {"supervised": True})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        margin: Positive = 0.2,
        negatives: Literal["mean", "hardest"] = "mean",
        same_id: Identity = "auto",
        supervised: bool = False,
        weight: NonNegative = 1.0,
        components: Natural = 0,
        probe_rate: Positive = PROBE_RATE,
    ) -> None:
        super().__init__(
            task, recipe, supervised=supervised, weight=weight, components=components, probe_rate=probe_rate
        )
        self.margin = margin
        self.negatives: Literal["mean", "hardest"] = negatives
        self.identify = identities(task, same_id)

    def pair_loss(self, a: Tensor, b: Tensor, batch: Batch, rows: Tensor) -> Tensor:
        return hinge_loss(a, b, self.margin, self.negatives, self.identify(batch, rows))
