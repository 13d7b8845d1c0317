"""Predicted confidence: trust a modality by the probability of being right that is predicted for it."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from datamodules.options import NonNegative
from datamodules.spec import Batch, Task
from methods import Method, Output, Recipe, register
from methods.functional.confidence import belief_weights
from methods.parts.decisions import (
    Decisions,
    needs_classes,
    present_rows_mean,
    row_losses,
    true_class_probability,
    weighted_decision,
)
from methods.parts.search import LogUniform, Space


@register("predicted_confidence")
class PredictedConfidence(Method):
    """Weigh each modality's decision by its predicted probability of the true class and by the others' lack of it.

    A small network per modality regresses the probability its own decision gives to the true class. When testing, a
    modality whose decision is closer to uniform than the others' are is trusted less. (PDF: Cao, Xia, Ding, Zhang and
    Hu, 2024.)

    **Differs from the paper**: shares of -log p are computed in logarithms, where the authors' added 1e-8 moves a
    negative denominator towards zero; the regressors have a nonlinearity and do not move the encoders. More than two
    modalities: sums over those that are present.

    Args:
        confidence: Weight of the regression.
        calibrate: Use the relative calibration when testing and validating.
    """

    family = "confidence"
    search: ClassVar[Mapping[str, Space]] = {"confidence": LogUniform(0.1, 10.0)}
    checked: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"calibrate": False, "confidence": 3.0})

    def __init__(self, task: Task, recipe: Recipe, *, confidence: NonNegative = 1.0, calibrate: bool = True) -> None:
        super().__init__(task, recipe)
        width = recipe.width
        self.confidence, self.calibrate = confidence, calibrate
        self.decisions = Decisions(task, width)
        self.regressors = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)) for _ in task.modalities
        )

    def scores(self, z: Tensor) -> Tensor:
        """Logits of the predicted confidence, `[B, M]`."""
        apart = z.detach().unbind(dim=1)
        return torch.cat([regress(x) for regress, x in zip(self.regressors, apart, strict=True)], dim=1)

    def weights(self, z: Tensor, present: Tensor) -> Tensor:
        return belief_weights(self.scores(z), self.decisions(z), present, self.calibrate and not self.training)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return weighted_decision(self.decisions(z), self.weights(z, present))

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        decisions = self.decisions(out.z)
        wanted = true_class_probability(decisions, batch.target).detach()
        errors = (self.scores(out.z).float().sigmoid() - wanted).abs()
        losses = row_losses(self.task, decisions, batch.target)
        return {
            "single": present_rows_mean(losses, batch.present).sum(),
            "confidence": self.confidence * present_rows_mean(errors, batch.present).sum(),
        }

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        return needs_classes(task)
