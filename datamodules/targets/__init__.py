"""What the rows of a task are to tell: how that is learnt, predicted, scored and spelt.

A target is one class, registered like a method: `@register_target("ordinal") class Ordinal(Target)`. Importing this
package does not import torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from datamodules.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from datamodules.spec import Task

targets = Registry("target", "datamodules.targets", "polymodal.targets", decorator="register_target")
register_target = targets.register


class Computed(Protocol):
    """What a prediction may look at of a forward pass: `z` [B, M, D], `fused` [B, F], `logits` [B, O]."""

    @property
    def z(self) -> Tensor: ...

    @property
    def fused(self) -> Tensor: ...

    @property
    def logits(self) -> Tensor: ...


class Target(ABC):
    """The target of a task.

    Attributes:
        metrics: Names of the scores that a task may choose from; the first is the default.
        ks: Of the recalls at K, by default; empty where nothing is ranked.
        labelled: Rows have something to learn from besides each other.
        ranked: A row is scored by the rank of its first right answer among the other rows.
        one_class: A row's target is one class, and the softmax of the logits are the classes' probabilities.
        independent: Every output is a probability of its own: the sigmoid of its logit.
        probed: The best linear map from frozen codes to the outputs can be solved for.
    """

    metrics: tuple[str, ...]
    ks: ClassVar[tuple[int, ...]] = ()
    labelled: ClassVar[bool] = True
    ranked: ClassVar[bool] = False
    one_class: ClassVar[bool] = False
    independent: ClassVar[bool] = False
    probed: ClassVar[bool] = True

    def __init__(self, task: Task) -> None:
        self.task = task

    @abstractmethod
    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """The supervised loss, averaged over rows."""

    @abstractmethod
    def prediction(self, out: Computed) -> Tensor:
        """What has to be remembered of rows to score them: class, labels, values, or the embedding that is ranked."""

    @abstractmethod
    def scores(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """Every score of the rows, from what is `kept` of each; the task's own metric is among them."""

    @abstractmethod
    def trivial(self, train: Tensor, test: Tensor, gallery: Tensor | None = None) -> float:
        """The task's score, on the test split, of who never looks at the inputs: majority, mean, random ranking."""

    def kept(self, predicted: Tensor, target: Tensor, gallery: Tensor | None = None) -> Tensor:
        """What is kept of each row of a whole split: its prediction, or its rank. `gallery` as in `Split`."""
        return predicted

    def evaluate(self, predicted: Tensor, target: Tensor, gallery: Tensor | None = None) -> dict[str, float]:
        """Every score of a whole split."""
        return self.scores(self.kept(predicted, target, gallery), target)

    def always(self, constant: Tensor, test: Tensor) -> float:
        """The task's score of one prediction for all rows."""
        return self.scores(constant.repeat(len(test), *[1] * constant.dim()), test)[self.task.metric]

    def counts(self, target: Tensor) -> Tensor:
        """How often the rows have each output, `[O]`, for its prior probability."""
        return target.long().bincount(minlength=self.task.num_outputs)

    def fault(self, target: Tensor) -> str:
        """What is wrong with the targets of a split; empty if nothing is."""
        return ""

    def faults(self, splits: Mapping[Any, Tensor]) -> Iterator[str]:
        """What is wrong with the targets of a dataset."""
        for name, target in splits.items():
            if fault := self.fault(target):
                yield f"{name}: {fault}"
            if target.is_floating_point() and not target.isfinite().all():
                yield f"{name}: targets are not finite"

    def spell(self, target: Tensor) -> str:
        """The target of one row, for people."""
        if target.dim() == 0 and not target.is_floating_point():
            return self.label(int(target))
        return ", ".join(f"{value:.2f}" for value in target.flatten()[:3].tolist())

    def label(self, output: int) -> str:
        """The name of an output, or its number."""
        names = self.task.class_names
        return names[output] if 0 <= output < len(names) else str(output)

    @property
    def classifies(self) -> bool:
        """Whether rows of all splits have one of the same classes: their probabilities can be right or wrong."""
        return self.one_class and not self.ranked

    @property
    def numeric(self) -> bool:
        """Whether the outputs are values, and no probabilities."""
        return self.labelled and not self.one_class and not self.independent
