"""Many seeds of one method on cheap datasets: where every difference between two groups of seeds is chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmark.executors.local import Settings, execute
from benchmark.matrix import parse
from benchmark.plan import make_plan
from leaderboard import pillars, rows
from leaderboard.measures import common_curves
from leaderboard.merge import BoardError, gather
from leaderboard.record import Record
from leaderboard.store import Store

Floats = NDArray[np.float64]
METHOD = "concat"

# As cheap as cells get while they still learn: 240 of them take about five minutes on a core.
_CELLS: Mapping[str, Any] = {
    "methods": [METHOD],
    "baselines": False,
    "datasets": [{"name": "interactions_xor", "rows": 4000}, "digit_halves", "multi_digits", "av_digits"],
    "recipe": {"width": 32, "epochs": 11, "batch_size": 128, "lr": 2e-3, "patience": 4},
    "recipes": {
        "interactions_xor": {"epochs": 10, "batch_size": 250, "lr": 4e-3},
        "av_digits": {"epochs": 7, "batch_size": 64, "lr": 4e-3, "patience": 3},
    },
}


def make(folder: Path, seeds: int, workers: int | None, say: Callable[[str], None], first: int = 0) -> None:
    """Run the cells of seeds `first` and on that are not in the folder yet."""
    store = Store(folder)
    store.prepare()
    cells = make_plan(parse({**_CELLS, "seeds": list(range(first, first + seeds))}, "study calibration")).cells
    todo = [cell for cell in cells if store.done(cell.id) is None]
    say(f"{len(cells)} cells, {len(cells) - len(todo)} of them done already")
    failed = 0
    for number, record in enumerate(execute(todo, Settings(str(folder), workers=workers, checkpoint=False)), start=1):
        failed += record.status == "failed"
        if number % 20 == 0 or number == len(todo):
            say(f"{number} of {len(todo)} run, {failed} failed")


def read(folder: Path) -> dict[str, dict[str, Floats]]:
    """What rows add to each pillar: pillar -> dataset -> `[seeds, rows]`.

    Raises:
        BoardError: If the folder has no records of the method, or predictions that cannot be read by row.
    """
    evidence = gather([folder])
    records = [r for r in evidence.records if r.cell.label == METHOD]
    if not records:
        raise BoardError(f"no records of {METHOD} in {folder}")
    curves = common_curves(records)
    found: dict[str, dict[str, list[Floats]]] = {}
    for record in records:
        for pillar, weights in _pillars(record, curves.get(record.cell.dataset, frozenset())).items():
            values = rows.contributions(evidence.stores[record.cell.id], record, weights)
            if values is None:
                raise BoardError(f"{record.cell.id}: no predictions by row")
            found.setdefault(pillar, {}).setdefault(record.cell.dataset, []).append(values)
    return {pillar: {d: np.stack(x) for d, x in own.items()} for pillar, own in found.items()}


def _pillars(record: Record, curves: frozenset[tuple[str, str]]) -> dict[str, pillars.Weights]:
    found = {"clean": pillars.clean()}
    if curves:
        found["robust"] = pillars.robust(curves)
    if subsets := [c.id for c in record.conditions if c.kind == "missing"]:
        found["missing"] = pillars.missing(subsets)
    return found
