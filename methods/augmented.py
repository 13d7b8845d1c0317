"""Noise augmentation: EMMA's honest twin, the same corrupted batches and steps without EMMA."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from datamodules.spec import Task
from methods import Base, Recipe, Stage, Wrapper, register
from methods.base import Method
from methods.parts.augmentation import augment, closing_loss, decoder


@register("augmented")
class Augmented(Wrapper):
    """Train the base, then go on with its decoder on batches with corrupted modalities.

    `finetune = "decoder"` learns what EMMA may learn besides its attention; `"all"` the encoders too.

    Args:
        base: The method that is trained first.
        finetune: What is learnt on corrupted batches: the decoder, or all.
    """

    family = "augmented"
    track = "augmented"
    drop_only = False
    checked = ({}, {"finetune": "all"})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        base: Base = Base("concat"),
        finetune: Literal["decoder", "all"] = "decoder",
    ) -> None:
        super().__init__(task, recipe, base)
        self.finetune = finetune

    def stages(self) -> tuple[Stage, ...]:
        learn = decoder(self.base) if self.finetune == "decoder" else (self.base,)
        corrupted = partial(augment, self.task, drop_only=self.drop_only)
        # No early stopping: twins are compared after equal steps.
        loss = closing_loss(self.base)
        own = Stage(self, name="augmented", learn=learn, loss=loss, augment=corrupted, stop_early=False)
        return self.in_halves(self.base.stages(), (own,))

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        return Method.applies_to(task, {}) or super().applies_to(task, options)
