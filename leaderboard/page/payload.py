"""What the page shows, as JSON types: numbers with the text they are written as, curves, audits, facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import to_builtins

from leaderboard import measures
from leaderboard.answer import answer
from leaderboard.board import Board, Dataset, Entry, Row
from leaderboard.measures import MEASURES, SLICES, Measure
from leaderboard.ranking import PILLARS, Standing
from leaderboard.record import Record
from leaderboard.robustness import curves
from leaderboard.stats import Estimate
from leaderboard.tables import advantage, plain, write


def payload(boards: Sequence[Board]) -> dict[str, Any]:
    """Everything the page needs."""
    used = {name for b in boards for r in b.rows for e in r.entries.values() for name in e.measures}
    shown = [m for m in MEASURES.values() if m.name in used]
    finished = [str(r.provenance.get("finished", "")) for b in boards for r in _records(b)]
    return {
        "measures": {m.name: {"title": m.title, "help": m.help, "better": m.better} for m in shown},
        "slices": {view: [m for m in names if m in used] for view, names in SLICES.items()},
        "pillars": list(PILLARS),
        "control": boards[0].control if boards else "",
        "finished": max(finished, default=""),
        "boards": [_board(b) for b in boards],
    }


def _records(board: Board) -> list[Record]:
    return [r for row in board.rows for e in row.entries.values() for r in e.records]


def _board(board: Board) -> dict[str, Any]:
    return {
        "track": board.track,
        "datasets": [_dataset(board, d) for d in board.datasets],
        "rows": [_row(row) for row in board.rows],
        "answer": list(answer(board)),
        "ranked": board.ranked,
        "resolves": {p: _rounded(board.resolves[p]) for p in PILLARS},
        "across": {p: board.across[p].sentence for p in PILLARS},
        "pins": _pins(board),
        "notes": list(board.notes),
    }


def _pins(board: Board) -> list[str]:
    """Methods the charts colour at first: the leaders of the pillars and concat, else whatever there is."""
    leaders = [s.method for p in PILLARS for s in board.order(p)[:2]]
    known = [r.label for r in board.rows]
    wanted = [*leaders, *(m for m in (board.control,) if m in known), *known]
    return list(dict.fromkeys(wanted))[:5]


def _dataset(board: Board, dataset: Dataset) -> dict[str, Any]:
    records = [r for row in board.rows for r in row.entries[dataset.name].records]
    found = plain(dataset)
    found["resolves"] = _rounded(dataset.resolves)
    found["without"] = {k: _rounded(v) for k, v in dataset.without.items()}
    found["ceiling"] = None
    if dataset.bayes is not None and records:
        found["ceiling"] = _rounded(measures.normalise(dataset.bayes, records[0]))
    return found


def _row(row: Row) -> dict[str, Any]:
    records = [r for e in row.entries.values() for r in e.records]
    return {
        "label": row.label,
        "method": row.method,
        "family": row.family,
        "options": plain(dict(row.options)),
        "complete": row.complete,
        "holes": list(row.holes),
        "standings": {p: _standing(s) for p, s in row.standings.items()},
        "means": {n: _number(v, MEASURES[n]) for n, v in row.means.items() if v is not None},
        "entries": {name: _entry(e) for name, e in row.entries.items()},
        "folded": {label: _folded(own) for label, own in row.folded.items()},
        "recipe": plain(records[0].cell.recipe) if records else {},
        "provenance": plain(records[0].provenance) if records else {},
    }


def _standing(standing: Standing) -> dict[str, Any]:
    found = {k: _rounded(v) if isinstance(v, float) else v for k, v in plain(standing).items()}
    return {**found, "text": advantage(standing)}


def _folded(entries: Mapping[str, Entry]) -> dict[str, str]:
    """Clean scores of a method another row stands for."""
    clean = MEASURES["clean"]
    return {n: write(e.measures["clean"].mean, clean) if e.measures else e.reason for n, e in entries.items()}


def _number(value: float, measure: Measure) -> dict[str, Any]:
    return {"v": _rounded(value), "t": write(value, measure)}


def _estimate(found: Estimate, measure: Measure) -> dict[str, Any]:
    number = _number(found.mean, measure)
    # A count that is the same for every seed has no error to speak of.
    if found.half is not None and (found.half > 0 or measure.style == "score"):
        number |= {"l": _rounded(found.low), "h": _rounded(found.high), "e": write(found.half, measure, error=True)}
    return number


def _entry(entry: Entry) -> dict[str, Any]:
    if entry.status != "ok":
        return {"status": entry.status, "reason": entry.reason}
    return {
        "status": "ok",
        "best": list(entry.best),
        "seeds": [r.cell.seed for r in entry.records],
        "cells": [r.cell.id for r in entry.records],
        "m": {name: _estimate(found, MEASURES[name]) for name, found in entry.measures.items()},
        "seedScores": [_rounded(r.clean) for r in entry.records],
        "abar": _rounded(float(np.mean([measures.normalise(r.clean, r) for r in entry.records]))),
        "curves": _curves(entry.records),
        "missing": _missing(entry.records),
        "audit": {k: _rounded(v) for k, v in measures.audit(entry.records).items()},
        "reliance": {k: _rounded(v) for k, v in measures.reliance(entry.records).items()},
        "cost": _means([r.cost for r in entry.records]),
        "summary": _means([r.summary for r in entry.records]),
        "training": plain(_stages(entry.records[0])),
    }


def _curves(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Normalised severity curves, means over seeds, severity 0 first."""
    found: dict[tuple[str, str], list[Sequence[float]]] = {}
    for record in records:
        for kind in ("single", "joint", "misaligned"):
            for key, curve in curves(record, kind).items():
                found.setdefault(key, []).append([measures.normalise(a, record) for a in curve])
    return [
        {"modality": k, "corruption": c, "y": [_rounded(v) for v in np.mean(several, axis=0)]}
        for (k, c), several in found.items()
        if len(several) == len(records)
    ]


def _missing(records: Sequence[Record]) -> list[dict[str, Any]]:
    found: dict[str, list[float]] = {}
    for record in records:
        for c in record.conditions:
            if c.kind == "missing":
                found.setdefault(" + ".join(c.absent), []).append(measures.normalise(c.score, record))
    return [{"absent": k, "v": _rounded(float(np.mean(v)))} for k, v in found.items() if len(v) == len(records)]


def _means(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean over seeds of whatever was measured."""
    names = sorted({k for facts in several for k in facts})
    found = {n: [facts[n] for facts in several if facts.get(n) is not None] for n in names}
    return {n: float(f"{np.mean(v):.5g}") for n, v in found.items() if v}


def _stages(record: Record) -> list[Mapping[str, Any]]:
    return [{k: v for k, v in to_builtins(stage).items() if k != "history"} for stage in record.training]


def _rounded(value: float | None) -> float | None:
    # Six digits are more than any screen shows, and a third of the bytes.
    return None if value is None or not np.isfinite(value) else float(f"{value:.6g}")
