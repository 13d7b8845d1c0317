"""What is remembered of every training row, by its id."""

from __future__ import annotations

import torch
from torch import Tensor


class RowMemory:
    """Running means per training row and modality: how hard a row has been so far.

    Like an optimiser's moments, it is needed while training and by nothing afterwards: neither parameter nor buffer.
    It grows to the rows it is shown; on several devices it is the same on each, as long as each is shown all rows.
    """

    def __init__(self) -> None:
        self._total = torch.zeros(0, 0)
        self._count = torch.zeros(0, 0)

    def add(self, row: Tensor, values: Tensor, present: Tensor) -> None:
        """Take in `[B, M]` values of the given rows, where present."""
        self._grow(row, values)
        self._total.index_add_(0, row, torch.where(present, values.detach(), 0.0))
        self._count.index_add_(0, row, present.to(self._count.dtype))

    def relative(self, row: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """The rows' means, from 0 to 1 between the least and the largest of all rows, and which were seen: `[B, M]`."""
        self._grow(row, like)
        seen = self._count > 0
        mean = self._total / self._count.clamp_min(1)
        least = mean.masked_fill(~seen, torch.inf).amin(dim=0)
        most = mean.masked_fill(~seen, -torch.inf).amax(dim=0)
        # Of rows that are all alike, or unseen, each is as hard as the others.
        span = torch.where(most > least, most - least, 1.0)
        relative = (mean[row] - least) / span
        return torch.where(seen[row], relative, 0.0), seen[row]

    def clear(self) -> None:
        """Forget everything."""
        self._total, self._count = torch.zeros(0, 0), torch.zeros(0, 0)

    def _grow(self, row: Tensor, like: Tensor) -> None:
        rows = max(len(self._total), int(row.max()) + 1)
        if rows > len(self._total):
            for name in ("_total", "_count"):
                old = getattr(self, name)
                new = torch.zeros(rows, like.shape[1], dtype=like.dtype, device=like.device)
                new[: len(old)] = old if len(old) else 0.0
                setattr(self, name, new)
