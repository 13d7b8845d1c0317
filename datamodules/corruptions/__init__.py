"""Corrupted inputs: a catalogue per kind of modality, five severities each, the same noise for every method.

Names, the order of the catalogue and the severities of a kind come from `severities.toml`, those of a dataset from
`calibrated/`; torch is imported only to corrupt.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datamodules.corruptions.calibration import calibrated, left_out, medium
from datamodules.corruptions.registry import KINDS, LEVELS, Draw, Parameter, corruption, corruptions, facts, plugins
from datamodules.registry import did_you_mean
from datamodules.spec import Modality

if TYPE_CHECKING:
    from torch import Tensor

    from datamodules.base import Gathered, Stored

__all__ = [
    "Draw",
    "applicable",
    "apply",
    "capped",
    "catalogue",
    "corrupt",
    "corruption",
    "corruption_key",
    "corruptions",
    "drop_modalities",
    "joint",
    "left_out",
    "levels",
    "medium",
    "missing_rates",
    "severities",
    "standard",
    "united",
    "version",
]

MEDIA = (*KINDS, "sound")  # what a corruption befalls: a modality, or the sound its features are made of
_BLOCK = 1 << 17  # values corrupted at a time


@lru_cache
def table() -> dict[str, Any]:
    """`severities.toml`, read once."""
    return tomllib.loads((Path(__file__).parent / "severities.toml").read_text(encoding="utf-8"))


def catalogue(kind: str) -> tuple[str, ...]:
    """Corruptions of a modality kind, or of sound, in listed order, `misaligned` last, no `missing`."""
    if kind not in MEDIA:
        raise KeyError(f"no modality kind {kind!r}. {did_you_mean(kind, MEDIA)}")
    return tuple(table()[kind]) + plugins(kind) + ("misaligned",)


def standard(kind: str) -> tuple[str, ...]:
    """The three corruptions of a kind that `conditions = "standard"` applies: the first-listed one and two more."""
    return tuple(table()["standard"][kind])


def severities(name: str, kind: str) -> tuple[Parameter, ...]:
    """The parameters of severities 1 to 5.

    Raises:
        KeyError: With a suggestion, if `kind` has no corruption `name`.
    """
    if name not in catalogue(kind):
        raise KeyError(f"no corruption {name!r} for {kind}. {did_you_mean(name, catalogue(kind))}")
    values = table()["every"].get(name) or table()[kind].get(name) or facts(name).severities or ()
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


def levels(name: str, modality: Modality, dataset: str = "") -> tuple[Parameter, ...]:
    """The parameters of severities 1 to 5 on a modality of a dataset: its own, or those of the kind."""
    kind = "sound" if name in table()["sound"] else modality.kind
    return calibrated(modality, dataset).get(name) or severities(name, kind)


def applicable(modality: Modality, dataset: str) -> tuple[str, ...]:
    """The catalogue of a modality's kind, or of its sound, without what is left out on the dataset."""
    return _left(medium(modality, dataset), modality, dataset)


def united(modality: Modality, dataset: str) -> str | None:
    """What befalls a modality under the joint condition: the first of the catalogue that applies to it, if one does."""
    return _first(applicable(modality, dataset))


def joint(modality: Modality, dataset: str) -> str | None:
    """`united` of the input itself, also where tests corrupt the sound behind it: what training can add noise by."""
    return _first(_left(modality.kind, modality, dataset))


def _left(kind: str, modality: Modality, dataset: str) -> tuple[str, ...]:
    gone = left_out(modality, dataset)
    return tuple(name for name in catalogue(kind) if name not in gone)


def _first(names: tuple[str, ...]) -> str | None:
    return None if names[0] == "misaligned" else names[0]


def capped(kind: str) -> tuple[str, ...]:
    """Corruptions whose severity 5 is the strongest sensible value instead of one that halves the score."""
    return tuple(table()["capped"][kind])


def missing_rates() -> tuple[float, ...]:
    """The probabilities of the missing-rate conditions."""
    return tuple(table()["missing"]["rates"])


def version(name: str) -> int:
    """Of the code and of the severity table together: a bump of either raises it, and neither ever falls."""
    return facts(name).version + table()["version"] - 1


def corruption_key(dataset: str, dataset_version: str, split: str, modality: str, name: str) -> int:
    """The 64-bit key of a corruption's noise. The severity is not part of it: severities scale the same draw."""
    identity = json.dumps([dataset, dataset_version, split, modality, name, version(name)])
    return int.from_bytes(hashlib.blake2b(identity.encode(), digest_size=8).digest(), "big")


def corrupt(
    x: Tensor,
    row: Tensor,
    *,
    name: str,
    severity: int,
    key: int,
    modality: Modality,
    split: Tensor | Gathered | Stored | None = None,
    dataset: str = "",
) -> Tensor:
    """Corrupt a batch of one modality.

    Args:
        x: `[B, *modality.shape]`; never changed in place.
        row: `[B]` position of each row in its split.
        severity: 0 (returns `x` itself) to 5.
        key: Of the noise, from `corruption_key`.
        split: The whole modality of the split, `[N, *modality.shape]`; only `misaligned` needs it.
        dataset: Whose severities they are; without one, those of the kind.

    Returns:
        A finite tensor of the shape, dtype and device of `x`: where a value would overflow it saturates.
    """
    if severity not in range(LEVELS + 1):
        raise ValueError(f"Expected `severity` to be an integer from 0 to {LEVELS}, but got {severity!r}")
    parameters = levels(name, modality, dataset)
    if severity == 0:
        return x
    return apply(x, row, name=name, parameter=parameters[severity - 1], key=key, modality=modality, split=split)


def apply(
    x: Tensor,
    row: Tensor,
    *,
    name: str,
    parameter: Parameter,
    key: int,
    modality: Modality,
    split: Tensor | Gathered | Stored | None = None,
) -> Tensor:
    """`corrupt` with a parameter that need not be in the table, as its calibration needs."""
    if len(x) == 0:
        return x
    function = corruptions.get(name)
    draw = Draw(key, row.to(x.device), modality, split)
    return _in_blocks(lambda x, draw: _finite(function, x, parameter, draw), x, draw)


def _in_blocks(corrupted: Callable[[Tensor, Draw], Tensor], x: Tensor, draw: Draw) -> Tensor:
    """All rows, some at a time on the CPU: a corruption's passes stay in the cache, and memory is that of one block."""
    tall = max(1, _BLOCK // max(1, math.prod(x.shape[1:])))
    if len(x) <= tall or x.device.type != "cpu":
        return corrupted(x, draw)
    out = x.new_empty(x.shape)
    for start in range(0, len(x), tall):
        block = slice(start, start + tall)
        out[block] = corrupted(x[block], replace(draw, row=draw.row[block]))
    return out


def _finite(function: Callable[..., Tensor], x: Tensor, parameter: Parameter, draw: Draw) -> Tensor:
    import torch

    if not x.is_floating_point():
        return function(x, parameter, draw)
    # Half precision would round the noise itself: compute in single precision, saturate, round once.
    work = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    limit = torch.finfo(x.dtype).max
    out = function(work, parameter, draw).nan_to_num(0.0, limit, -limit)
    return out if out.dtype == x.dtype else out.clamp(-limit, limit).to(x.dtype)


def drop_modalities(present: Tensor, row: Tensor, rate: float | Tensor, key: int) -> Tensor:
    """The `present` of a missing-rate condition; `key` is `corruption_key(..., modality="*", name="missing")`.

    Args:
        present: `[B, M]` bool; never changed in place.
        rate: Probability that a modality of a row goes, or `[M]` of each; at least one that was there is kept.
    """
    from datamodules.corruptions.every import missing

    return missing(present, row, rate, key)
