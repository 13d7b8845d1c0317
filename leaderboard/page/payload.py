"""What the page shows, as JSON types: first what the table needs, then what charts and drawers do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import to_builtins

from leaderboard import measures, robustness
from leaderboard.answer import sentences
from leaderboard.board import Board, Dataset, Entry, Row
from leaderboard.csv_and_json import plain
from leaderboard.families import FAMILIES
from leaderboard.measures import MEASURES, SLICES
from leaderboard.ranking import PILLARS, Standing
from leaderboard.record import Record
from leaderboard.robustness import curves
from leaderboard.scores import within
from leaderboard.stats import Estimate
from leaderboard.tables import PER_DATASET, POWER


def payload(boards: Sequence[Board], about: Mapping[str, str]) -> dict[str, Any]:
    """What the first paint needs.

    Args:
        boards: One per track.
        about: Registered name of a method -> what it does, in a line.
    """
    used = {name for b in boards for r in b.rows for e in r.entries.values() for name in e.measures}
    shown = [m for m in MEASURES.values() if m.name in used]
    finished = [str(r.provenance.get("finished", "")) for b in boards for row in b.rows for r in _records(row)]
    methods = {row.method for b in boards for row in b.rows}
    return {
        "measures": {m.name: {"title": m.title, "help": m.help, "better": m.better, "style": m.style} for m in shown},
        "slices": {view: [m for m in names if m in used] for view, names in SLICES.items()},
        "perDataset": PER_DATASET,
        "pillars": list(PILLARS),
        "control": boards[0].control if boards else "",
        "references": list(boards[0].references) if boards else [],
        "families": list(FAMILIES),
        "power": POWER,
        "about": {name: about[name] for name in sorted(methods & about.keys())},
        "finished": max(finished, default=""),
        "boards": [_board(b) for b in boards],
    }


def details(boards: Sequence[Board]) -> dict[str, Any]:
    """Track -> label -> what is drawn after the table: curves, audits, facts."""
    return {b.track: {row.label: _details(row) for row in b.rows if any(_records(row))} for b in boards}


def _records(row: Row) -> list[Record]:
    return [r for e in row.entries.values() for r in e.records]


def _board(board: Board) -> dict[str, Any]:
    return {
        "track": board.track,
        "datasets": [_dataset(d) for d in board.datasets],
        "rows": [_row(row, board) for row in board.rows],
        "answer": [list(pair) for pair in sentences(board)],
        "ranked": board.ranked,
        "resolves": {p: _rounded(board.resolves[p]) for p in PILLARS},
        "adjusted": {p: _rounded(board.adjusted[p]) for p in PILLARS},
        "across": {p: board.across[p].sentence for p in PILLARS},
        "leagues": [{"name": own.name, "about": own.about, "datasets": list(own.datasets)} for own in board.leagues],
        "pins": _pins(board),
        "notes": list(board.notes),
    }


def _pins(board: Board) -> list[str]:
    """Methods the charts colour at first: the leaders of the pillars and concat, else whatever there is."""
    leaders = [s.method for p in PILLARS for s in board.order(p)[:2]]
    known = [r.label for r in board.rows if r.entries and any(_records(r))]
    wanted = [*leaders, *(m for m in (board.control,) if m in known), *known]
    return list(dict.fromkeys(wanted))[:5]


def _dataset(dataset: Dataset) -> dict[str, Any]:
    found = plain(dataset)
    found["resolves"] = _rounded(dataset.resolves)
    found["bounded"] = all(map(math.isfinite, within(dataset.metric, -math.inf, math.inf)))
    found["without"] = {k: _rounded(v) for k, v in dataset.without.items()}
    found["ceiling"] = None
    if dataset.bayes is not None:
        found["ceiling"] = _rounded(robustness.normalise(dataset.bayes, dataset.trivial, dataset.higher_is_better))
    return found


def _row(row: Row, board: Board) -> dict[str, Any]:
    leagues = {
        league.name: {
            p: _standing(r.standings[row.label]) for p, r in league.rankings.items() if row.label in r.standings
        }
        for league in board.leagues
    }
    return {
        "label": row.label,
        "method": row.method,
        "family": row.family,
        "holes": list(row.holes),
        "standings": {p: _standing(s) for p, s in row.standings.items()},
        "leagues": {name: own for name, own in leagues.items() if own},
        "entries": {name: _entry(e) for name, e in row.entries.items()},
    }


def _standing(standing: Standing) -> dict[str, Any]:
    alone = {
        d: [_rounded(value), _rounded(half, 3), standing.by_dataset[d]]
        for d, (value, half) in standing.differences.items()
    }
    half = None if standing.high is None else standing.high - standing.advantage
    tally = [standing.wins, standing.ties, standing.losses]
    return {
        "place": standing.place,
        "v": _rounded(standing.advantage),
        "e": _rounded(half, 3),
        "on": standing.on,
        "of": standing.of,
        "tally": tally,
        "best": standing.best,
        "peers": standing.peers,
        "alone": alone,
    }


def _entry(entry: Entry) -> dict[str, Any]:
    if entry.status != "ok":
        return {"status": entry.status, "reason": entry.reason}
    return {
        "status": "ok",
        "best": list(entry.best),
        "m": {name: _estimate(found, name) for name, found in entry.measures.items()},
        **({"unconverged": entry.unconverged} if entry.unconverged else {}),
    }


def _estimate(found: Estimate, name: str) -> list[float | None]:
    """The mean and half its interval; a count that is the same for every seed has no error to speak of."""
    mean = _rounded(found.mean)
    if found.half is None or (found.half == 0 and MEASURES[name].style != "score"):
        return [mean]
    return [mean, _rounded(found.half, 3)]


def _details(row: Row) -> dict[str, Any]:
    first = _records(row)[0]
    return {
        "options": plain(dict(row.options)),
        "recipe": plain(first.cell.recipe),
        "provenance": plain(first.provenance),
        "folded": {label: _folded(own) for label, own in row.folded.items()},
        "entries": {name: _facts(e.records) for name, e in row.entries.items() if e.records},
    }


def _folded(entries: Mapping[str, Entry]) -> dict[str, str]:
    """Clean scores of a method another row stands for."""
    return {n: f"{e.measures['clean'].mean:.3f}" if e.measures else e.reason for n, e in entries.items()}


def _facts(records: Sequence[Record]) -> dict[str, Any]:
    tuning = records[0].cell.tuning
    found = {
        "seeds": [r.cell.seed for r in records],
        "cells": [r.cell.id for r in records],
        "scores": [_rounded(r.clean) for r in records],
        "abar": _rounded(float(np.mean([measures.normalise(r.clean, r) for r in records]))),
        "curves": _curves(records),
        "missing": _missing(records),
        "audit": {k: _rounded(v, 3) for k, v in measures.audit(records).items()},
        "reliance": {k: _rounded(v, 3) for k, v in measures.reliance(records).items()},
        "cost": _means([r.cost for r in records]),
        "summary": _means([r.summary for r in records]),
        "training": plain(_stages(records[0])),
        "tuning": None if tuning is None else {"trial": tuning.trial, "scores": [_rounded(s) for s in tuning.scores]},
    }
    return {name: fact for name, fact in found.items() if fact not in (None, {}, [])}


def _curves(records: Sequence[Record]) -> list[list[Any]]:
    """Modality, corruption and normalised scores, means over seeds, severity 0 first."""
    found: dict[tuple[str, str], list[Sequence[float]]] = {}
    for record in records:
        for kind in ("single", "joint", "misaligned"):
            for key, curve in curves(record, kind).items():
                found.setdefault(key, []).append(curve)
    return [
        [k, c, [_rounded(measures.normalise(v, records[0]), 3) for v in np.mean(several, axis=0)]]
        for (k, c), several in found.items()
        if len(several) == len(records)
    ]


def _missing(records: Sequence[Record]) -> list[list[Any]]:
    """Absent modalities and the normalised score without them."""
    found: dict[str, list[float]] = {}
    for record in records:
        for c in record.conditions:
            if c.kind == "missing":
                found.setdefault(" + ".join(c.absent), []).append(c.score)
    whole = {k: float(np.mean(v)) for k, v in found.items() if len(v) == len(records)}
    return [[k, _rounded(measures.normalise(v, records[0]), 3)] for k, v in whole.items()]


def _means(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean over seeds of whatever was measured."""
    names = sorted({k for facts in several for k in facts})
    found = {n: [facts[n] for facts in several if facts.get(n) is not None] for n in names}
    return {n: float(f"{np.mean(v):.5g}") for n, v in found.items() if v}


def _stages(record: Record) -> list[Mapping[str, Any]]:
    return [{k: v for k, v in to_builtins(stage).items() if k != "history"} for stage in record.training]


def _rounded(value: float | None, digits: int = 4) -> float | None:
    # More than any screen shows, and a third of the bytes.
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")
