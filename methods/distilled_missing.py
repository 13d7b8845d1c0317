"""Distillation for missing modalities: a student on incomplete rows keeps the geometry of its complete teacher."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from datamodules.options import NonNegative
from datamodules.spec import Batch, Task
from methods import Base, Output, Recipe, Stage, Wrapper, register
from methods.base import Method
from methods.functional.balance import margin_distillation
from methods.parts.augmentation import augment
from methods.parts.search import LogUniform, Space


@register("distilled_missing")
class DistilledMissing(Wrapper):
    """Train a teacher on complete rows, then a student whose modalities go missing, to keep the teacher's similarities.

    The similarities of a batch's fused vectors are compared, rows the teacher is unsure of counting more: those near
    its decision boundary. The teacher sees each row before modalities went missing. (MMANet's margin-aware
    distillation: Wei, Luo and Luo, 2023.)

    **Differs from the paper**: rows are weighed, which is the idea, where the code weighs columns (`by`); the
    regularisation of weak combinations is left out: its head is written for three modalities and chosen on the test
    split; distillation runs from the first step.

    Args:
        base: Of the teacher and, built a second time, of the student.
        distil: Weight of the distillation.
        by: What a row's uncertainty weighs.
    """

    family = "augmented"
    search: ClassVar[Mapping[str, Space]] = {"distil": LogUniform(0.1, 10.0)}
    track = "augmented"
    checked: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"base": Base("shared_specific"), "by": "column"})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        base: Base = Base("concat"),
        distil: NonNegative = 1.0,
        by: Literal["row", "column"] = "row",
    ) -> None:
        # First: the teacher is the base's own cell, weight by weight.
        teacher = base.build(task, recipe)
        super().__init__(task, recipe, base)
        self.teacher = teacher
        self.distil = distil
        self.by: Literal["row", "column"] = by

    def imitate(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        """How far the student's similarities are from the teacher's."""
        assert batch.corrupted is not None
        with torch.no_grad():  # going missing clears `present`, and the inputs are still there
            taught = self.teacher(batch.inputs, batch.present | batch.corrupted)
        unsure = taught.logits if self.task.goal.one_class else None
        return {"distil": self.distil * margin_distillation(out.fused, taught.fused, unsure, self.by)}

    def stages(self) -> tuple[Stage, ...]:
        dropping = partial(augment, self.task, drop_only=True)
        student = Stage(
            self,
            name="student",
            learn=(self.base,),
            terms=(self.base.auxiliary, self.imitate),
            augment=dropping,
            stop_early=False,  # twins are compared after equal steps
        )
        return self.in_halves(self.teacher.stages(), (student,))

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        reason = Method.applies_to(task, {}) or super().applies_to(task, options)
        return reason or cls.needs_plain_training(task, options)
