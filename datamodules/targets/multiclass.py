"""One of a few classes."""

import torch.nn.functional as F
from torch import Tensor
from torchmetrics.functional.classification import (
    binary_auroc,
    binary_average_precision,
    binary_f1_score,
    multiclass_accuracy,
    multiclass_f1_score,
)

from datamodules.spec import Task
from datamodules.targets import Computed, Target, register_target

RANKING = ("auroc", "average_precision")  # of two classes, by the probability of the second


@register_target("multiclass")
class Multiclass(Target):
    """A class: `[N]`.

    What is kept of a row is its class, or the probability of the second of two classes where the task is scored by how
    rows are ranked by it.
    """

    one_class = True

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        two = task.num_outputs == 2
        common = ("accuracy", "balanced_accuracy", "macro_f1")
        self.metrics = (*common, "f1", *RANKING) if two else common

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(logits, target)

    def prediction(self, out: Computed) -> Tensor:
        if self.task.metric in RANKING:
            return out.logits.float().softmax(dim=-1)[..., 1]
        return out.logits.argmax(dim=-1)

    def scores(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        target, classes = target.long(), self.task.num_outputs
        found: dict[str, float] = {}
        if self.task.metric in RANKING:
            found = {
                "auroc": float(binary_auroc(kept, target)),
                "average_precision": float(binary_average_precision(kept, target)),
            }
            kept = (kept > 0.5).long()
        # Classes by `argmax` and by `fault`: to look once more costs as much as to score.
        found |= {
            "accuracy": float(multiclass_accuracy(kept, target, classes, average="micro", validate_args=False)),
            "balanced_accuracy": balanced_accuracy(kept, target, classes),
            "macro_f1": float(multiclass_f1_score(kept, target, classes, average="macro", validate_args=False)),
        }
        return {**found, "f1": float(binary_f1_score(kept, target, validate_args=False))} if classes == 2 else found

    def trivial(self, train: Tensor, test: Tensor, gallery: Tensor | None = None) -> float:
        if self.task.metric in RANKING:
            return self.always(self.counts(train)[1] / len(train), test)
        return self.always(self.counts(train).argmax(), test)

    def fault(self, target: Tensor) -> str:
        right = not target.is_floating_point() and int(target.min()) >= 0 and int(target.max()) < self.task.num_outputs
        return "" if right else f"classes must be 0..{self.task.num_outputs - 1}"


def balanced_accuracy(kept: Tensor, target: Tensor, classes: int) -> float:
    """Mean over the classes that rows have of the share of their rows that are right; a class without rows has none."""
    actual = target.bincount(minlength=classes)
    right = target[kept == target].bincount(minlength=classes)
    return float((right / actual)[actual > 0].double().mean())
