"""What the contract of a method passes around: the recipe, a forward pass, frozen encodings, a stage of training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from msgspec import Meta
from torch import Tensor, nn

from datamodules.options import Count, NonNegative, Positive, check_fields
from datamodules.spec import Batch
from methods.parts.encoders import Tokens

if TYPE_CHECKING:
    from methods.base import Method


@dataclass(frozen=True)
class Recipe:
    """The training budget, shared by all methods of a matrix on a dataset: fairness is structural.

    Attributes:
        width: D, of every encoder's tokens.
        epochs: At most, of all stages of a method together: total steps are the budget (`share_epochs`).
        batch_size: Global, whatever the number of devices; smaller where the training rows are few.
        patience: Epochs without a better validation score before a stage ends; never before a tenth of `epochs`.
        dropout: Of the encoders' tokens and of the head's input.
    """

    width: Count = 64
    epochs: Count = 30
    batch_size: Count = 128
    lr: Positive = 1e-3
    weight_decay: NonNegative = 1e-4
    patience: Count = 8
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.0

    def __post_init__(self) -> None:
        check_fields("recipe", self)


class Output(NamedTuple):
    """Everything a forward pass computed.

    `z` [B, M, D], `fused` [B, F], `logits` [B, O]. Nothing is left on the module.
    """

    tokens: dict[str, Tokens]
    z: Tensor
    fused: Tensor
    logits: Tensor


class Encoded(NamedTuple):
    """A batch of frozen encodings, for closed-form stages and summaries."""

    z: Tensor
    present: Tensor
    target: Tensor
    row: Tensor


@dataclass(frozen=True)
class Stage:
    """One fit: by gradient, or closed-form when `solve` is given.

    Attributes:
        method: Whose stations run and who is fitted.
        learn: What is fitted; empty means all of `method`. Everything else is frozen and in eval mode.
        loss: "terms": the named terms replace the task loss (contrastive, hard gates).
        select: The best epoch is chosen by the validation metric (by the task's loss where validation rows are few), or
            by the loss of the stage when labels are not used; "last" takes the last one, for a probe that must not
            look at validation rows.
        terms: Functions (output, batch) -> named loss terms; None means `method.auxiliary`.
        augment: (batch, key) -> batch, a pure function of both; only on the augmented track.
        solve: Receives a re-iterable stream of the frozen, encoded training split.
        rates: Multiples of the recipe's learning rate for some parameters, which also escape weight decay (proxies).
        stop_early: False runs all epochs: twins that must be compared at equal steps.
        share: Of the recipe's epochs, relative to the other stages'.
        epochs: At most, where its share is more: a probe is short, and leaves the rest to the others.
    """

    method: Method
    name: str = "train"
    learn: tuple[nn.Module | nn.Parameter, ...] = ()
    loss: Literal["task", "terms"] = "task"
    select: Literal["metric", "loss", "last"] = "metric"
    terms: tuple[Callable[[Output, Batch], dict[str, Tensor]], ...] | None = None
    augment: Callable[[Batch, int], Batch] | None = None
    solve: Callable[[Iterable[Encoded]], None] | None = None
    rates: tuple[tuple[nn.Module | nn.Parameter, float], ...] = ()
    stop_early: bool = True
    share: float = 1.0
    epochs: int | None = None


def parameters_of(part: nn.Module | nn.Parameter) -> list[nn.Parameter]:
    """The parameters of a part of a method."""
    return [part] if isinstance(part, nn.Parameter) else list(part.parameters())


def share_epochs(stages: Sequence[Stage], total: int) -> tuple[int, ...]:
    """Epochs of each stage, 0 of one that is solved: the total by shares, and at least one each."""
    given = [0] * len(stages)
    waiting = [i for i, stage in enumerate(stages) if stage.solve is None]
    left = float(total)
    while waiting:
        unit = left / sum(stages[i].share for i in waiting)
        limits = {i: math.inf if (most := stages[i].epochs) is None else most for i in waiting}
        short = [i for i in waiting if limits[i] < unit * stages[i].share]
        for i in short or waiting:
            given[i] = max(1, math.floor(min(limits[i], unit * stages[i].share) + 1e-9))
            left -= given[i]
        waiting = [i for i in waiting if i not in short] if short else []
        left = max(left, 0.0)
    return tuple(given)


def as_one(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages with shares that add up to 1, so that all of them together count as one."""
    total = sum(stage.share for stage in stages if stage.solve is None)
    return tuple(replace(stage, share=stage.share / total) for stage in stages) if total else tuple(stages)
