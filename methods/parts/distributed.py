"""Collectives with exact gradients. In a single process every function here is the identity.

Without a gathered gradient those of the encoders are 1/R too small, or point elsewhere. Here, after DDP's average, they
equal those of one process that saw all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch import distributed as dist

from datamodules.spec import Batch

if TYPE_CHECKING:
    from methods.base import Output
    from methods.parts.encoders import Tokens


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


def rank_sum(x: Tensor) -> Tensor:
    """The sum over ranks, with gradient: statistics of the global batch (batch norm)."""
    if world()[1] == 1:
        return x
    from torch.distributed.nn.functional import all_reduce  # does not import where torch has no distributed

    return all_reduce(x)


class _Gathered(Mapping[str, Any]):
    """Gathers a modality when it is looked at: most losses need neither tokens nor inputs, which are large."""

    def __init__(self, own: Mapping[str, Any], gather: Callable[[Any], Any]) -> None:
        self.own = own
        self.gather = gather
        self.found: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self.found:
            self.found[name] = self.gather(self.own[name])
        return self.found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.own)

    def __len__(self) -> int:
        return len(self.own)


def global_batch(out: Output, batch: Batch) -> tuple[Output, Batch]:
    """Output and batch of all ranks, on every rank; every rank must then compute the same loss from them.

    The gradients after DDP's average are those of one process with the whole batch, for any loss whatever: means over
    the rows that have a modality, kernels, assignments, noise drawn from the ranks' common seed.
    """
    everyone = Batch(
        inputs=_Gathered(batch.inputs, all_rows),  # pyright: ignore[reportArgumentType] - reads like a dict
        target=all_rows(batch.target),
        present=all_rows(batch.present),
        row=all_rows(batch.row),
        corrupted=None if batch.corrupted is None else all_rows(batch.corrupted),
    )
    tokens = _Gathered(out.tokens, _all_tokens)
    z, fused, logits = (all_rows(x) for x in (out.z, out.fused, out.logits))
    return out._replace(tokens=tokens, z=z, fused=fused, logits=logits), everyone  # pyright: ignore[reportArgumentType]


def _all_tokens(tokens: Tokens) -> Tokens:
    mask: Tensor | None = None if tokens.mask is None else all_rows(tokens.mask)
    return tokens._replace(x=all_rows(tokens.x), mask=mask)
