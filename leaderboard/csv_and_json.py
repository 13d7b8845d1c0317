"""Boards for programs: CSV and JSON. For people: `renderings`; with the records, to be read again: `export`."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

import msgspec

from leaderboard.board import Board
from leaderboard.measures import MEASURES, SLICES
from leaderboard.ranking import PILLARS
from leaderboard.record import Record
from leaderboard.shown import field
from leaderboard.stats import Estimate, Pair

_STANDING = {
    name: name for name in ("place", "advantage", "on", "of", "wins", "ties", "losses", "best", "mean_rank")
} | {
    "low": "advantage_low",
    "high": "advantage_high",
}


def comma_separated(boards: Sequence[Board], view: str | None = None) -> str:
    """One line per method and dataset, every number at full precision; a hole is an empty field."""
    names = [m for m in MEASURES if view is None or m in SLICES[view]]
    used = {m for b in boards for row in b.rows for e in row.entries.values() for m in e.measures}
    names = [m for m in names if m in used]
    head = ["track", "method", "family", "dataset", "dataset_version", "metric", "trivial", "status", "reason", "seeds"]
    head += ["unconverged"]
    head += [f"{p}_{x}" for p in PILLARS for x in _STANDING.values()]
    head += [f"{m}{x}" for m in names for x in ("", "_low", "_high")]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(head)
    for board in boards:
        for row in board.rows:
            for dataset in board.datasets:
                entry = row.entries[dataset.name]
                line: list[Any] = [board.track, row.label, row.family, dataset.name, dataset.version, dataset.metric]
                line += [_blank(dataset.trivial), entry.status, entry.reason, len(entry.records), entry.unconverged]
                for pillar in PILLARS:
                    s = row.standings.get(pillar)
                    line += [""] * len(_STANDING) if s is None else [_blank(getattr(s, x)) for x in _STANDING]
                for name in names:
                    found = entry.measures.get(name)
                    line += ["", "", ""] if found is None else [found.mean, _blank(found.low), _blank(found.high)]
                writer.writerow([field(x) if isinstance(x, str) else x for x in line])
    return buffer.getvalue()


def _blank(value: Any) -> Any:
    return "" if value is None else value


def to_json(boards: Sequence[Board]) -> str:
    """Everything on the boards but the raw records, which are files of their own."""
    return _indented("".join(_pieces(boards))) + "\n"


def _indented(text: str) -> str:
    """`json` indents in Python, ten times as slowly as it writes."""
    try:
        return msgspec.json.format(text, indent=1)
    except msgspec.DecodeError:  # half a character, which the name of a folder may have
        return json.dumps(json.loads(text), indent=1)


def _pieces(boards: Sequence[Board]) -> Iterator[str]:
    """Boards as JSON, a row at a time: all rows as plain data take a fifth of a gigabyte."""
    yield "["
    for i, board in enumerate(boards):
        yield ",{" if i else "{"
        for j, name in enumerate(sorted(f.name for f in fields(board))):
            yield f'{"," * (j > 0)}"{name}":'
            yield from _listed(board.rows) if name == "rows" else [_compact(getattr(board, name))]
        yield "}"
    yield "]"


def _listed(values: Sequence[Any]) -> Iterator[str]:
    yield "["
    for i, value in enumerate(values):
        yield "," * (i > 0) + _compact(value)
    yield "]"


def _compact(value: Any) -> str:
    return json.dumps(plain(value), sort_keys=True, allow_nan=False)


def plain(value: Any) -> Any:
    """A frozen value as JSON types; records become the cell ids that name their files."""
    if isinstance(value, Record):
        return value.cell.id
    if isinstance(value, Estimate | Pair):
        return {k: plain(v) for k, v in value._asdict().items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple | frozenset | set):
        return [plain(v) for v in cast("Collection[Any]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
