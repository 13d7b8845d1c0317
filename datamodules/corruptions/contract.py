"""What every corruption must hold, ours or a plugin's: the same checks run in the tests and in `polymodal check`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from datamodules.corruptions import catalogue, corrupt, facts, table
from datamodules.corruptions.registry import LEVELS
from datamodules.spec import Modality

_ROWS = 64  # enough for a mean distance; one batch of a small image
_SLACK = 0.98  # a mean over so few rows may fall by 2 % from one severity to the next

REFERENCE: dict[str, tuple[Modality, ...]] = {
    "image": (Modality("x", "image", (3, 32, 32)), Modality("x", "image", (1, 16, 24), range=None)),
    "sequence": (Modality("x", "sequence", (40, 6)),),
    "vector": (Modality("x", "vector", (24,)),),
    "text": (Modality("x", "text", (16,), vocabulary=40),),
    "sound": (Modality("x", "sequence", (800, 1)),),
}


def check(name: str) -> list[str]:
    """Every violation of the contract by corruption `name`, on reference inputs of each of its kinds."""
    if name == "missing":
        return list(_missing())
    found: list[str] = []
    for kind in ("sound",) if name in table()["sound"] else facts(name).kinds:
        if name not in catalogue(kind):
            found.append(f"{name} is not in the catalogue of {kind}: give it `severities`")
            continue
        for modality in REFERENCE[kind]:
            x = smooth(modality, _ROWS, seed=0)
            found += [*violations(name, modality, x, key=7), *_falls(name, modality, x)]
    return found


def violations(name: str, modality: Modality, x: Tensor, key: int) -> Iterator[str]:
    """Broken promises of one corruption on one input: identity, purity, form, finiteness, independence of the batch."""
    row = torch.arange(len(x))
    original = x.clone()

    def at(severity: int, index: Tensor | None = None) -> Tensor:
        rows, some = (row, x) if index is None else (row[index], x[index])
        return corrupt(some, rows, name=name, severity=severity, key=key, modality=modality, split=x)

    where = f"{name} on {modality.kind} {modality.shape}"
    if not torch.equal(at(0), original):
        yield f"{where}: severity 0 is not the identity"
    for severity in range(1, LEVELS + 1):
        y = at(severity)
        said = f"{where}, severity {severity}"
        if y.shape != x.shape or y.dtype != x.dtype or y.device != x.device:
            yield f"{said}: {tuple(y.shape)} {y.dtype} from {tuple(x.shape)} {x.dtype}"
            continue
        if not torch.isfinite(y).all():
            yield f"{said}: not finite"
        if not torch.equal(x, original):
            yield f"{said}: changed its input in place"
            x.copy_(original)
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(severity)
            if not torch.equal(at(severity), y):
                yield f"{said}: not deterministic"
        if not torch.equal(at(severity, row.flip(0)).flip(0), y):
            yield f"{said}: depends on the order of rows"
        if not torch.equal(torch.cat([at(severity, part) for part in row.split(max(1, len(x) // 3))]), y):
            yield f"{said}: depends on the batch size"
        yield from (f"{said}: {fault}" for fault in _values(name, y, x, modality))


def smooth(modality: Modality, rows: int, seed: int) -> Tensor:
    """Inputs like real ones: neighbouring pixels and frames agree, texts end in padding."""
    generator = torch.Generator().manual_seed(seed)
    if modality.kind == "text":
        x = torch.randint(1, modality.vocabulary, (rows, *modality.shape), generator=generator)
        length = torch.randint(min(4, modality.shape[0]), modality.shape[0] + 1, (rows, 1), generator=generator)
        return x.masked_fill(torch.arange(modality.shape[0]) >= length, 0)
    x = torch.randn(rows, *modality.shape, generator=generator)
    along = {"vector": (), "sequence": (1,), "image": (2, 3)}[modality.kind]
    for axis in along:
        steps = torch.linspace(0, 1, x.shape[axis]).view(-1, *[1] * (x.ndim - 1 - axis))
        waves = [1 if axis_ in along else size for axis_, size in enumerate(x.shape)]  # one per row and channel
        phase, pace = torch.rand(2, *waves, generator=generator)
        x = 0.3 * x + torch.sin(6.3 * (phase + (0.5 + pace) * steps))
    if modality.kind == "image" and modality.range is not None:
        low, high = modality.range
        x = (low + (high - low) * (0.5 + 0.45 * x)).clamp(low, high)
    return x


def distance(y: Tensor, x: Tensor) -> float:
    """Root mean square of the change, or the share of changed tokens."""
    return ((y - x).square().mean().sqrt() if x.is_floating_point() else (y != x).double().mean()).item()


def _values(name: str, y: Tensor, x: Tensor, modality: Modality) -> Iterator[str]:
    if modality.kind == "text":
        if name != "misaligned" and (y[x == 0] != 0).any():  # another row brings its own padding
            yield "corrupted padding"
        if ((y < 0) | (y >= modality.vocabulary)).any():
            yield "a token that is not in the vocabulary"
        if ((y == 0).all(1) & (x != 0).any(1)).any():
            yield "a text without a token"
    if modality.kind == "image" and modality.range is not None and len(y):
        low, high = modality.range
        if y.min() < low or y.max() > high:
            yield f"left the range {modality.range}"


def _falls(name: str, modality: Modality, x: Tensor) -> Iterator[str]:
    """The mean distance to the clean input must not fall from one severity to the next, and must not be nothing."""
    row = torch.arange(len(x))
    curve = [
        distance(corrupt(x, row, name=name, severity=s, key=7, modality=modality, split=x), x)
        for s in range(1, LEVELS + 1)
    ]
    if any(later < _SLACK * earlier for earlier, later in pairwise(curve)):
        yield f"{name} on {modality.kind}: distance to the clean input falls with severity: {curve}"
    if curve[-1] <= curve[0]:
        yield f"{name} on {modality.kind}: severity 5 changes no more than severity 1: {curve}"


def _missing() -> Iterator[str]:
    from datamodules.corruptions import drop_modalities, missing_rates

    present = torch.ones(_ROWS, 3, dtype=torch.bool)
    present[::5, 0] = False
    before = present.clone()
    for rate in missing_rates():
        kept = drop_modalities(present, torch.arange(_ROWS), rate, key=7)
        if not torch.equal(present, before):
            yield f"missing, rate {rate}: changed its input in place"
        if (kept & ~present).any() or not kept.any(1).all():
            yield f"missing, rate {rate}: an absent modality came back, or a row lost all"
