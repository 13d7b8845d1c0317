"""Quality-weighted fusion: the energy of a modality's logits says how good it is in this row."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from torch import Tensor

from datamodules.options import NonNegative, Positive
from datamodules.spec import Batch, Task
from methods import Method, Output, Recipe, register
from methods.functional.confidence import energy_confidence, quality_weights, ranking_loss
from methods.parts.decisions import Decisions, needs_classes, present_rows_mean, row_losses, weighted_decision
from methods.parts.row_memory import RowMemory
from methods.parts.search import LogUniform, Space


@register("quality_weighted")
class QualityWeighted(Method):
    """Weigh each modality's decision by its energy, which is taught to rank rows by how hard they have been.

    The weight is `scale * logsumexp` of the modality's logits. Every modality is trained on its own loss too, and of
    two rows the one with the larger loss so far must have the smaller weight. (QMF: Zhang, Wu, Zhang, Hu, Fu, Zhou and
    Peng, 2023.)

    **Differs from the paper**: the ranking runs over all pairs of a batch, not over neighbours; it asks for a margin,
    where the code forgives a slack (`form`); weights are never negative, which would turn votes around, and are not
    taught by the joint loss; rows are ranked once they have a history.

    Args:
        scale: Of the energy.
        rank: Weight of the ranking.
        form: See `ranking_loss`.
    """

    family = "confidence"
    search: ClassVar[Mapping[str, Space]] = {"scale": LogUniform(0.01, 1.0), "rank": LogUniform(0.01, 1.0)}
    checked: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"form": "slack"}, {"rank": 0.0})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        scale: Positive = 0.1,
        rank: NonNegative = 0.1,
        form: Literal["margin", "slack"] = "margin",
    ) -> None:
        super().__init__(task, recipe)
        self.scale, self.rank = scale, rank
        self.form: Literal["margin", "slack"] = form
        self.decisions = Decisions(task, recipe.width)
        self.hardness = RowMemory()

    def weights(self, z: Tensor, present: Tensor) -> Tensor:
        return quality_weights(self.decisions(z), present, self.scale)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return weighted_decision(self.decisions(z), self.weights(z, present))

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        decisions = self.decisions(out.z)
        losses = row_losses(self.task, decisions, batch.target)
        terms = {"single": present_rows_mean(losses, batch.present).sum()}
        if self.rank and self.training:  # in validation, row ids are those of other rows
            hard, known = self.hardness.relative(batch.row, losses)
            confidence = energy_confidence(decisions, self.scale)
            terms["rank"] = self.rank * ranking_loss(confidence, hard, batch.present & known, self.form)
            self.hardness.add(batch.row, losses, batch.present)
        return terms

    def on_fit_start(self) -> None:
        self.hardness.clear()

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        return needs_classes(task)
