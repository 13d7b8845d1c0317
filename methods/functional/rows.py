"""Paired rows in full precision: what every coordination function does to its inputs first."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def no_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Half-precision products destroy covariances and cosines near one: these functions never run under autocast."""
    return nullcontext() if x.device.type == "meta" else torch.autocast(x.device.type, enabled=False)


def as_rows(x: Tensor) -> Tensor:
    """`[..., d]` as `[n, d]` in at least float32."""
    return x.reshape(-1, x.shape[-1]).to(torch.promote_types(x.dtype, torch.float32))


def as_doubles(x: Tensor) -> Tensor:
    """`[..., d]` as `[n, d]` in float64 (Apple's GPU has none: there the moments are kept on the CPU)."""
    return x.reshape(-1, x.shape[-1]).to(device="cpu" if x.device.type == "mps" else x.device, dtype=torch.float64)


def check_paired(a: Tensor, b: Tensor, same_width: bool = True) -> None:
    """Raise unless row i of `a` can belong to row i of `b`."""
    if a.shape[:-1] != b.shape[:-1] or (same_width and a.shape[-1] != b.shape[-1]):
        expected = "the same shape" if same_width else "the same leading shape"
        raise ValueError(f"Expected paired codes of {expected}, but got {tuple(a.shape)} and {tuple(b.shape)}")
