"""What stands for an absent encoding: zero or the mean of the training rows, whichever is better on validation rows.

Neither is neutral: zero turns a product into nothing, the mean shifts a sum. The choice is the method's, made once per
cell and never on rows that are scored later; a method that masks what is absent has nothing to choose.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from benchmark.evaluate import Filling, Swept, sweep
from benchmark.trainer import Encodings
from datamodules.base import DataModule
from leaderboard.record import Condition, Fill, is_missing
from methods.base import Method
from methods.metrics import higher_is_better


def choose_filling(
    method: Method, datamodule: DataModule, conditions: tuple[Condition, ...], device: torch.device
) -> Filling | None:
    """The filling of a trained method; None if no condition takes anything away."""
    absent = tuple(c for c in conditions if is_missing(c))
    if not absent:
        return None
    means = mean_encodings(Encodings(method, datamodule.ordered("train"), device))
    tried = sweep(method, datamodule, absent, device, "val", Filling(means, "zero"))
    return Filling(means, "mask" if tried.masked else _better(tried, higher_is_better(method.task.metric)))


def mean_encodings(rows: Encodings) -> Tensor:
    """`[M, D]`: the mean encoding of each modality over the rows that have it."""
    total, count = None, None
    for row in rows:
        z = torch.where(row.present.unsqueeze(-1), row.z, 0.0).sum(dim=0, dtype=torch.float64)
        there = row.present.sum(dim=0)
        total, count = (z, there) if total is None or count is None else (total + z, count + there)
    assert total is not None and count is not None, "a training split has rows"
    return (total / count.clamp_min(1).unsqueeze(-1)).to(torch.get_default_dtype())


def _better(tried: Swept, higher: bool) -> Fill:
    """By the mean score over the conditions; zero, as in training, if there is nothing between them."""
    zero, mean = (float(np.mean([c.fills[way] for c in tried.conditions])) for way in ("zero", "mean"))
    return "mean" if (mean > zero if higher else mean < zero) else "zero"
