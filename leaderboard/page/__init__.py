"""The leaderboard as one self-contained HTML file: libraries, glue and data inside, no network.

Charts are Observable Plot on D3, bundled in `vendor/`; `glue/` is ours. The content security policy names the hash of
each script, so that nothing else can run, whatever a method is called. The table's data is JSON; what charts and
drawers need comes after it, compressed, and is unpacked when the table is there.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files

from leaderboard.board import Board
from leaderboard.page.payload import details, payload
from leaderboard.shown import shown_json
from leaderboard.tables import Cell, table

_SCRIPTS = (
    "vendor/d3.min.js",
    "vendor/plot.min.js",
    "glue/state.js",
    "glue/columns.js",
    "glue/table.js",
    "glue/drawer.js",
    "glue/charts.js",
    "glue/main.js",
)
_FEW = 100  # rows of the table without scripts, as many as the other draws at once


def page(boards: Sequence[Board], about: Mapping[str, str] | None = None) -> str:
    """All boards in one file that needs no network.

    Args:
        boards: One per track.
        about: Registered name of a method -> what it does, in a line.
    """
    scripts = [_asset(name) for name in _SCRIPTS]
    hashes = " ".join(f"'sha256-{_digest(s)}'" for s in scripts)
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {hashes}"
    replacements = {
        "{{policy}}": policy,
        "{{style}}": _asset("glue/page.css"),
        "{{plain}}": "".join(map(_plain, boards)),
        "{{data}}": _embedded(shown_json(payload(boards, about or {}))),
        "{{details}}": _packed(shown_json(details(boards))),
        "{{scripts}}": "\n".join(f"<script>{s}</script>" for s in scripts),
    }
    text = _asset("glue/page.html")
    # One pass over the template alone: a name that looks like a placeholder stays a name.
    pieces: list[str] = []
    while text:
        at, key = min(((i, k) for k in replacements if (i := text.find(k)) >= 0), default=(len(text), ""))
        pieces += [text[:at], replacements.get(key, "")]
        text = text[at + len(key) :]
    return "".join(pieces)


def _plain(board: Board) -> str:
    """For a browser without scripts: the answer, and the table as it opens."""
    found = table(board)
    said = "".join(f"<li>{escape(line)}</li>" for line in found.answer)
    heads = "".join(f'<th scope="col">{escape(header)}</th>' for header in found.headers)
    rows = "".join(_plain_row(row) for row in found.rows[:_FEW])
    more = f"<p>{len(found.rows) - _FEW:,} more are in leaderboard.md.</p>" if len(found.rows) > _FEW else ""
    what = "".join(f"<dt>{escape(name)}</dt><dd>{escape(says)}</dd>" for name, says in found.glossary.items())
    notes = "".join(f"<li>{escape(line)}</li>" for line in (*found.legend, *found.notes))
    return (
        f'<h2>{escape(found.title)}</h2><ul>{said}</ul><div class="scroll"><table class="plain-board"><thead>'
        f"<tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{more}<dl>{what}</dl><ul>{notes}</ul>"
    )


def _plain_row(row: Sequence[Cell]) -> str:
    first, *others = row
    cells = "".join(f"<td>{f'<b>{escape(c.text)}</b>' if c.best else escape(c.text)}</td>" for c in others)
    return f'<tr><th scope="row">{escape(first.text)}</th>{cells}</tr>'


def _asset(name: str) -> str:
    return files("leaderboard.page").joinpath(name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode())).decode()


def _embedded(text: str) -> str:
    """JSON that cannot end the element it stands in."""
    for raw in "<>&\u2028\u2029":
        text = text.replace(raw, f"\\u{ord(raw):04x}")
    return text
