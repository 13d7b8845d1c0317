"""What a method makes of modalities that are absent: whether it masks them, or takes the zeros it is given."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from benchmark.conformance.case import Case, answer
from benchmark.conformance.report import Doubtful, require, require_shape, where
from datamodules.spec import Batch
from methods.base import Method, Tokens

# Over modalities, each of these gives a zero its share, or lets it win or annihilate.
_NOT_NEUTRAL = {"softmax", "log_softmax", "logsumexp", "mean", "median", "std", "var"} | {
    "max", "amax", "argmax", "min", "amin", "argmin", "prod", "topk", "sort"
}  # fmt: skip
_GARBAGE = 3.0


def check_present(case: Case) -> str:
    """Absent modalities have no weight, nor a share in what is taken over modalities by who never looks at `present`.

    The base zeroes what is absent, so that a method may rely on it. Garbage in its place shows who does: nothing is
    wrong with that where zero is neutral, and no check can tell, but the author should know.
    """
    method, batch, count = case.build().eval(), case.batch(8), len(case.task.modalities)
    is_blind, reads, has_weights, shares = True, set[str](), False, _Shares()
    for m in range(count):
        present = batch.present.clone()
        present[::2, m] = False
        out = answer(method, batch._replace(present=present))
        with torch.no_grad(), shares:
            weights, untold = method.weights(out.z, present), method.fuse(out.z, torch.ones_like(present))
        is_blind &= torch.equal(untold, out.fused)
        reads |= _reading(method, batch, present, out.z, out.fused)
        if weights is not None:
            has_weights = True
            require_shape("weights", weights.unsqueeze(-1), (8, count, 1), method.weights)
            require(
                bool((weights[~present] == 0).all()),
                f"`weights` must be 0 where `present` is False: mask with -inf before a softmax{where(method.weights)}",
            )
    if not has_weights and _is_diluted(method, batch.present):
        raise Doubtful(
            "`fuse` averages over modalities, and absent ones, which are zeros, have their share of the average: equal "
            f"encodings do not give the same when one is absent. Mask it{where(method.fuse)}"
        )
    if is_blind and (taken := shares.over(count)):
        raise Doubtful(
            f"`fuse` takes {taken} over modalities and never looks at `present`: absent ones, which are "
            f"zeros, have their share. Mask them{where(method.fuse)}"
        )
    if has_weights and "fuse" in reads:
        raise Doubtful(
            "`weights` gives absent modalities none, but `fuse` reads their encodings: other numbers in the place of "
            f"their zeros change its result. Mask them, or be sure that zero is neutral{where(method.fuse)}"
        )
    if not reads:
        return ""
    stations = " and ".join(f"`{name}`" for name in sorted(reads))
    return f"relies on zeros: what is absent reaches {stations} as 0, which must be neutral there, as it is in a sum"


def _is_diluted(method: Method, everyone: Tensor) -> bool:
    """Whether the average of equal encodings is that encoding, but not when the first modality is absent."""
    width = method.encoding_width
    same = torch.linspace(-1, 2, len(everyone) * width).view(len(everyone), 1, width)
    present = everyone.clone()
    present[:, 0] = False
    z = same.expand(-1, everyone.shape[1], -1)
    with torch.no_grad():
        whole, part = method.fuse(z, everyone), method.fuse(z * present.unsqueeze(-1), present)
    is_average = whole.shape == same[:, 0].shape and torch.allclose(whole, same[:, 0], atol=1e-4)
    # Who reads but the first modality has nothing left, and that is right.
    return is_average and bool(part.any()) and not torch.allclose(part, same[:, 0], atol=1e-4)


def _reading(method: Method, batch: Batch, present: Tensor, z: Tensor, fused: Tensor) -> set[str]:
    """The stations whose result changes when what is absent is something else than zero."""
    found, names = set(), method.task.names
    spoilt = torch.where(present.unsqueeze(-1), z, torch.full_like(z, _GARBAGE))
    with torch.no_grad():
        if not torch.equal(method.fuse(spoilt, present), fused):
            found.add("fuse")
        if type(method).pool is Method.pool:
            return found
        tokens = method.tokenize(batch.inputs, present)
        as_zero, as_garbage = (
            method.pool({n: _absent_as(t, present[:, names.index(n)], value) for n, t in tokens.items()}, present)
            for value in (0.0, _GARBAGE)
        )
        if not torch.equal(as_zero[present], as_garbage[present]):
            found.add("pool")
    return found


def _absent_as(tokens: Tokens, present: Tensor, value: float) -> Tokens:
    return tokens._replace(x=torch.where(present.reshape(-1, 1, 1), tokens.x, torch.full_like(tokens.x, value)))


class _Shares(TorchFunctionMode):
    """What was taken over how many: softmaxes, means and the like, by size."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: set[tuple[str, int]] = set()

    def over(self, size: int) -> str:
        """What was taken over so many, in words; empty if nothing was."""
        return " and ".join(sorted(f"`{name}`" for name, n in self.taken if n == size))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        dim = (kwargs or {}).get("dim", args[1] if len(args) > 1 else None)
        if func.__name__ in _NOT_NEUTRAL and isinstance(dim, int) and isinstance(args[0], Tensor):
            self.taken.add((func.__name__, args[0].shape[dim]))
        return func(*args, **(kwargs or {}))
