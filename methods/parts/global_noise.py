"""Noise for the rows of a training batch: on several devices, what one device would draw for the same rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from methods.parts.distributed import world


def own_normals(like: Tensor) -> Tensor:
    """Standard normals of the shape of `like`, whose rows are this rank's share of the global batch."""
    return _own(torch.randn, like)


def own_uniforms(like: Tensor) -> Tensor:
    """Uniforms in [0, 1), likewise."""
    return _own(torch.rand, like)


def _own(draw: Callable[..., Tensor], like: Tensor) -> Tensor:
    # All ranks are seeded alike and have equally many rows, in the order of the global batch: each draws for everybody
    # and keeps its own.
    rank, ranks = world()
    rows = len(like)
    everyone = draw(ranks * rows, *like.shape[1:], dtype=like.dtype, device=like.device)
    return everyone[rank * rows : (rank + 1) * rows]
