"""Intervals as people read them."""

from collections.abc import Callable

import pytest

from leaderboard import tables
from leaderboard.board import build as build_board
from leaderboard.merge import gather
from leaderboard.page.payload import payload
from leaderboard.scores import within
from leaderboard.store import Store
from tests.leaderboard.conftest import Planted


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1", "recall_at_5"])
def test_no_share_of_right_answers_is_above_one(metric: str) -> None:
    assert within(metric, -0.1, 1.2) == (0.0, 1.0)
    assert within(metric, 0.2, 0.9) == (0.2, 0.9)


@pytest.mark.parametrize("metric", ["mae", "r2", "correlation", "metric_of_a_plugin"])
def test_what_has_no_bounds_keeps_its_ends(metric: str) -> None:
    assert within(metric, -0.1, 1.2) == (-0.1, 1.2)


def test_an_interval_that_leaves_the_range_is_cut(build: Callable[..., Store]) -> None:
    methods = {"concat": Planted(0.8), "near": Planted(0.96), "far": Planted(0.9)}
    board = build_board(gather([build(methods, datasets=("digits",), seeds=2, rows=60).folder]), "plain")
    shown = {row[0].text: row for row in tables.table(board).rows}
    texts = {name: next(c.text for c in row[1:] if c.text.startswith("0.")) for name, row in shown.items()}
    assert texts["near"].startswith("0.9") and ", 1.000]" in texts["near"], texts
    assert "±" in texts["far"] and "[" not in texts["far"]
    assert payload([board], {})["boards"][0]["datasets"][0]["bounded"] is True
