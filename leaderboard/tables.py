"""A Board as text: one format-neutral table, and its renderings for terminal, Markdown, CSV, LaTeX and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from leaderboard.board import PILLARS, Board, Entry, Row
from leaderboard.measures import MEASURES, SLICES, Measure
from leaderboard.record import Record
from leaderboard.stats import Estimate, Pair, Standing

HOLE = "–"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Cell:
    """A text and whether it is tied with the best of its column."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class Table:
    """What every text rendering shows; `left` counts the columns that are aligned left."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    legend: tuple[str, ...]
    notes: tuple[str, ...]
    left: int = 1


def table(board: Board, view: str = "overview") -> Table:
    """Choose the columns of a slice.

    The first measure of the slice is shown on every dataset, the others as means over datasets; a board of one dataset
    shows all of them on it.

    Raises:
        KeyError: If there is no such slice.
    """
    if view not in SLICES:
        raise KeyError(f"no slice named {view!r}. Known: {', '.join(SLICES)}")
    shown = [MEASURES[name] for name in SLICES[view] if any(name in e.measures for e in _entries(board))]
    pillars = [p for p in PILLARS if view in ("overview", p) and any(p in r.standings for r in board.rows)]
    headers = ["Method", *(f"{p.capitalize()} rank" for p in pillars)]
    names = [d.name for d in board.datasets]
    single = len(names) == 1
    first = shown if single else shown[:1]
    rest = [] if single else shown[1:]
    for name in names:
        headers += [m.title if single else f"{name}\n{m.title}" for m in first]
    headers += [f"Mean\n{m.title}" for m in rest]
    main = "robust" if view == "robust" else "clean"
    rows = tuple(
        (
            Cell(row.label),
            *(_rank(row, p, len(names)) for p in pillars),
            *(_cell(row.entries[n], m) for n in names for m in first),
            *(_mean(row, m) for m in rest),
        )
        for row in sorted(board.rows, key=lambda r: _place(r, main))
    )
    track = f"{board.track} track"
    title = f"{view} · {track} · {_count(len(board.rows), 'method')} · " + (
        f"{names[0]} ({board.datasets[0].metric})" if single else _count(len(names), "dataset")
    )
    return Table(title, tuple(headers), rows, _legend(board, view, shown, pillars), _footnotes(board))


def _entries(board: Board) -> list[Entry]:
    return [e for row in board.rows for e in row.entries.values()]


def _place(row: Row, pillar: str) -> tuple[Any, ...]:
    standing = row.standings.get(pillar)
    return (0, standing.mean_rank) if standing else (1, -row.complete)


def group_letter(group: int) -> str:
    """A, B, ... for tie groups; numbers when the alphabet ends."""
    return _LETTERS[group - 1] if group <= len(_LETTERS) else f"({group})"


def place(standing: Standing) -> str:
    """A place is never bare: its bootstrap interval and its tie group stand beside it."""
    return f"{_short(standing.place)} [{_short(standing.low)}-{_short(standing.high)}] {group_letter(standing.group)}"


def _short(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"


def _rank(row: Row, pillar: str, datasets: int) -> Cell:
    standing = row.standings.get(pillar)
    if standing is None:
        return Cell(f"{row.complete} of {datasets}")
    return Cell(place(standing), standing.group == 1)


def _cell(entry: Entry, measure: Measure) -> Cell:
    if entry.status == "failed":
        return Cell("failed")
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


def _legend(board: Board, view: str, shown: Sequence[Measure], pillars: Sequence[str]) -> tuple[str, ...]:
    lines: list[str] = []
    if pillars:
        lines.append(
            "Rank: Borda over datasets [95 % bootstrap interval] tie group; a group holds all whose paired interval "
            "against its leader includes 0. *: tied with the best of the column."
        )
    for pillar in pillars:
        gap = board.resolves[pillar]
        if gap is not None:
            lines.append(
                f"{pillar.capitalize()}: the smallest mean difference this board can resolve is {gap:.3f} "
                "(chance-normalised; 95 % interval, 80 % power)."
            )
    sentences = {p: board.across[p].sentence for p in pillars}
    if len(set(sentences.values())) == 1:
        lines.append(next(iter(sentences.values())))
    else:
        lines += [f"{p.capitalize()}: {sentence}" for p, sentence in sentences.items()]
    lines += [f"{m.title}: {m.help}." for m in shown]
    return tuple(lines)


def _footnotes(board: Board) -> tuple[str, ...]:
    unranked: dict[str, list[str]] = {}
    for row in board.rows:
        absent = ", ".join(n for n, e in row.entries.items() if e.status != "ok")
        if absent:
            unranked.setdefault(absent, []).append(row.label)
    lines = [f"Unranked, no result on {absent}: {', '.join(labels)}." for absent, labels in unranked.items()]
    return (*lines, *(note if note.endswith(".") else f"{note}." for note in board.notes))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# --- Renderings -------------------------------------------------------------------------------------------------------


def terminal(shown: Table) -> RenderableType:
    """For a rich console."""
    out = RichTable(title=shown.title, title_justify="left", header_style="bold", show_edge=False, pad_edge=False)
    for i, header in enumerate(shown.headers):
        out.add_column(Text(header), justify="left" if i < shown.left else "right", no_wrap=True)
    for row in shown.rows:
        out.add_row(*(_rich(cell) for cell in row))
    lines = [Text(line, style="dim") for line in shown.legend] + [Text(f"! {n}", style="yellow") for n in shown.notes]
    return Group(out, Text(""), *lines, Text(""))


def _rich(cell: Cell) -> Text:
    if cell.text == "failed":
        return Text(cell.text, style="red")
    return Text(cell.text + ("*" if cell.best else ""), style="bold green" if cell.best else "")


def markdown(shown: Table) -> str:
    """A GitHub table, with its legend and notes below."""
    heads = [_markdown_text(h.replace("\n", " ")) for h in shown.headers]
    lines = [f"### {_markdown_text(shown.title)}", "", _pipe(heads)]
    lines.append(_pipe([":--" if i < shown.left else "--:" for i in range(len(heads))]))
    for row in shown.rows:
        lines.append(_pipe([f"**{_markdown_text(c.text)}**" if c.best else _markdown_text(c.text) for c in row]))
    lines += ["", "Bold: tied with the best of the column.", ""]
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
    caption = _tex_text(". ".join([shown.title, "Bold: tied with the best of the column", *shown.legend]))
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
    head += [f"{p}_{x}" for p in PILLARS for x in ("rank", "rank_low", "rank_high", "group")]
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
                    line += ["", "", "", ""] if s is None else [s.place, s.low, s.high, s.group]
                for name in names:
                    found = entry.measures.get(name)
                    line += ["", "", ""] if found is None else [found.mean, _blank(found.low), _blank(found.high)]
                writer.writerow(line)
    return buffer.getvalue()


def _blank(value: float | None) -> float | str:
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
