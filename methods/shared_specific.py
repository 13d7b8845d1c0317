"""Shared and specific features: what a missing modality would have shared is taken from the others."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.options import NonNegative
from datamodules.spec import Batch, Task
from methods import Method, Output, Recipe, register
from methods.functional.mixing import compose, shared_distance
from methods.parts.search import LogUniform, Space


@register("shared_specific")
class SharedSpecific(Method):
    """Split each modality by one shared map and one of its own; a missing modality gets the others' shared features.

    Shared codes of a row are pulled together (L1); a linear classifier has to tell the modality from its specific code.
    The fused vector is the concatenation of `shared + W [shared; specific]`. (ShaSpec: Wang, Chen, Ma, Avery, Hull and
    Carneiro, 2023.)

    **Differs from the paper**: the shared map acts on encodings, because our inputs differ in kind where theirs are
    images of one shape; a missing modality gets the mean of the present shared codes, not the first of them; all pairs
    of present modalities are compared, where the code goes round a ring, and absent ones enter no loss.

    Args:
        shared: Weight of the distance between shared codes. It is least when they vanish: see `shared_norm`.
        specific: Weight of the modality classifier.
    """

    family = "fission"
    search: ClassVar[Mapping[str, Space]] = {"shared": LogUniform(0.01, 1.0), "specific": LogUniform(0.01, 1.0)}
    checked: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"shared": 0.0, "specific": 0.0})

    def __init__(self, task: Task, recipe: Recipe, *, shared: NonNegative = 0.1, specific: NonNegative = 0.02) -> None:
        width, count = recipe.width, len(task.modalities)
        super().__init__(task, recipe, fused_dim=count * width)
        self.shared_weight, self.specific_weight = shared, specific
        self.share = nn.Linear(width, width)
        self.own = nn.ModuleList(nn.Linear(width, width) for _ in task.modalities)
        self.residual = nn.Linear(2 * width, width, bias=False)
        # Not built without a loss that trains it.
        self.tell = nn.Linear(width, count) if specific else None

    def specific(self, z: Tensor) -> Tensor:
        """`[B, M, D]`."""
        return torch.stack([own(x) for own, x in zip(self.own, z.unbind(dim=1), strict=True)], dim=1)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return compose(self.share(z), self.specific(z), self.residual.weight, present).flatten(1)

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        terms = {}
        if self.shared_weight:
            terms["shared"] = self.shared_weight * shared_distance(self.share(out.z), batch.present)
        if self.tell is not None:
            guesses = self.tell(self.specific(out.z)[batch.present]).float()
            modality = batch.present.nonzero()[:, 1]
            terms["specific"] = self.specific_weight * F.cross_entropy(guesses, modality)
        return terms

    def diagnose(self, out: Output, present: Tensor) -> dict[str, Tensor]:
        return {"shared_norm": self.share(out.z)[present].norm(dim=-1)}
