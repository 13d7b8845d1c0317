"""Training batches with several rows of each of their classes: what losses on pairs of rows need."""

from __future__ import annotations

import torch
from torch import Tensor


def per_class_order(target: Tensor, per_class: int, generator: torch.Generator) -> Tensor:
    """An order of the rows in which every `per_class` neighbours are of one class: `[n * per_class]`.

    Every class gives as many groups as it has full ones, in random order; a class with fewer rows than a group gives
    one group, some of its rows twice (m-per-class sampling).
    """
    groups = []
    for label in target.unique().tolist():
        rows = (target == label).nonzero().squeeze(1)
        rows = rows[torch.randperm(len(rows), generator=generator)]
        if len(rows) < per_class:
            rows = rows.repeat(-(-per_class // len(rows)))[:per_class]
        groups.append(rows[: len(rows) // per_class * per_class].view(-1, per_class))
    every = torch.cat(groups)
    return every[torch.randperm(len(every), generator=generator)].flatten()
