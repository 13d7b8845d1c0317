"""Collectives with exact gradients. In a single process every function here is the identity.

Spec section 2.6 lists what goes wrong without a gathered gradient: encoder gradients 1/R too small, or in the
wrong direction. Here the forward is an all-gather and the backward sums the gradients of all ranks and keeps the
local slice, so that after DDP's average the gradients equal those of one process that saw all rows.
"""

from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist


def world() -> tuple[int, int]:
    """The rank of this process and the number of processes: (0, 1) without a process group."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def row_counts(rows: int, device: torch.device) -> list[int]:
    """The number of rows on every rank."""
    _, ranks = world()
    if ranks == 1:
        return [rows]
    counts = [torch.zeros(1, dtype=torch.long, device=device) for _ in range(ranks)]
    dist.all_gather(counts, torch.tensor([rows], device=device))
    return [int(count) for count in counts]


class _Gather(torch.autograd.Function):
    """All-gather of row blocks that may differ in length; the backward is a sum-reduce and a slice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, counts: list[int]) -> Tensor:
        rank, _ = world()
        # all_gather wants equal shapes: the last batch of an epoch may be shorter on some ranks.
        padded = x.new_zeros(max(counts), *x.shape[1:])
        padded[: len(x)] = x
        blocks = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(blocks, padded)
        ctx.span = (sum(counts[:rank]), len(x))
        return torch.cat([block[:count] for block, count in zip(blocks, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        grad = grads[0].contiguous().clone()
        dist.all_reduce(grad)
        start, rows = ctx.span
        return grad[start : start + rows], None


def gather(x: Tensor) -> Tensor:
    """The rows of all ranks, in rank order, with gradient."""
    _, ranks = world()
    if ranks == 1:
        return x
    gathered = _Gather.apply(x, row_counts(len(x), x.device))
    assert isinstance(gathered, Tensor)
    return gathered


def first_row(rows: int, device: torch.device) -> int:
    """Where this rank's rows start in `gather`'s result."""
    rank, _ = world()
    return sum(row_counts(rows, device)[:rank])


def rank_mean(total: Tensor, count: Tensor) -> Tensor:
    """`total / count`, scaled so that the average over ranks (which DDP takes) is the mean over all ranks' terms."""
    _, ranks = world()
    if ranks == 1:
        return total / count.clamp(min=1)
    everyone = count.detach().clone()
    dist.all_reduce(everyone)
    return total * ranks / everyone.clamp(min=1)
