"""Collectives with exact gradients. In a single process every function here is the identity.

Spec section 2.6 lists what goes wrong without a gathered gradient: encoder gradients 1/R too small, or in the
wrong direction. Here the forward is an all-gather and the backward sums the gradients of all ranks and keeps the
local slice, so that after DDP's average the gradients equal those of one process that saw all rows.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist


def world() -> tuple[int, int]:
    """The rank of this process and the number of processes: (0, 1) without a process group."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


@torch.no_grad()
def from_rank_zero(tensors: Iterable[Tensor]) -> None:
    """Overwrite tensors by those of the first rank."""
    if world()[1] > 1:
        for x in tensors:
            dist.broadcast(x.data, src=0)


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


class _AllRows(torch.autograd.Function):
    """All-gather of equal row blocks for a loss that every rank computes in full.

    All ranks then hold the same gradient: the own slice is taken without a collective, times the number of ranks, which
    DDP's average divides by.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        rank, ranks = world()
        blocks = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(ranks)]
        dist.all_gather(blocks, x.contiguous())
        ctx.span = slice(rank * len(x), (rank + 1) * len(x))
        ctx.ranks = ranks
        return torch.cat(blocks)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0][ctx.span] * ctx.ranks


def all_rows(x: Tensor) -> Tensor:
    """The rows of all ranks, as many of each, with the gradient of a loss that every rank computes in full."""
    if world()[1] == 1:
        return x
    gathered = _AllRows.apply(x)
    assert isinstance(gathered, Tensor)
    return gathered


class _RankSum(torch.autograd.Function):
    """Sum over ranks of what each rank then uses for its own rows: so is the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        total = grads[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total


def rank_sum(x: Tensor) -> Tensor:
    """The sum over ranks, with gradient: statistics of the global batch (batch norm)."""
    if world()[1] == 1:
        return x
    total = _RankSum.apply(x)
    assert isinstance(total, Tensor)
    return total
