"""Charts for papers: they exist, they hold every method, and the Pareto front is one."""

from pathlib import Path

import numpy as np

from leaderboard.board import build_all
from leaderboard.merge import gather
from leaderboard.plots import pareto, save_plots
from tests.leaderboard.conftest import STANDARD, Planted, write_results


def test_every_chart_is_written_with_every_name(tmp_path: Path) -> None:
    methods = {**STANDARD, "<b>$x$&": Planted(0.85, 0.01, parameters=10)}
    store = write_results(tmp_path / "results", methods, datasets=("digits", "shapes"), seeds=2, rows=60)
    written = save_plots(build_all(gather([store.folder])), tmp_path / "plots")
    names = {p.name for p in written}
    assert {
        "plain-clean-robust.png",
        "plain-audit.svg",
        "plain-advantage-robust.svg",
        "plain-curves-shapes.png",
    } <= names
    assert all(p.stat().st_size > 2000 for p in written)
    ranks = (tmp_path / "plots" / "plain-advantage-clean.svg").read_text()
    assert "&lt;b&gt;$x$&amp;" in ranks
    assert all(m in ranks for m in ("gated_twin", "concat", "tensor"))


def test_plots_are_the_same_twice(tmp_path: Path) -> None:
    store = write_results(tmp_path / "results", STANDARD, datasets=("digits",), seeds=2, rows=60)
    boards = build_all(gather([store.folder]))
    first, second = (save_plots(boards, tmp_path / n) for n in ("a", "b"))
    for one, two in zip(first, second, strict=True):
        if one.suffix == ".svg":
            assert one.read_bytes() == two.read_bytes()


def test_pareto_by_hand() -> None:
    points = np.array([[1, 1], [2, 0], [0, 2], [1, 0.5], [2, 0], [np.nan, 9]])
    assert pareto(points) == [0, 1, 2, 4]
