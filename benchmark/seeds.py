"""Seeds derive from identity: the same cell draws the same numbers on any machine, in any order, next to any other."""

from __future__ import annotations

import hashlib
import json

import torch
from lightning import seed_everything
from torch import Tensor


def derive(*identity: str | int) -> int:
    """A 63-bit seed from what it is for."""
    digest = hashlib.blake2b(json.dumps(identity).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def seed_all(*identity: str | int) -> None:
    """Seed Python, NumPy and torch from what the draws are for."""
    seed_everything(derive(*identity) % 2**32, verbose=False)


def random_state(device: torch.device) -> tuple[Tensor, ...]:
    """Where torch's generators are, of the CPU and of the GPU in use."""
    own = torch.get_rng_state()
    return (own, torch.cuda.get_rng_state(device)) if device.type == "cuda" else (own,)


def restore_random_state(device: torch.device, state: tuple[Tensor, ...]) -> None:
    """Go back there."""
    torch.set_rng_state(state[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state[1], device)
