"""Deep canonically correlated autoencoders."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.spec import Batch, Task
from methods import Output, Recipe, register
from methods.dcca import Dcca
from methods.parts.coordination import row_mean
from methods.parts.raw_views import flat_width, flatten


@register("dccae")
class Dccae(Dcca):
    """Deep CCA whose codes must also rebuild their own modality.

    Adds `reconstruction` times the squared error, averaged over rows *and* features and summed over modalities, of a
    decoder from each code to the modality as a vector (a text as its word counts). With 0 it is `dcca`, to the bit.

    Args:
        reconstruction: Weight of the decoders' error, lambda.
        components: Width k of a code; 0 means a sixth of the batch size, at most 20 or the recipe's width.
        norm: "nuclear" (sum of correlations) or "frobenius" (sum of squares, smooth).
        ridge: Added to the diagonal of the batch covariances.
        supervised: Train on task and coordination together.
        weight: Of the coordination loss.
    """

    family = "coordination"

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        reconstruction: float = 0.1,
        components: int = 0,
        norm: Literal["nuclear", "frobenius"] = "nuclear",
        ridge: float = 1e-2,
        supervised: bool = False,
        weight: float = 1.0,
    ) -> None:
        if not reconstruction >= 0:
            raise ValueError(f"dccae: `reconstruction` must be >= 0, got {reconstruction!r}")
        super().__init__(
            task, recipe, components=components, norm=norm, ridge=ridge, supervised=supervised, weight=weight
        )
        self.reconstruction = reconstruction
        # Built last, and not at all without a loss that trains them: what dcca has is drawn as dcca draws it.
        self.decoders = nn.ModuleList(
            nn.Sequential(nn.Linear(self.components, recipe.width), nn.ReLU(), nn.Linear(recipe.width, flat_width(m)))
            for m in (task.modalities if reconstruction else ())
        )

    def rebuild(self, out: Output, batch: Batch) -> Tensor:
        """Mean squared error over rows and features, summed over modalities, each over the rows that have it."""
        errors = []
        for m, decoder in enumerate(self.decoders):
            rows, modality = batch.present[:, m], self.task.modalities[m]
            x = flatten(modality, batch.inputs[modality.name][rows])
            errors.append(row_mean(F.mse_loss(decoder(out.z[rows, m]), x, reduction="none").mean(dim=1)))
        return torch.stack(errors).sum()

    def coordinate(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        terms = super().coordinate(out, batch)
        if self.reconstruction:
            terms["reconstruction"] = self.reconstruction * self.rebuild(out, batch)
        return terms

    def learned(self) -> tuple[nn.Module | nn.Parameter, ...]:
        return (*super().learned(), self.decoders)
