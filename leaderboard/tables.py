"""A Board as text: one format-neutral table, and its renderings for terminal, Markdown, CSV, LaTeX and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from leaderboard.answer import answer
from leaderboard.board import Board, Entry, Row
from leaderboard.measures import MEASURES, SLICES, Measure
from leaderboard.ranking import PILLARS, Standing
from leaderboard.record import Record
from leaderboard.stats import Estimate, Pair

HOLE = "–"
_STANDING = {name: name for name in ("advantage", "on", "of", "wins", "ties", "losses", "best", "mean_rank")} | {
    "low": "advantage_low",
    "high": "advantage_high",
}


@dataclass(frozen=True)
class Cell:
    """A text and whether it may be the best of its column."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class Table:
    """What every text rendering shows; `left` counts the columns that are aligned left."""

    title: str
    answer: tuple[str, ...]
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    legend: tuple[str, ...]
    notes: tuple[str, ...]
    left: int = 1


def table(board: Board, view: str = "overview") -> Table:
    """Choose the columns of a slice, the most telling first.

    After the order of the pillars, the first measure of the slice is shown on every dataset, the others as means over
    datasets; a board of one dataset shows all of them on it.

    Raises:
        KeyError: If there is no such slice.
    """
    if view not in SLICES:
        raise KeyError(f"no slice named {view!r}. Known: {', '.join(SLICES)}")
    shown = [MEASURES[name] for name in SLICES[view] if any(name in e.measures for e in _entries(board))]
    found = [p for p in PILLARS if view in ("overview", "cost", p) and any(p in r.standings for r in board.rows)]
    main = view if view in found else "clean"
    names = [d.name for d in board.datasets]
    single = len(names) == 1
    columns: list[tuple[str, Callable[[Row], Cell]]] = []
    if main in found:
        columns += _order_columns(board, main)
    columns += [(f"{p.capitalize()}\nadvantage", partial(_advantage, pillar=p, control=board.control)) for p in found if p != main]
    for name in names:
        for m in shown if single else shown[:1]:
            columns.append((m.title if single else f"{name}\n{m.title}", partial(_cell, dataset=name, measure=m)))
    columns += [(f"Mean\n{m.title}", partial(_mean, measure=m)) for m in shown[1:] if not single]
    rows = tuple(
        (Cell(row.label), *(make(row) for _, make in columns))
        for row in sorted(board.rows, key=lambda r: _place(r, main))
    )
    title = f"{view} · {board.track} track · {_count(len(board.rows), 'method')} · " + (
        f"{names[0]} ({board.datasets[0].metric})" if single else _count(len(names), "dataset")
    )
    headers = ("Method", *(header for header, _ in columns))
    return Table(title, answer(board), headers, rows, _legend(board, shown, found), _footnotes(board))


def _order_columns(board: Board, pillar: str) -> list[tuple[str, Callable[[Row], Cell]]]:
    """The order of a pillar: place, advantage with its interval, datasets, wins, ties and losses."""
    columns: list[tuple[str, Callable[[Row], Cell]]] = []
    if board.ranked:
        columns.append(("#", lambda row: Cell(str(s.place) if (s := row.standings.get(pillar)) else HOLE)))
    columns.append((f"{pillar.capitalize()}\nadvantage", partial(_advantage, pillar=pillar, control=board.control)))
    if any(s.on < s.of for r in board.rows if (s := r.standings.get(pillar))):
        columns.append(("On", lambda row: Cell(f"{s.on} of {s.of}" if (s := row.standings.get(pillar)) else HOLE)))
    if len(board.datasets) > 1:
        columns.append(("W/T/L", partial(_tally, pillar=pillar, control=board.control)))
    return columns


def _entries(board: Board) -> list[Entry]:
    return [e for row in board.rows for e in row.entries.values()]


def _place(row: Row, pillar: str) -> tuple[Any, ...]:
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
    return Cell(write(found.mean, measure) + half, measure.name in entry.best)


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


def _legend(board: Board, shown: Sequence[Measure], found: Sequence[str]) -> tuple[str, ...]:
    lines: list[str] = []
    if found:
        lines.append(
            f"Advantage: mean over a method's datasets of its chance-normalised difference from {board.control}, ± half its "
            "95 % interval over seeds and rows: about these datasets. W/T/L: datasets won, tied, lost against "
            f"{board.control}, 5 % each. *: may be the best of all that have the same datasets (95 % for all at once)."
        )
        gaps = [f"{board.resolves[p]:.3f} ({p})" for p in found if board.resolves[p] is not None]
        if gaps:
            lines.append(f"The smallest advantage found with 80 % power is {', '.join(gaps)}.")
    lines.append(
        "±: half the 95 % interval, over seeds and rows where the number is a mean over rows, else over seeds."
    )
    lines += [board.across[p].sentence for p in found[:1]]
    lines += [f"{m.title}: {m.help}." for m in shown]
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


# --- Renderings -------------------------------------------------------------------------------------------------------


def terminal(shown: Table, width: int | None = None) -> RenderableType:
    """For a rich console; with a width, whole columns are left out from the right instead of all being cut."""
    kept = len(shown.headers) if width is None else _fitting(shown, width)
    out = RichTable(title=shown.title, title_justify="left", header_style="bold", show_edge=False, pad_edge=False)
    for i, header in enumerate(shown.headers[:kept]):
        out.add_column(Text(header), justify="left" if i < shown.left else "right", no_wrap=True)
    for row in shown.rows:
        out.add_row(*(_rich(cell) for cell in row[:kept]))
    left_out = [h.replace("\n", " ") for h in shown.headers[kept:]]
    more = [f"Not shown in {width} columns: {', '.join(left_out)}."] if left_out else []
    lines = [Text(line, style="dim") for line in (*more, *shown.legend)]
    lines += [Text(f"! {n}", style="yellow") for n in shown.notes]
    return Group(*(Text(f"• {line}") for line in shown.answer), Text(""), out, Text(""), *lines, Text(""))


def _fitting(shown: Table, width: int) -> int:
    """How many columns fit side by side, with three characters between two."""
    used = 0
    for i, header in enumerate(shown.headers):
        texts = [len(row[i].text) + row[i].best for row in shown.rows]
        used += max([*map(len, header.split("\n")), *texts]) + 3 * (i > 0)
        if used > width and i > 1:
            return i
    return len(shown.headers)


def _rich(cell: Cell) -> Text:
    if cell.text == "failed":
        return Text(cell.text, style="red")
    return Text(cell.text + ("*" if cell.best else ""), style="bold green" if cell.best else "")


def markdown(shown: Table) -> str:
    """A GitHub table, with its legend and notes below."""
    heads = [_markdown_text(h.replace("\n", " ")) for h in shown.headers]
    lines = [
        f"### {_markdown_text(shown.title)}",
        "",
        *(f"- {_markdown_text(a)}" for a in shown.answer),
        "",
        _pipe(heads),
    ]
    lines.append(_pipe([":--" if i < shown.left else "--:" for i in range(len(heads))]))
    for row in shown.rows:
        lines.append(_pipe([f"**{_markdown_text(c.text)}**" if c.best else _markdown_text(c.text) for c in row]))
    lines += ["", "Bold: may be the best of its column.", ""]
    lines += [f"- {_markdown_text(line)}" for line in (*shown.legend, *shown.notes)]
    return "\n".join(lines) + "\n"


def _pipe(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown_text(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
    return re.sub(r"([\\`*_|\[\]])", r"\\\1", text)


_TEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "–": "--",
    "·": r"$\cdot$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def _tex_text(text: str) -> str:
    return "".join(_TEX.get(c, c) for c in text.replace("\n", " "))


def latex(shown: Table) -> str:
    """A booktabs table for a paper."""
    align = "".join("l" if i < shown.left else "r" for i in range(len(shown.headers)))
    body = [
        " & ".join(rf"\textbf{{{_tex_text(c.text)}}}" if c.best else _tex_text(c.text) for c in row) + r" \\"
        for row in shown.rows
    ]
    caption = _tex_text(". ".join([shown.title, "Bold: may be the best of its column", *shown.legend]))
    lines = [
        "% \\usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{{align}}}",
        r"\toprule",
        " & ".join(_tex_text(h) for h in shown.headers) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{caption}}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def comma_separated(boards: Sequence[Board], view: str | None = None) -> str:
    """One line per method and dataset, every number at full precision; a hole is an empty field."""
    names = [m for m in MEASURES if view is None or m in SLICES[view]]
    names = [m for m in names if any(m in e.measures for b in boards for e in _entries(b))]
    head = ["track", "method", "family", "dataset", "dataset_version", "metric", "status", "reason", "seeds"]
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
                line += [entry.status, entry.reason, len(entry.records)]
                for pillar in PILLARS:
                    s = row.standings.get(pillar)
                    line += [""] * len(_STANDING) if s is None else [_blank(getattr(s, x)) for x in _STANDING]
                for name in names:
                    found = entry.measures.get(name)
                    line += ["", "", ""] if found is None else [found.mean, _blank(found.low), _blank(found.high)]
                writer.writerow(line)
    return buffer.getvalue()


def _blank(value: Any) -> Any:
    return "" if value is None else value


def to_json(boards: Sequence[Board]) -> str:
    """Everything on the boards but the raw records, which are files of their own."""
    return json.dumps([plain(b) for b in boards], indent=1, sort_keys=True, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """A frozen value as JSON types; records become the cell ids that name their files."""
    if isinstance(value, Record):
        return value.cell.id
    if isinstance(value, Estimate | Pair):
        return {k: plain(v) for k, v in value._asdict().items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | frozenset | set):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
