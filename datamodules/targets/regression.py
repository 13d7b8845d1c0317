"""Values."""

import torch.nn.functional as F
from torch import Tensor
from torchmetrics.functional import mean_absolute_error, mean_squared_error, r2_score

from datamodules.targets import Computed, Target, register_target


@register_target("regression")
class Regression(Target):
    """Values: `[N, O]`."""

    metrics = ("r2", "mse", "mae", "correlation")

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(logits, target.to(logits.dtype).view_as(logits))

    def prediction(self, out: Computed) -> Tensor:
        return out.logits.float()

    def scores(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        kept, target = (x.float().reshape(len(target), -1).squeeze(-1) for x in (kept, target))
        return {
            "r2": float(r2_score(kept, target)),
            "mse": float(mean_squared_error(kept, target)),
            "mae": float(mean_absolute_error(kept, target)),
            "correlation": correlation(kept, target),
        }

    def trivial(self, train: Tensor, test: Tensor, gallery: Tensor | None = None) -> float:
        return self.always(train.float().reshape(len(train), -1).mean(dim=0), test)

    def fault(self, target: Tensor) -> str:
        outputs = self.task.num_outputs
        return "" if target.dim() == 2 and target.shape[1] == outputs else f"targets must be [N, {outputs}]"


def correlation(kept: Tensor, target: Tensor) -> float:
    """Pearson's correlation, averaged over outputs; 0 where one side is constant, which tells nothing of the other."""
    a, b = (x.double() - x.double().mean(dim=0) for x in (kept, target))
    scale = (a.square().sum(dim=0) * b.square().sum(dim=0)).sqrt()
    return float(((a * b).sum(dim=0) / scale).where(scale > 1e-12, 0.0).mean())
