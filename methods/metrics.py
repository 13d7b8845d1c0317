"""The score of a split, and which way a score is better. What is scored is the target's (`datamodules/targets`)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torchmetrics import Metric

from datamodules.spec import Task

# A fact of the metric, never inferred from its values.
LOWER_IS_BETTER = frozenset({"mae", "mse", "nll", "median_rank"})


def higher_is_better(metric: str) -> bool:
    """Whether a larger value of this metric is a better one."""
    return metric not in LOWER_IS_BETTER


class SplitScore(Metric):
    """Scores and mean losses of a whole split, over all devices: never a mean of batch scores.

    `loss` is that of the stage, with all its terms; `task_loss` is the task's own, of the logits alone.
    """

    full_state_update = False
    predicted: list[Tensor]
    target: list[Tensor]
    loss: Tensor
    task_loss: Tensor
    rows: Tensor

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task
        self.losses: tuple[str, ...] = ()  # that were computed
        self.add_state("predicted", default=[], dist_reduce_fx="cat")
        self.add_state("target", default=[], dist_reduce_fx="cat")
        self.add_state("loss", default=torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("task_loss", default=torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("rows", default=torch.zeros(()), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, target: Tensor, losses: Mapping[str, Tensor]) -> None:
        self.predicted.append(predicted)
        self.target.append(target)
        self.rows += len(target)
        self.losses = tuple(losses)
        for name, loss in losses.items():
            setattr(self, name, getattr(self, name) + loss.detach() * len(target))

    def compute(self) -> dict[str, Tensor]:
        predicted, target = (x if isinstance(x, Tensor) else torch.cat(x) for x in (self.predicted, self.target))
        scores = {name: torch.tensor(v) for name, v in self.task.goal.evaluate(predicted, target).items()}
        return {**scores, **{name: getattr(self, name) / self.rows for name in self.losses}}
