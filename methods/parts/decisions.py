"""Decisions of one modality each, and their losses."""

from torch import Tensor

from datamodules.spec import Batch, Task


def losses_of_each(task: Task, decisions: Tensor, batch: Batch) -> dict[str, Tensor]:
    """The task loss of every modality's decisions, [B, M, O], over the rows in which it is present."""
    terms = {}
    for m, name in enumerate(task.names):
        rows = batch.present[:, m]
        seen = decisions[rows, m], batch.target[rows]
        terms[name] = task.goal.loss(*seen) if rows.any() else decisions.sum() * 0
    return terms
