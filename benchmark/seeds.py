"""Seeds derive from identity: the same cell draws the same numbers on any machine, in any order, next to any other."""

from __future__ import annotations

import hashlib
import json

from lightning import seed_everything


def derive(*identity: str | int) -> int:
    """A 63-bit seed from what it is for."""
    digest = hashlib.blake2b(json.dumps(identity).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def seed_all(*identity: str | int) -> None:
    """Seed Python, NumPy and torch from what the draws are for."""
    seed_everything(derive(*identity) % 2**32, verbose=False)
