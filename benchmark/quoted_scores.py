"""What published methods reach on the rows of a dataset: quoted from exports, so that no figure is written by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import mean

from leaderboard.export import read
from leaderboard.record import Record
from leaderboard.reference import BASELINES, REFERENCE

QUOTED = ("unimodal", "linear", "boosting", "late", "concat")  # a single modality, and what one would try first


@dataclass(frozen=True)
class Quoted:
    """Mean clean test scores by label, and how they were measured; empty where nothing is published of these rows."""

    scores: dict[str, float] = field(default_factory=dict)
    measured: str = ""


def quoted(content_hash: str) -> Quoted:
    """The published scores on the rows with this hash."""
    records = [r for r in _published() if r.provenance.get("dataset_hash") == content_hash]
    if not records:
        return Quoted()
    scores: dict[str, list[float]] = defaultdict(list)
    for record in sorted(records, key=lambda r: (QUOTED.index(r.cell.method), r.cell.label)):
        scores[record.cell.label].append(record.conditions[0].score)
    return Quoted({label: mean(own) for label, own in scores.items()}, _how(records))


def _how(records: Iterable[Record]) -> str:
    first, *others = sorted(records, key=lambda r: str(r.provenance.get("finished")))
    seeds = {r.cell.seed for r in (first, *others)}
    recipe = ", ".join(f"{key} {value:g}" for key, value in first.cell.recipe.items() if isinstance(value, int | float))
    when = str(first.provenance.get("finished", ""))[:10]
    return f"{when}, mean test {first.cell.metric} of {len(seeds)} seeds, published with Polymodal; {recipe}"


@lru_cache(maxsize=1)
def _published() -> tuple[Record, ...]:
    files: list[Path] = [path for path in (REFERENCE, BASELINES) if path.is_file()]
    records = [record for path in files for record in read(path).records]
    return tuple(r for r in records if r.status == "ok" and r.cell.tuning is None and r.cell.method in QUOTED)
