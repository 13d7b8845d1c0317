"""A Board as one format-neutral table, the most telling columns first; `renderings` writes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from leaderboard.answer import answer, listed
from leaderboard.board import TRIVIAL, Board, Dataset, Entry, Row
from leaderboard.measures import MEASURES, SLICES, Measure
from leaderboard.ranking import PILLARS, Standing
from leaderboard.scores import within
from leaderboard.shown import shown

HOLE = "–"
BELOW = "↓"
UNCONVERGED = "†"
PER_DATASET = {"clean": 2}
"""Slice -> how many of its measures are shown on every dataset; one, if it is not here."""

Column = tuple[str, Callable[[Row], "Cell"]]


@dataclass(frozen=True)
class Cell:
    """A text and whether it may be the best of its column."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class Table:
    """What every text rendering shows; `left` counts the columns that are aligned left.

    Attributes:
        name: Short and unique on a page: `overview-plain`.
        references: How many rows at the top are what all others are read against.
        glossary: Title of a measure -> what it is.
    """

    name: str
    title: str
    answer: tuple[str, ...]
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    references: int
    legend: tuple[str, ...]
    glossary: dict[str, str]
    notes: tuple[str, ...]
    left: int = 1


def table(board: Board, view: str = "overview", league: str | None = None) -> Table:
    """Choose the columns of a slice.

    After the order of the pillars, the first measure of the slice is shown on every dataset, the others as means over
    datasets; a board of one dataset shows all of them on it. Scores come first while there are no ranks.

    Args:
        board: All of it, or of one league (`of_league`).
        view: The slice.
        league: Its name, for the title.

    Raises:
        KeyError: If there is no such slice.
    """
    if view not in SLICES:
        raise KeyError(f"no slice named {view!r}. Known: {', '.join(SLICES)}")
    measured = [MEASURES[name] for name in SLICES[view] if any(name in e.measures for e in _entries(board))]
    found = [p for p in PILLARS if view in ("overview", "cost", p) and any(p in r.standings for r in board.rows)]
    main = view if view in found else "clean"
    single = len(board.datasets) == 1
    order = _order_columns(board, main) if main in found else []
    others = [
        (f"{p.capitalize()}\nadvantage", partial(_advantage, pillar=p, control=board.control))
        for p in found
        if p != main
    ]
    scores = _score_columns(board, measured if single else measured[: PER_DATASET.get(view, 1)])
    means: list[Column] = []
    if not single:
        means = [(f"Mean\n{m.title}", partial(_mean, measure=m)) for m in measured[PER_DATASET.get(view, 1) :]]
    columns = [*order, *others, *scores, *means] if board.ranked else [*scores, *order, *others, *means]
    rows = sorted(board.rows, key=lambda r: _place(r, main, board.references))
    what = (
        f"{board.datasets[0].name} ({board.datasets[0].metric})" if single else _count(len(board.datasets), "dataset")
    )
    where = f"league {league} · {board.track} track" if league else f"{board.track} track"
    methods = _count(sum(r.label != TRIVIAL for r in board.rows), "method")
    return Table(
        "-".join([view, board.track, *([league.replace(" ", "-")] if league else [])]),
        shown(f"{view} · {where} · {methods} · {what}"),
        tuple(map(shown, answer(board))),
        ("Method", *(header for header, _ in columns)),
        tuple((Cell(shown(row.label)), *(make(row) for _, make in columns)) for row in rows),
        sum(r.label in board.references for r in rows),
        tuple(map(shown, _legend(board, found))),
        {m.title: m.help for m in measured},
        tuple(map(shown, _footnotes(board))),
    )


def _order_columns(board: Board, pillar: str) -> list[Column]:
    """The order of a pillar: place, advantage with its interval, datasets, wins, ties and losses."""
    columns: list[Column] = []
    if board.ranked:
        columns.append(("#", lambda row: Cell(str(s.place) if (s := row.standings.get(pillar)) else HOLE)))
    columns.append((f"{pillar.capitalize()}\nadvantage", partial(_advantage, pillar=pillar, control=board.control)))
    if any(s.on < s.of for r in board.rows if (s := r.standings.get(pillar))):
        columns.append(("On", lambda row: Cell(f"{s.on} of {s.of}" if (s := row.standings.get(pillar)) else HOLE)))
    if len(board.datasets) > 1:
        columns.append(("W/T/L", partial(_tally, pillar=pillar, control=board.control)))
    return columns


def _score_columns(board: Board, measured: Sequence[Measure]) -> list[Column]:
    """Measures on every dataset; that of the clean score says its metric and what the trivial predictor has."""
    columns: list[Column] = []
    single = len(board.datasets) == 1
    for dataset in board.datasets:
        for m in measured:
            title = _metric(dataset) if m.name == "clean" else m.title
            header = title if single else f"{shown(dataset.name)}\n{title}"
            columns.append((header, partial(_cell, dataset=dataset.name, measure=m)))
    return columns


def _metric(dataset: Dataset) -> str:
    known = "" if dataset.trivial is None else f"\ntrivial {dataset.trivial:.3f}"
    return f"{shown(dataset.metric)}{known}"


def _entries(board: Board) -> list[Entry]:
    return [e for row in board.rows for e in row.entries.values()]


def _place(row: Row, pillar: str, references: Sequence[str]) -> tuple[Any, ...]:
    if row.label in references:
        return (-1, references.index(row.label))
    standing = row.standings.get(pillar)
    return (0, -standing.advantage) if standing else (1, 0.0)


def advantage(standing: Standing) -> str:
    """An advantage is never bare: half its 95 % interval stands beside it."""
    half = "" if standing.high is None else f" ±{standing.high - standing.advantage:.3f}"
    return f"{standing.advantage:+.3f}{half}"


def _advantage(row: Row, pillar: str, control: str) -> Cell:
    standing = row.standings.get(pillar)
    if standing is None:
        return Cell(HOLE)
    if row.label == control:
        return Cell("control", standing.best)
    return Cell(advantage(standing), standing.best)


def _tally(row: Row, pillar: str, control: str) -> Cell:
    standing = row.standings.get(pillar)
    if standing is None or row.label == control:
        return Cell(HOLE)
    return Cell(f"{standing.wins}/{standing.ties}/{standing.losses}")


def _cell(row: Row, dataset: str, measure: Measure) -> Cell:
    entry = row.entries[dataset]
    if entry.status != "ok":
        return Cell({"failed": "failed", "not applicable": "n/a", "not run": "not run"}[entry.status])
    found = entry.measures.get(measure.name)
    if found is None:
        return Cell(HOLE)
    half = "" if found.half is None else f" ±{write(found.half, measure, error=True)}"
    if measure.name == "clean" and found.low is not None and found.high is not None and entry.records:
        low, high = within(entry.records[0].cell.metric, found.low, found.high)
        half = half if (low, high) == (found.low, found.high) else f" [{low:.3f}, {high:.3f}]"
    marks = BELOW * (measure.name in ("clean", "gain") and loses(entry))
    marks += UNCONVERGED * (measure.name == "clean" and entry.unconverged > 0)
    return Cell(write(found.mean, measure) + half + marks, measure.name in entry.best)


def loses(entry: Entry) -> bool:
    """Whether fusing scores less than the best single modality."""
    gain = entry.measures.get("gain")
    return gain is not None and gain.mean < 0


def _mean(row: Row, measure: Measure) -> Cell:
    value = row.means[measure.name]
    return Cell(HOLE if value is None else write(value, measure))


def write(value: float, measure: Measure, error: bool = False) -> str:
    """A number in the measure's own style."""
    if not math.isfinite(value):
        return HOLE
    match measure.style:
        case "score":
            return f"{value:.3f}"
        case "signed":
            return f"{value:.3f}" if error else f"{value:+.3f}"
        case "count":
            return _prefixed(value)
        case "seconds":
            return f"{value:.1f}"
        case "quantity":
            return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _prefixed(value: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


# The first sentence of the answer and every verdict over datasets are adjusted for the number of methods.
POWER = "The smallest advantage found with 80 % power, of a method looked at alone / of one among all"


def _legend(board: Board, found: Sequence[str]) -> tuple[str, ...]:
    lines: list[str] = []
    if found:
        lines.append(
            f"Advantage: mean over a method's datasets of its chance-normalised difference from {board.control}; about "
            f"these datasets. W/T/L: datasets won, tied, lost against {board.control}, 5 % each. *: may be the best of "
            "all that have the same datasets (95 % for all at once)."
        )
        pairs = [(p, board.resolves[p], board.adjusted[p]) for p in found]
        gaps = [f"{one:.3f} / {all_:.3f} ({p})" for p, one, all_ in pairs if one is not None and all_ is not None]
        if gaps:
            lines.append(f"{POWER}: {', '.join(gaps)}.")
    marks = ["±: half the 95 % interval, over seeds, and rows where it is a mean over rows."]
    if any(loses(e) for e in _entries(board)):
        marks.append(f"{BELOW}: below the best single modality.")
    if any(e.unconverged for e in _entries(board)):
        marks.append(f"{UNCONVERGED}: a seed was still getting better when its epochs were over.")
    lines.append(" ".join(marks))
    lines += [board.across[p].sentence for p in found[:1]]
    for league in board.leagues:
        order = league.rankings["clean"].standings
        best = [m for m, s in order.items() if s.best]
        if not order:  # nobody was compared there, which a note says of the dataset
            continue
        said = f"may be the best: {listed(best)}" if best else "nobody to compare"
        lines.append(f"League {league.name} ({', '.join(league.datasets)}; {_count(len(order), 'method')}): {said}.")
    return tuple(lines)


def _footnotes(board: Board) -> tuple[str, ...]:
    holes: dict[str, list[str]] = {}
    for row in board.rows:
        for n, e in row.entries.items():
            if e.status in ("not applicable", "not run"):
                holes.setdefault(f"{n}: {e.reason}", []).append(row.label)
    lines = [f"{hole}: {', '.join(labels)}." for hole, labels in holes.items()]
    return (*lines, *(note if note.endswith(".") else f"{note}." for note in board.notes))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
