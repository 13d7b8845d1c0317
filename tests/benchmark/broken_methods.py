"""A plugin of methods that break the contract, one way each."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from datamodules.spec import Batch, Task
from methods import Method, Output, Recipe, Stage, register


class Mean(Method):
    """Right: what is absent does not count."""

    family = "test"

    def __init__(self, task: Task, recipe: Recipe) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return z.sum(dim=1) / present.sum(dim=1, keepdim=True)


@register("right")
class Right(Mean):
    """Breaks nothing."""


@register("wide")
class Wide(Mean):
    """Fuses to twice the width it has declared."""

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:  # WIDE
        return torch.cat([z.sum(dim=1), z.sum(dim=1)], dim=1)


@register("no_super")
class NoSuper(Mean):
    """Forgets `super().__init__`."""

    def __init__(self, task: Task, recipe: Recipe) -> None:  # NO_SUPER
        self.head = nn.Linear(recipe.width, task.num_outputs)


@register("bare_term")
class BareTerm(Mean):
    """Returns a tensor where a dict belongs."""

    def auxiliary(self, out: Output, batch: Batch) -> Any:  # BARE_TERM
        return out.z.square().mean()


@register("bare_stage")
class BareStage(Mean):
    """Gives a function where a tuple belongs."""

    def term(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        return {"size": out.z.square().mean()}

    def stages(self) -> tuple[Stage, ...]:  # BARE_STAGE
        return (Stage(self, terms=self.term),)  # pyright: ignore[reportArgumentType]


@register("raises_inside")
class RaisesInside(Mean):
    """Raises in a loss term: in two checks and on every probe."""

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        raise RuntimeError(f"no {len(batch.row)} rows")  # RAISES_INSIDE


@register("no_annotation")
class NoAnnotation(Mean):
    """Has an option that nothing can check."""

    def __init__(self, task: Task, recipe: Recipe, *, rank=3) -> None:  # NO_ANNOTATION
        super().__init__(task, recipe)
        self.rank = rank


@register("unmasked_weights")
class UnmaskedWeights(Mean):
    """Gives absent modalities weight."""

    def __init__(self, task: Task, recipe: Recipe) -> None:
        super().__init__(task, recipe)
        self.score = nn.Linear(recipe.width, 1)

    def weights(self, z: Tensor, present: Tensor) -> Tensor:  # UNMASKED_WEIGHTS
        return self.score(z).squeeze(-1).softmax(dim=1)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return (self.weights(z, present).unsqueeze(-1) * z).sum(dim=1)


@register("ignores_present")
class IgnoresPresent(Mean):
    """Weighs by a softmax that does not know what is absent, and does not say so by `weights`."""

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:  # IGNORES_PRESENT
        return torch.tanh((z.mean(dim=-1, keepdim=True).softmax(dim=1) * z).sum(dim=1))


@register("weighs_by_hand")
class WeighsByHand(Mean):
    """The same without a softmax to be seen."""

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:  # WEIGHS_BY_HAND
        weights = z.mean(dim=-1, keepdim=True).exp()
        return (weights * z).sum(dim=1) / weights.sum(dim=1)


@register("takes_the_best")
class TakesTheBest(Mean):
    """Takes a maximum in which the zeros of what is absent may win."""

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:  # TAKES_THE_BEST
        return z.amax(dim=1).square()


@register("weighs_and_reads")
class WeighsAndReads(Mean):
    """Says that absent modalities have no weight, and reads their encodings."""

    def weights(self, z: Tensor, present: Tensor) -> Tensor:
        return present / present.sum(dim=1, keepdim=True)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:  # WEIGHS_AND_READS
        return (self.weights(z, present).unsqueeze(-1) * (z + z.sum(dim=1, keepdim=True))).sum(dim=1)


@register("cannot_say")
class CannotSay(Mean):
    """Raises when it is asked whether it applies."""

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        raise RuntimeError(f"no idea about {task.name}")  # CANNOT_SAY


@register("cannot_be_built")
class CannotBeBuilt(Mean):
    """Raises in its constructor, for a value that its annotation allows."""

    def __init__(self, task: Task, recipe: Recipe, *, hidden: int = 4) -> None:
        super().__init__(task, recipe)
        self.layer = nn.Linear(recipe.width, hidden - 20)  # CANNOT_BE_BUILT


@register("bad_variant")
class BadVariant(Mean):
    """Right by default; one of the options it declares to be checked is not."""

    checked: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"power": 1}, {"power": 2})

    def __init__(self, task: Task, recipe: Recipe, *, power: int = 1) -> None:
        super().__init__(task, recipe)
        self.power = power

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:  # BAD_VARIANT
        return super().fuse(z, present).repeat(1, self.power)
