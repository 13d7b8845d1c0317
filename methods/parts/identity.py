"""Which rows of a batch are the same thing, and so no negatives of each other."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from datamodules.spec import Batch, Task

Identity = Literal["auto", "none", "text", "target"]


def identities(task: Task, same_id: Identity) -> Callable[[Batch, Tensor], Tensor | None]:
    """A function (batch, rows) -> identities of the rows, or None.

    Args:
        task: Decides what "auto" means.
        same_id: "target": rows with one target (the instance where rows have no labels, elsewhere the class: no longer
            label-free); "text": rows with the same words, as duplicate captions or questions; "none"; "auto": the
            instance where that is the target, else the words if there is a text, else none.
    """
    texts = [m.name for m in task.modalities if m.kind == "text"]
    if same_id == "text" and not texts:
        raise ValueError(f"`same_id` = 'text' needs a text, and {task.name} has none")
    if same_id == "target" and task.goal.labelled and not task.goal.one_class:
        raise ValueError(f"`same_id` = 'target' needs classes or instances, and {task.name} has {task.target} targets")
    if same_id == "auto":
        instances = not task.goal.labelled and not task.goal.one_class
        same_id = "target" if instances else "text" if texts else "none"
    if same_id == "target":
        return _by_target
    if same_id == "text":
        return partial(_by_text, texts)
    return _nothing


def _nothing(batch: Batch, rows: Tensor) -> None:
    return None


def _by_target(batch: Batch, rows: Tensor) -> Tensor:
    return batch.target[rows]


def _by_text(names: Sequence[str], batch: Batch, rows: Tensor) -> Tensor:
    """Equal words, whatever rank they are on: a hash of the token ids, not their position in this batch."""
    words = torch.cat([batch.inputs[name][rows].long() for name in names], dim=1)
    code = torch.zeros(len(words), dtype=torch.long, device=words.device)
    for column in words.unbind(dim=1):
        code = code * 6364136223846793005 + column + 1442695040888963407  # wraps around, like Knuth's generator
    return code
