"""The global batch of a distributed run, for losses that look across rows or average over some of them only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from datamodules.spec import Batch
from methods.parts.encoders import Tokens
from methods.parts.gather import all_rows

if TYPE_CHECKING:
    from methods.base import Output


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
    tokens = _Gathered(out.tokens, _tokens)
    z, fused, logits = (all_rows(x) for x in (out.z, out.fused, out.logits))
    return out._replace(tokens=tokens, z=z, fused=fused, logits=logits), everyone  # pyright: ignore[reportArgumentType]


def _tokens(tokens: Tokens) -> Tokens:
    mask: Tensor | None = None if tokens.mask is None else all_rows(tokens.mask)
    return tokens._replace(x=all_rows(tokens.x), mask=mask)
