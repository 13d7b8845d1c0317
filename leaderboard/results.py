"""Results for a notebook: the records of folders, exports or tables, as a frame, a board or a comparison."""

# pandas ships no stubs.
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leaderboard.board import Board, build
from leaderboard.comparison import Comparison, compare
from leaderboard.merge import Evidence, Setting, gather
from leaderboard.reference import REFERENCE

if TYPE_CHECKING:
    from pandas import DataFrame

_COLUMNS = ("cell", "method", "dataset", "seed", "track", "setting", "status", "condition", "kind", "modality",
            "corruption", "severity", "rate", "metric", "score")  # fmt: skip


@dataclass(frozen=True)
class Results:
    """Records, read when they are asked for.

    Attributes:
        sources: Results folders, exports and tables.
        beside: Published exports that they stand beside.
        cells: Only these; None: all.
    """

    sources: tuple[Path, ...]
    beside: tuple[Path, ...] = ()
    setting: Setting | None = None
    cells: frozenset[str] | None = None

    @cached_property
    def evidence(self) -> Evidence:
        """What a board is made of."""
        return gather(self.sources, None, False, self.setting, self.beside, self.cells)

    def frame(self) -> DataFrame:
        """A row per cell and condition; a cell that failed has one, without a score."""
        import pandas as pd

        found: list[tuple[Any, ...]] = []
        for record in (*self.evidence.records, *self.evidence.failed):
            cell = record.cell
            setting = "default" if cell.tuning is None else "tuned"
            facts = (cell.id, cell.label, cell.dataset, cell.seed, cell.track, setting, record.status)
            if not record.conditions:
                found.append((*facts, *(None,) * 6, cell.metric, None))
            for c in record.conditions:
                where = (c.id, c.kind, c.modality, c.corruption, c.severity, c.rate)
                found.append((*facts, *where, cell.metric, c.score))
        return pd.DataFrame(found, columns=list(_COLUMNS))

    def board(self, track: str = "plain") -> Board:
        """The board of a track."""
        return build(self.evidence, track)

    def compare(self, a: str, b: str, every: bool = False) -> Comparison:
        """Two methods, paired; `every` also compares single conditions."""
        return compare(self.evidence, a, b, every)

    def with_reference(self) -> Results:
        """These beside the results that are published with Polymodal."""
        return replace(self, beside=(*self.beside, REFERENCE))


def load(
    *sources: str | Path,
    beside: str | Path | Sequence[str | Path] = (),
    setting: Setting | None = None,
    cells: Collection[str] | None = None,
) -> Results:
    """Results to look at.

    Args:
        sources: Results folders, exports (`.parquet`) and tables (`.csv`); `"reference"` is what Polymodal publishes.
        beside: Published exports, or `"reference"`, that they are to stand beside.
        setting: Methods at their defaults, or tuned.
        cells: Only these.

    Raises:
        BoardError: If one is missing or cannot be trusted.
    """
    several = [beside] if isinstance(beside, str | Path) else beside
    found = Results(_paths(sources), _paths(several), setting, None if cells is None else frozenset(cells))
    _ = found.evidence  # now, so that what is wrong is said here
    return found


def _paths(names: Sequence[str | Path]) -> tuple[Path, ...]:
    return tuple(REFERENCE if name == "reference" else Path(name) for name in names)
