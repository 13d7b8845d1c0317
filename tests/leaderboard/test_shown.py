"""Whatever a name, an error or a version says, it is shown: no terminal, spreadsheet or page obeys it."""

import csv
import io
import re
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from leaderboard import csv_and_json, renderings
from leaderboard.board import Board, Row, build
from leaderboard.merge import gather
from leaderboard.page import page
from leaderboard.plots import save_plots
from leaderboard.shown import field, shown
from leaderboard.tables import table
from tests.leaderboard.conftest import Planted, write_results

HOSTILE = "=HYPERLINK(1)\x1b[2J\x9b31m[/b][red]\u202eevil\x07$x_1$%&#"
FAMILY = "@SUM(A1)\x1b]0;title\x07"
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module", name="board")
def board_fixture(tmp_path_factory: pytest.TempPathFactory) -> Board:
    """Records refuse such names, so it is put on a finished board: no output relies on where names come from."""
    methods = {"concat": Planted(0.8, family="baseline"), "evil": Planted(0.9, weighs=True)}
    names = ("[/x]", "csv_views[patients]")
    board = build(gather([write_results(tmp_path_factory.mktemp("hostile"), methods, names, 2, 60).folder]), "plain")
    return replace(board, rows=tuple(map(_renamed, board.rows)), notes=(f"an error said {HOSTILE}",))


def _renamed(row: Row) -> Row:
    if row.label != "evil":
        return row
    standings = {pillar: replace(standing, method=HOSTILE) for pillar, standing in row.standings.items()}
    return replace(row, label=HOSTILE, family=FAMILY, standings=standings)


@given(st.text())
def test_nothing_is_left_that_is_obeyed(text: str) -> None:
    safe = shown(text)
    assert not _OBEYED.search(safe) and "\n" not in safe
    safe.encode()
    assert not field(text).startswith(("=", "+", "-", "@"))
    assert shown(safe) == safe


def test_plain_names_stay_as_they_are() -> None:
    for name in ("low_rank[rank=8]", "csv_views[patients]", "größe ±", "日本"):
        assert shown(name) == name == field(name)


def test_every_output_shows_and_none_obeys(board: Board, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=300, color_system=None)
    console.print(renderings.terminal(table(board), 300))
    terminal = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    texts = {
        "terminal": terminal,
        "markdown": renderings.markdown(table(board)),
        "latex": renderings.latex(table(board)),
        "csv": csv_and_json.comma_separated([board]),
        "json": csv_and_json.to_json([board]),
        "html": re.sub(r"<script>.*?</script>", "", page([board]), flags=re.S),
    }
    for name, text in texts.items():
        assert not _OBEYED.search(text.replace("\n", "")), name
        assert "evil" in text, name
    assert "[/b][red]" in terminal, "markup is text"
    assert "csv_views[patients]" in terminal
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written = save_plots([board], tmp_path)
    drawn = [p.read_text() for p in written if p.suffix == ".svg"]
    assert drawn and not any(_OBEYED.search(text.replace("\n", "")) for text in drawn)


def test_no_spreadsheet_finds_a_formula(board: Board) -> None:
    lines = list(csv.reader(io.StringIO(csv_and_json.comma_separated([board]))))
    for cell in (cell for line in lines for cell in line if cell.startswith(("=", "+", "@", "-"))):
        float(cell)  # a number is a number
    assert any(cell.startswith("'=HYPERLINK") for line in lines for cell in line)
    assert any(cell.startswith("'@SUM") for line in lines for cell in line)
