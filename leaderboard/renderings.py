"""A Table for people: terminal, Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from leaderboard.shown import shortened
from leaderboard.tables import Cell, Table

_PAPER = 104  # characters of a footnote-sized line across both columns of a paper
_TALL = 40  # rows of a footnote-sized table on a page
# Made smaller on a page that is narrower than two columns, and only there.
_NO_WIDER = r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%"


def terminal(table: Table, width: int | None = None) -> RenderableType:
    """For a rich console; with a width, whole columns are left out from the right instead of all being cut."""
    longest = None if width is None else max(width // 2, 20)
    kept = len(table.headers) if width is None else fitting(table, width, longest)
    title = Text(table.title, style="italic")
    out = RichTable(header_style="bold", show_edge=False, pad_edge=False)
    for i, header in enumerate(table.headers[:kept]):
        out.add_column(Text(header), justify="left" if i < table.left else "right", no_wrap=True)
    for i, row in enumerate(table.rows):
        first, *others = row[:kept]
        out.add_row(
            Text(first.text if longest is None else shortened(first.text, longest)),
            *(_rich(cell) for cell in others),
            end_section=i == table.references - 1,
        )
    left_out = [h.replace("\n", " ") for h in table.headers[kept:]]
    more = [f"Not shown in {width} columns: {', '.join(left_out)}."] if left_out else []
    seen = " ".join(table.headers[:kept])
    more += [f"{name}: {says}." for name, says in table.glossary.items() if re.search(rf"\b{re.escape(name)}\b", seen)]
    lines = [Text(line, style="dim") for line in (*table.legend, *more)]
    lines += [Text(f"! {n}", style="yellow") for n in table.notes]
    return Group(*(Text(f"• {line}") for line in table.answer), Text(""), title, out, Text(""), *lines, Text(""))


def fitting(table: Table, width: int, longest: int | None = None, between: int = 3) -> int:
    """How many columns fit side by side, with `between` characters between two."""
    used = 0
    for i, header in enumerate(table.headers):
        texts = [cell_len(row[i].text) + row[i].best for row in table.rows]
        if i == 0 and longest is not None:
            texts = [min(size, longest) for size in texts]
        used += max([*map(cell_len, header.split("\n")), *texts]) + between * (i > 0)
        if used > width and i > 1:
            return i
    return len(table.headers)


def _rich(cell: Cell) -> Text:
    if cell.text == "failed":
        return Text(cell.text, style="red")
    return Text(cell.text + ("*" if cell.best else ""), style="bold green" if cell.best else "")


def markdown(table: Table) -> str:
    """A GitHub table, with its legend and notes below."""
    heads = [_markdown_text(h.replace("\n", " ")) for h in table.headers]
    lines = [
        f"### {_markdown_text(table.title)}",
        "",
        *(f"- {_markdown_text(a)}" for a in table.answer),
        "",
        _pipe(heads),
    ]
    lines.append(_pipe([":--" if i < table.left else "--:" for i in range(len(heads))]))
    for row in table.rows:
        lines.append(_pipe([f"**{_markdown_text(c.text)}**" if c.best else _markdown_text(c.text) for c in row]))
    lines += ["", "Bold: may be the best of its column.", ""]
    lines += [f"- {_markdown_text(line)}" for line in (*table.legend, *table.notes)]
    lines += ["", "<details><summary>What the columns are</summary>", ""]
    lines += [f"- {_markdown_text(name)}: {_markdown_text(says)}." for name, says in table.glossary.items()]
    return "\n".join([*lines, "", "</details>"]) + "\n"


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
    "↓": r"$\downarrow$",
    "†": r"$^\dagger$",
    "…": r"\ldots{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",  # after a line break a bracket would be its optional argument
    "]": "{]}",
}


def _tex_text(text: str) -> str:
    return "".join(_TEX.get(c, c) for c in text.replace("\n", " "))


def latex(table: Table) -> str:
    """A booktabs table across both columns of a paper, with the columns that fit and a caption of three lines.

    On a page of one column it is as wide as the text.
    """
    kept = fitting(table, _PAPER, between=2)
    align = "".join("l" if i < table.left else "r" for i in range(kept))
    heads = [h.split("\n") for h in table.headers[:kept]]
    depth = max(map(len, heads))
    # Headers stand on the rule, as in every table.
    head = [" & ".join(_tex_text(h[i - depth + len(h)]) if i >= depth - len(h) else "" for h in heads) + r" \\"
            for i in range(depth)]  # fmt: skip
    body = [
        " & ".join(rf"\textbf{{{_tex_text(c.text)}}}" if c.best else _tex_text(c.text) for c in row[:kept]) + r" \\"
        for row in table.rows
    ]
    if 0 < table.references < len(body):
        body.insert(table.references, r"\midrule")
    left_out = [h.replace("\n", " ") for h in table.headers[kept:]]
    lines = [
        r"% needs \usepackage{booktabs,graphicx}",
        *([f"% left out to fit the page: {', '.join(left_out)}"] if left_out else []),
        *(f"% {line}" for line in table.legend),
        r"\begin{table*}",
        rf"\centering\{'scriptsize' if len(body) > _TALL else 'footnotesize'}\setlength{{\tabcolsep}}{{4pt}}",
        rf"\caption{{{_tex_text(table.title)}. Bold: may be the best of its column; $\pm$: half the 95\,\% interval.}}",
        rf"\label{{tab:{table.name}}}",
        _NO_WIDER,
        rf"\begin{{tabular}}{{{align}}}",
        r"\toprule",
        *head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"
