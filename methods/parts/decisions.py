"""One decision per modality, and the losses of each, for methods that weigh or balance whole modalities."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from datamodules.spec import Batch, Task


class Decisions(nn.Module):
    """A linear head per modality: `[B, M, D] -> [B, M, O]`."""

    def __init__(self, task: Task, width: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(width, task.num_outputs) for _ in task.modalities)

    def forward(self, z: Tensor) -> Tensor:
        return torch.stack([head(x) for head, x in zip(self.heads, z.unbind(dim=1), strict=True)], dim=1)


def losses_of_each(task: Task, decisions: Tensor, batch: Batch) -> dict[str, Tensor]:
    """The task loss of every modality's decisions, [B, M, O], over the rows in which it is present."""
    terms = {}
    for m, name in enumerate(task.names):
        rows = batch.present[:, m]
        seen = decisions[rows, m], batch.target[rows]
        terms[name] = task.goal.loss(*seen) if rows.any() else decisions.sum() * 0
    return terms


def row_losses(task: Task, logits: Tensor, target: Tensor) -> Tensor:
    """The task's loss of every decision: `[B, ..., O] -> [B, ...]`, all decisions of a row having its target."""
    flat = logits.flatten(1, -2)
    # One loss per row from the one definition of the task's loss.
    each = torch.vmap(torch.vmap(task.goal.loss, in_dims=(0, None)))
    return each(flat.to(torch.promote_types(flat.dtype, torch.float32)), target).view(logits.shape[:-1])


def present_rows_mean(values: Tensor, present: Tensor) -> Tensor:
    """`[B, M] -> [M]`: each modality's mean over the rows that have it; zero, with a graph, if none has."""
    kept = torch.where(present, values, torch.zeros((), dtype=values.dtype, device=values.device))
    return kept.sum(dim=0) / present.sum(dim=0).clamp_min(1)


def true_class_probability(logits: Tensor, target: Tensor) -> Tensor:
    """Probability of the row's class in every decision: `[B, M, C] -> [B, M]`."""
    wanted = target.long()[:, None, None].expand(-1, logits.shape[1], 1)
    return logits.float().softmax(dim=-1).gather(-1, wanted).squeeze(-1)


def weighted_decision(decisions: Tensor, weights: Tensor) -> Tensor:
    """`sum_m w_m f_m`, `[B, M, C] -> [B, C]`: the weights say whom to trust, and are not taught by the joint loss."""
    return (weights.detach().to(decisions.dtype).unsqueeze(-1) * decisions).sum(dim=1)


def needs_classes(task: Task) -> str | None:
    """The reason why a method whose confidence is a probability of the true class does not apply to a task."""
    return None if task.goal.classifies else "needs one true class per row (a multiclass task)"
