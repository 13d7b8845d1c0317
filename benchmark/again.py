"""A cell run again, and whether it gives what it gave: bit for bit on the same kind of machine, nearly so elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmark.build import build_dataset
from benchmark.executors.local import execute
from benchmark.executors.pool import Settings
from benchmark.identity import method_digest, protocol_digest
from benchmark.options import resolve
from leaderboard.record import Cell, Record
from leaderboard.store import Store
from methods.registry import methods

TOLERANCE = 0.02  # of a score, where another processor or library rounds otherwise
_MACHINE = ("python", "platform", "processor", "gpu", "threads", "versions")


@dataclass(frozen=True)
class Again:
    """A cell that was run twice.

    Attributes:
        differs: Condition -> by how much its score differs, largest first; only those that do.
        same_machine: Whether both runs were on the same kind of machine, so that nothing may differ.
        problem: Empty if the two agree.
    """

    record: Record
    differs: Mapping[str, float]
    same_machine: bool
    problem: str


def run_again(record: Record, folder: Path) -> Again:
    """Train and test a cell again, with the code at hand, into a folder of its own."""
    store = Store(folder)
    store.prepare()
    settings = Settings(str(folder), workers=0, checkpoint=False)
    (new,) = execute([with_code_at_hand(record.cell)], settings)
    if new.status != "ok":
        reason = f"{new.error.type}: {new.error.message}" if new.error else "no reason given"
        return Again(new, {}, same_kind(record.provenance, new.provenance), f"run again, it fails: {reason}")
    return _compared(record, new)


def with_code_at_hand(cell: Cell) -> Cell:
    """The cell with the digests of this code: whether the numbers changed is what is asked, not whether a file did."""
    cls = methods.get(cell.method)
    datamodule = build_dataset(cell.dataset, cell.dataset_options)
    source = method_digest(cls, resolve(cell.method, cls, cell.options, cell.method))
    return msgspec.structs.replace(cell, source=source, protocol=protocol_digest(datamodule))


def same_kind(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two provenances are of machines on which floats are summed alike."""
    own = [{**facts, "versions": _libraries(facts)} for facts in (a, b)]
    return all(own[0].get(name) == own[1].get(name) for name in _MACHINE)


def _libraries(provenance: Mapping[str, Any]) -> dict[str, Any]:
    return {name: v for name, v in (provenance.get("versions") or {}).items() if name != "polymodal"}


def _compared(old: Record, new: Record) -> Again:
    before, after = ({c.id: c.score for c in r.conditions} for r in (old, new))
    gaps = {name: abs(before[name] - after.get(name, math.inf)) for name in before}
    differs = {name: gap for name, gap in sorted(gaps.items(), key=lambda item: -item[1]) if gap > 0}
    same = same_kind(old.provenance, new.provenance)
    allowed = 0.0 if same else TOLERANCE
    wrong = [name for name, gap in differs.items() if gap > allowed]
    problem = ""
    if wrong:
        name = wrong[0]
        problem = (
            f"run again, {len(wrong)} of {len(before)} conditions differ, most of all {name}: {before[name]:.6g} "
            f"before, {after.get(name, math.nan):.6g} now"
        )
    return Again(new, differs, same, problem)
