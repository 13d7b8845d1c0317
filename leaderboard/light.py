"""Records as a table needs them: what no board reads is left out, and what many have in common is kept once.

Twenty thousand whole records are a gigabyte and a half, most of it the same conditions again and again.
"""

from __future__ import annotations

from typing import Any

from msgspec.json import encode
from msgspec.structs import force_setattr, replace

from leaderboard.record import Condition, Fill, Measured, Numbers, Record

_NOTHING: Numbers = {}
_NO_FILLS: dict[Fill, float] = {}
_COMMON = (  # facts of a cell that those of other seeds have too
    *("method", "label", "family", "options", "dataset", "dataset_version", "dataset_options", "recipe", "trainer"),
    *("corruptions", "modalities", "target", "metric", "source", "protocol", "inputs"),
)
_DOUBT = "error_auroc"  # the one diagnostic that is a measure


class Lighten:
    """Call it with each record of a folder."""

    def __init__(self) -> None:
        self._shared: dict[tuple[Condition, ...], tuple[tuple[Condition, ...], tuple[str, ...]]] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._values: dict[tuple[str, bytes], Any] = {}

    def __call__(self, record: Record) -> Record:
        """The record without learning curves, further metrics and other diagnostics."""
        planned = record.cell.conditions
        shared = self._shared.get(planned)
        if shared is None:
            shared = self._shared[planned] = planned, tuple(c.id for c in planned)
        planned, ids = shared
        # The same value, so the cell stays the same; a replaced cell would be hashed again.
        force_setattr(record.cell, "conditions", planned)
        for name in _COMMON:
            value = getattr(record.cell, name)
            force_setattr(record.cell, name, self._values.setdefault((name, encode(value)), value))
        measured = tuple(map(self._light, planned, record.conditions)) if record.conditions else ()
        training = tuple(replace(stage, history=()) for stage in record.training)
        made = replace(record, conditions=measured, training=training, cost=self._named(record.cost))
        if measured:
            vars(made)["_ids"] = ids
        return made

    def _light(self, planned: Condition, found: Measured) -> Measured:
        """What was measured, with the names of the plan; calibration is read of clean rows and single corruptions."""
        return Measured(
            planned.kind,
            planned.modality,
            planned.corruption,
            planned.severity,
            planned.absent,
            planned.rate,
            score=found.score,
            metrics=_NOTHING,
            calibration=self._named(found.calibration) if planned.kind in ("clean", "single") else _NOTHING,
            weights=found.weights,
            diagnostics=found.diagnostics if _DOUBT in found.diagnostics else _NOTHING,
            fills=found.fills or _NO_FILLS,
        )

    def _named(self, numbers: Numbers) -> Numbers:
        """The same with names that are kept once: of thirty conditions they take as much room as the numbers."""
        names = tuple(numbers)
        return dict(zip(self._names.setdefault(names, names), numbers.values(), strict=True))
