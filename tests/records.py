"""Records for tests: built and changed by the names of their fields, wherever the field lives."""

from __future__ import annotations

from typing import Any

import msgspec

from leaderboard.record import SCHEMA, Cell, Condition, Measured, Record

_CELL: dict[str, Any] = {
    "method": "concat",
    "label": "concat",
    "family": "baseline",
    "track": "plain",
    "options": {},
    "dataset": "d",
    "dataset_version": "1",
    "dataset_options": {},
    "seed": 0,
    "recipe": {},
    "trainer": {"precision": "32-true"},
    "conditions": (),
    "corruptions": {},
    "modalities": ("a", "b"),
    "target": "multiclass",
    "metric": "accuracy",
    "higher_is_better": True,
    "bayes": None,
    "parameters": 0,
    "source": "",
    "protocol": "",
    "split": "test",
    "tuning": None,
    "inputs": ("vector 8", "vector 8"),
}


def measured(
    kind: Any, score: float, modality: str | None = None, corruption: str | None = None, severity: int = 0, **more: Any
) -> Measured:
    """A measured condition."""
    return Measured(kind, modality, corruption, severity, score=score, **more)


def planned(conditions: tuple[Measured, ...]) -> tuple[Condition, ...]:
    """What they were before they were measured."""
    names = Condition.__struct_fields__
    return tuple(Condition(**{name: getattr(c, name) for name in names}) for c in conditions)


def make_record(**facts: Any) -> Record:
    """A successful record with these facts, of the cell or of what was measured."""
    cell, own = _divided({"conditions": (measured("clean", 0.5),), **facts})
    return Record(cell=Cell(**{**_CELL, **cell}), **{"status": "ok", "schema": SCHEMA, **own})


def changed(record: Record, **facts: Any) -> Record:
    """The record with other facts; another cell, if they are the cell's."""
    cell, own = _divided(facts)
    return msgspec.structs.replace(record, cell=msgspec.structs.replace(record.cell, **cell), **own)


def _divided(facts: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    cell = {name: facts[name] for name in Cell.__struct_fields__ if name in facts and name != "conditions"}
    own = {name: value for name, value in facts.items() if name not in cell}
    if own.get("conditions"):
        cell["conditions"] = planned(own["conditions"])
    return cell, own
