"""Gradient modulation: slow the encoder of the modality that is ahead."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from datamodules.options import Fraction, NonNegative
from datamodules.spec import Batch, Task
from methods import Base, Output, Recipe, Stage, Wrapper, register
from methods.functional.balance import modulation
from methods.parts.decisions import row_losses
from methods.parts.search import Space, Uniform


@register("gradient_modulation")
class GradientModulation(Wrapper):
    """Slow the encoder of the modality that alone predicts better than the others do, while training the base.

    The learning rate of its encoder is multiplied by `1 - tanh(alpha rho)`, rho its mean probability of the true class
    over that of the others; noise of the gradients' own spread is added to what the encoders learn from. (OGM-GE: Peng,
    Wei, Deng, Wang and Hu, 2022.)

    **Differs from the paper**: the step is scaled, not the gradient, because AdamW divides a constant factor of the
    gradient out again (for plain SGD the two are one); all tensors of an encoder, not convolutions only; a modality's
    score is that of the base without the others, and exp(-loss) makes it defined for any task; with more than two
    modalities the reference is the mean of the others, where the authors' own extensions disagree.

    Args:
        base: Which is trained.
        alpha: Strength; 0 without noise is the base itself.
        noise: Add the noise.
        until: Share of the epochs that are modulated.
    """

    family = "balance"
    search: ClassVar[Mapping[str, Space]] = {"alpha": Uniform(0.1, 0.8)}
    checked: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"base": Base("concat"), "noise": False, "until": 1.0})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        base: Base = Base("additive"),
        alpha: NonNegative = 0.3,
        noise: bool = True,
        until: Fraction = 2 / 3,
    ) -> None:
        super().__init__(task, recipe, base)
        self.alpha, self.noise, self.until = alpha, noise, until

    @property
    def modulates(self) -> bool:
        """Whether this epoch is modulated."""
        return self.current_epoch < self.until * self.recipe.epochs

    def pace(self, out: Output, batch: Batch) -> Tensor | None:
        return modulation(self.alone(out, batch), batch.present, self.alpha) if self.modulates else None

    def alone(self, out: Output, batch: Batch) -> Tensor:
        """The loss of every row with each modality alone, `[B, M]`; of what a row does not have, anything."""
        self.base.train(False)  # neither dropout nor noise in a measurement, nor a random number taken from training
        decided = []
        for m in range(len(self.task.modalities)):
            only = torch.zeros_like(batch.present)
            only[:, m] = batch.present[:, m]
            decided.append(self.base.complete(out.tokens, only).logits)
        self.train(True)
        return row_losses(self.task, torch.stack(decided, dim=1), batch.target)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        if not (self.noise and self.modulates):
            return
        # By (seed, step), drawn on the CPU: the same on all ranks and devices, and not from training's own stream.
        generator = torch.Generator().manual_seed(self.augment_seed + 1 + self.global_step)
        for group in optimizer.param_groups:
            for p in group["params"] if "modality" in group else ():
                if p.grad is not None and p.grad.numel() > 1:
                    noise = torch.randn(p.grad.shape, generator=generator).to(p.grad)
                    p.grad.add_(noise * p.grad.std())

    def stages(self) -> tuple[Stage, ...]:
        return tuple(
            replace(stage, method=self) if stage.method is self.base and stage.solve is None else stage
            for stage in self.base.stages()
        )

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        return super().applies_to(task, options) or cls.needs_own_encoders(task, options)
