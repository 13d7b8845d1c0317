"""What a board has to say, in a few sentences computed from its evidence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leaderboard import measures
from leaderboard.board import RANKED_SEEDS, Board, Dataset, Row
from leaderboard.ranking import Standing
from leaderboard.robustness import modality_areas

_NAMED = 4  # of a list


def answer(board: Board) -> tuple[str, ...]:
    """Who is ahead, who is tied at the top, what fusing gains, what breaks first, what is lost, what it costs."""
    return tuple(text for text, _ in sentences(board))


def sentences(board: Board) -> tuple[tuple[str, str], ...]:
    """The answer, each sentence with the slice where it is seen."""
    fused = [r for r in board.rows if r.label not in board.references]
    few = f"A smoke test: with fewer than {RANKED_SEEDS} seeds there are scores and intervals, but no ranks."
    found = (
        (None if board.ranked else few, "overview"),
        (_ahead(board), "clean"),
        (_top(board), "clean"),
        (_gain(board, fused), "clean"),
        (_breaks(board, fused), "robust"),
        (_absent(board), "missing"),
        (_cost(board), "cost"),
        (_unconverged(board), "clean"),
    )
    return tuple((sentence, view) for sentence, view in found if sentence)


def _ahead(board: Board) -> str | None:
    placed = [s for s in board.order("clean") if s.method not in board.references]
    if not placed:
        return None
    ahead, behind = ([s for s in placed if s.verdict == v] for v in ("win", "loss"))
    counted = (
        f"{len(ahead)} of {len(placed)} methods are ahead of {board.control} on clean data and {len(behind)} behind"
    )
    first = placed[0]
    most = f"the largest advantage is {_said(first)} ({first.method}, on {first.on} of {first.of} datasets)"
    return f"{counted} (adjusted for their number); {most}."


def _said(standing: Standing) -> str:
    half = "" if standing.high is None else f" ±{standing.high - standing.advantage:.3f}"
    return f"{standing.advantage:+.3f}{half}"


def _top(board: Board) -> str | None:
    whole = [s for s in board.order("clean") if s.on == s.of]
    best = [s.method for s in whole if s.best]
    if not best or len(whole) < 2:
        return None
    if len(best) == 1:
        return f"{best[0]} is the best of the {len(whole)} methods that have every dataset."
    return f"{len(best)} of the {len(whole)} methods that have every dataset may be the best: {listed(best)}."


def _gain(board: Board, fused: Sequence[Row]) -> str | None:
    parts: list[tuple[float, str]] = []
    for d in board.datasets:
        gains = [e.measures["gain"].mean for r in fused if "gain" in (e := r.entries[d.name]).measures]
        if gains:
            losing = sum(g < 0 for g in gains)
            marked = f" ({losing} of {len(gains)} methods lose to it)" if losing else ""
            parts.append((float(np.median(gains)), f"{np.median(gains):+.3f} on {d.name}{marked}"))
    if not parts:
        return None
    parts.sort()
    text = [part for _, part in parts]
    if len(text) > _NAMED:
        text = [*text[: _NAMED - 1], f"... , {text[-1]}"]
    return f"Over the best single modality the median method gains {', '.join(text)}."


def _breaks(board: Board, fused: Sequence[Row]) -> str | None:
    falls = {
        (d.name, k): fall for d in board.datasets for k in d.modalities if (fall := _fall(fused, d, k)) is not None
    }
    if not falls:
        return None
    (name, modality), fall = max(falls.items(), key=lambda item: (item[1], item[0]))
    broken_one = f"with the modality {modality} of {name} corrupted"
    sentence = f"What breaks first: {broken_one}, methods fall by {fall:.3f} on average"
    broken = {
        r.label: float(np.mean(gains))
        for r in fused
        if (gains := [e.measures["corrupted_gain"].mean for e in r.entries.values() if "corrupted_gain" in e.measures])
    }
    worse = sorted((m for m, gain in broken.items() if gain < 0), key=lambda m: broken[m])
    if not broken:
        return f"{sentence}."
    if not worse:
        return f"{sentence}; for none of {len(broken)} methods is fusing worse than ignoring the broken modality."
    return (
        f"{sentence}; for {len(worse)} of {len(broken)} methods fusing is worse than ignoring the broken modality: "
        f"{listed(worse)}."
    )


def _fall(fused: Sequence[Row], dataset: Dataset, modality: str) -> float | None:
    """Mean over methods and seeds of the clean score less the area with this modality corrupted, normalised."""
    only = [c for c in dataset.curves if c[0] == modality]
    entries = [r.entries[dataset.name] for r in fused if "drop" in r.entries[dataset.name].measures]
    falls = [measures.normalise(r.clean, r) - modality_areas(r, only)[modality] for e in entries for r in e.records]
    return float(np.mean(falls)) if only and falls else None


def _absent(board: Board) -> str | None:
    """What is left of the first method without a modality: of each on a board of one dataset, else of the dearest."""
    placed = [s.method for s in board.order("clean") if s.method not in board.references] or [board.control]
    row = next((r for r in board.rows if r.label == placed[0]), None)
    if row is None:
        return None
    lost: list[tuple[float, str]] = []
    for d in board.datasets:
        records = row.entries[d.name].records
        for modality in d.modalities:
            left = [c.score for r in records for c in r.conditions if c.kind == "missing" and c.absent == (modality,)]
            if left and len(left) == len(records):
                now, then = float(np.mean(left)), float(np.mean([r.clean for r in records]))
                fall = measures.normalise(then, records[0]) - measures.normalise(now, records[0])
                of = f"the modality {modality} of {d.name}" if len(board.datasets) > 1 else modality
                lost.append((fall, f"{now:.3f} instead of {then:.3f} ({d.metric}) without {of}"))
    if not lost:
        return None
    lost.sort(reverse=True)
    shown = lost[:_NAMED] if len(board.datasets) == 1 else lost[:1]
    return f"With a modality missing, {row.label} scores {', '.join(said for _, said in shown)}."


def _unconverged(board: Board) -> str | None:
    entries = {(r.label, n): e for r in board.rows for n, e in r.entries.items() if e.records}
    marked = [pair for pair, e in entries.items() if e.unconverged]
    if not marked:
        return None
    names = list(dict.fromkeys(label for label, _ in marked))
    return (
        f"{len(marked)} of {len(entries)} entries were still getting better when their epochs were over (†), so more "
        f"training may change their scores: {listed(names)}."
    )


def _cost(board: Board) -> str | None:
    rows = {r.label: r for r in board.rows}
    if board.control not in rows or not board.order("clean"):
        return None
    first = board.order("clean")[0].method
    if first == board.control:
        return f"Nothing dearer than {board.control} is ahead of it."
    shares = [_ratio(rows[first], rows[board.control], cost) for cost in ("parameters", "train_seconds")]
    if None in shares:
        return None
    size = (
        f"has {shares[0]} times the parameters of {board.control}"
        if shares[0] != "0"
        else "has no parameters that are fitted by gradient"
    )
    return f"{first} {size} and trains {shares[1]} times as long as {board.control}."


def _ratio(row: Row, control: Row, cost: str) -> str | None:
    """Mean over the datasets both have."""
    both = [
        own.measures[cost].mean / base.measures[cost].mean
        for n, own in row.entries.items()
        if cost in own.measures and cost in (base := control.entries[n]).measures and base.measures[cost].mean > 0
    ]
    return f"{np.mean(both):.2g}" if both else None


def listed(names: Sequence[str]) -> str:
    """The first of them; the table has them all."""
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
