"""Several labels, each there or not."""

import torch.nn.functional as F
from torch import Tensor
from torchmetrics.functional.classification import multilabel_f1_score

from datamodules.targets import Computed, Target, register_target


@register_target("multilabel")
class Multilabel(Target):
    """Labels: `[N, O]` of 0 and 1."""

    metrics = ("macro_f1", "micro_f1", "accuracy")
    independent = True

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype))

    def prediction(self, out: Computed) -> Tensor:
        return out.logits > 0

    def scores(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        kept, target = kept.int(), target.int()
        return {
            "macro_f1": float(multilabel_f1_score(kept, target, self.task.num_outputs, average="macro")),
            "micro_f1": float(multilabel_f1_score(kept, target, self.task.num_outputs, average="micro")),
            "accuracy": float((kept == target).all(dim=-1).float().mean()),
        }

    def trivial(self, train: Tensor, test: Tensor, gallery: Tensor | None = None) -> float:
        return self.always(train.float().mean(dim=0) > 0.5, test)

    def counts(self, target: Tensor) -> Tensor:
        return target.float().sum(dim=0)

    def fault(self, target: Tensor) -> str:
        outputs = self.task.num_outputs
        return "" if target.dim() == 2 and target.shape[1] == outputs else f"targets must be [N, {outputs}]"

    def spell(self, target: Tensor) -> str:
        return ", ".join(map(self.label, target.nonzero().flatten().tolist()))
