"""One of a few classes."""

import torch.nn.functional as F
from torch import Tensor
from torchmetrics.functional.classification import binary_f1_score, multiclass_accuracy, multiclass_f1_score

from datamodules.spec import Task
from datamodules.targets import Computed, Target, register_target


@register_target("multiclass")
class Multiclass(Target):
    """A class: `[N]`."""

    one_class = True

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.metrics = ("accuracy", "macro_f1", "f1") if task.num_outputs == 2 else ("accuracy", "macro_f1")

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(logits, target)

    def prediction(self, out: Computed) -> Tensor:
        return out.logits.argmax(dim=-1)

    def scores(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        target, classes = target.long(), self.task.num_outputs
        found = {
            "accuracy": float(multiclass_accuracy(kept, target, classes, average="micro")),
            "macro_f1": float(multiclass_f1_score(kept, target, classes, average="macro")),
        }
        return {**found, "f1": float(binary_f1_score(kept, target))} if classes == 2 else found

    def trivial(self, train: Tensor, test: Tensor, gallery: Tensor | None = None) -> float:
        return self.always(self.counts(train).argmax(), test)

    def fault(self, target: Tensor) -> str:
        right = not target.is_floating_point() and int(target.min()) >= 0 and int(target.max()) < self.task.num_outputs
        return "" if right else f"classes must be 0..{self.task.num_outputs - 1}"
