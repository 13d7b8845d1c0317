"""Evidential fusion: each modality states evidence for the classes, and Dempster's rule combines it."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from datamodules.options import NonNegative, Positive
from datamodules.spec import Batch, Task
from methods import Method, Output, Recipe, Stage, register
from methods.functional.confidence import combine_evidence, evidential_loss
from methods.functional.mixing import keep_present
from methods.parts.decisions import Decisions, needs_classes, present_rows_mean
from methods.parts.search import LogUniform, Space, Uniform


@register("evidential")
class Evidential(Method):
    """Combine Dirichlet evidence of the modalities by Dempster's rule; who has no evidence is exactly neutral.

    Evidence is softplus of a linear head; the combination has a closed form for any number of modalities, without an
    order. The loss is the expected cross-entropy under the Dirichlet of all and of each modality, with a KL against
    evidence for wrong classes that grows over the first epochs. (TMC: Han, Zhang, Fu and Zhou, 2021.)

    Uncertainty falls even when two modalities contradict each other, and evidence multiplies with their number: it is
    over-confident by construction.

    **Differs from the paper**: the combination is computed from sums of logarithms, never dividing by one minus the
    conflict; the KL reaches its full weight after a share of the recipe's epochs.

    Args:
        anneal: Share of the epochs in which the KL's weight grows to its ceiling.
        kl: The ceiling.
    """

    family = "confidence"
    search: ClassVar[Mapping[str, Space]] = {"anneal": Uniform(0.1, 1.0), "kl": LogUniform(0.01, 1.0)}
    checked: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"anneal": 1.0, "kl": 0.1})

    def __init__(self, task: Task, recipe: Recipe, *, anneal: Positive = 1 / 3, kl: NonNegative = 1.0) -> None:
        super().__init__(task, recipe)
        self.anneal, self.kl = anneal, kl
        self.decisions = Decisions(task, recipe.width)

    def evidence(self, z: Tensor) -> Tensor:
        """`[B, M, C]`, not negative."""
        decided = self.decisions(z)
        return F.softplus(decided.to(torch.promote_types(decided.dtype, torch.float32)))

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        # The softmax of log(1 + e) is the mean of the Dirichlet.
        return combine_evidence(self.evidence(z), present).log1p()

    def weights(self, z: Tensor, present: Tensor) -> Tensor:
        """`1 - u_m`: the belief a modality commits to any class, zero where it is absent."""
        return 1 - self.vacuity(z, present)

    def vacuity(self, z: Tensor, present: Tensor) -> Tensor:
        """`u_m = C / (sum e_m + C)`, one where absent."""
        evidence = keep_present(self.evidence(z), present)
        return evidence.shape[-1] / (evidence.sum(dim=-1) + evidence.shape[-1])

    def uncertainty(self, out: Output, present: Tensor) -> Tensor:
        # The logits are log(1 + e).
        return out.logits.shape[-1] / out.logits.exp().sum(dim=-1)

    def diagnose(self, out: Output, present: Tensor) -> dict[str, Tensor]:
        apart = self.vacuity(out.z, present)
        found = {f"uncertainty_{name}": apart[:, m] for m, name in enumerate(self.task.names)}
        return {"uncertainty": self.uncertainty(out, present), **found}

    def evidence_losses(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        """The evidential loss of the combination, and of every modality over the rows that have it."""
        weight = self.kl * min(1.0, self.current_epoch / (self.anneal * self.recipe.epochs))
        evidence = self.evidence(out.z)
        fused = combine_evidence(evidence, batch.present)
        each = evidential_loss(evidence, batch.target.unsqueeze(1).expand(batch.present.shape), weight)
        apart = zip(self.task.names, present_rows_mean(each, batch.present), strict=True)
        terms = {f"evidence_{name}": loss for name, loss in apart}
        return {"evidence": evidential_loss(fused, batch.target, weight).mean(), **terms}

    def stages(self) -> tuple[Stage, ...]:
        return (Stage(self, loss="terms", terms=(self.evidence_losses,)),)

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        return needs_classes(task)
