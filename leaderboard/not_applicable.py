"""Why a method has no record on a dataset: what the plan left out, kept beside the records it is missing from."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
from filelock import FileLock

FILE = "not_applicable.jsonl"

Reasons = Mapping[tuple[str, str], str]
"""(label, dataset) -> reason."""


class _Line(msgspec.Struct, frozen=True):
    label: str
    dataset: str
    reason: str


def read(folder: Path) -> dict[tuple[str, str], str]:
    """What runs into this folder left out; empty if none said so.

    Raises:
        ValueError: If the file is not what `remember` wrote.
    """
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        lines = [msgspec.json.decode(line, type=_Line) for line in path.read_bytes().splitlines() if line]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(
            f"{path} is not what `polymodal run` writes ({error}): delete it, a run makes it again"
        ) from None
    return {(line.label, line.dataset): line.reason for line in lines}


def remember(folder: Path, reasons: Reasons) -> None:
    """Add to what is known, whole or not at all; several runs may write into one folder."""
    with FileLock(folder / f".{FILE}.lock"):
        known = read(folder)
        every = {**known, **reasons}
        if every == known:
            return
        lines = [msgspec.json.encode(_Line(*pair, reason)) for pair, reason in sorted(every.items())]
        for stray in folder.glob(f".{FILE}.*.tmp"):  # of who was killed here; we hold the lock
            stray.unlink()
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{FILE}.", suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(b"\n".join(lines) + b"\n")
        os.replace(name, folder / FILE)
