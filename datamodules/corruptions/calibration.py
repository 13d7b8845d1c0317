"""Severities found for a dataset: `calibrated/<dataset>.toml`, written by `polymodal study severities`.

What halves the score of one dataset does nothing to another, so each dataset has its own five values for each modality
and corruption. A corruption that cannot be set so (a blur of four pixels) is left out there, with its reason. A dataset
without a file, as a user's own, has the values of the kind in `severities.toml`.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datamodules.corruptions.registry import Parameter

if TYPE_CHECKING:
    from datamodules.spec import Modality

FOLDER = Path(__file__).parent / "calibrated"


@lru_cache
def tables(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Dataset -> modality -> what its file says, all read once."""
    return {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml"))}


def is_calibrated(modality: Modality, dataset: str) -> bool:
    """Whether the severities of a modality, or of its sound, are the dataset's own."""
    found = _entry(modality, dataset)
    known = {*found.get("severities", {}), *found.get("left_out", {})}
    return bool(found) and (found.get("medium") != "sound" or any(name.startswith("sound_") for name in known))


def calibrated(modality: Modality, dataset: str) -> dict[str, tuple[Parameter, ...]]:
    """Corruption -> the dataset's own five values; what is not here has those of the kind."""
    return {name: tuple(values) for name, values in _entry(modality, dataset).get("severities", {}).items()}


def medium(modality: Modality, dataset: str) -> str:
    """What corruptions befall: the modality itself, by its kind, or `sound` where its recordings are at hand."""
    return _entry(modality, dataset).get("medium", modality.kind)


def left_out(modality: Modality, dataset: str) -> dict[str, str]:
    """Corruption -> the reason why the dataset is not tested under it."""
    return _entry(modality, dataset).get("left_out", {})


def _entry(modality: Modality, dataset: str) -> dict[str, Any]:
    found = tables(FOLDER).get(dataset, {}).get(modality.name, {})
    # Frozen features go by the name of the input they stand for, and an option may change a shape: other inputs.
    same = found.get("kind") == modality.kind and tuple(found.get("shape", ())) == modality.shape
    return found if same else {}
