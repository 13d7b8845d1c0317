"""Charts for papers: they exist, they hold every method, and the Pareto front is one."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text

from leaderboard.board import build_all
from leaderboard.merge import gather
from leaderboard.plots import _leaders, pareto, save_plots, scatter
from leaderboard.shown import shortened
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


@pytest.mark.parametrize("leaders_only", [False, True])
def test_names_of_the_leaders_cover_neither_each_other_nor_a_dot(tmp_path: Path, leaders_only: bool) -> None:
    """Nine methods within a hundredth of each other, and each is on the front: the dearer, the better."""
    close = {
        f"method_of_a_long_name_{i}": Planted(0.80 + 0.001 * i, 0.02, spread=0.0, parameters=1000 * (i + 1))
        for i in range(9)
    }
    methods = {**close, "far_behind": Planted(0.4, 0.02, spread=0.0, parameters=10**6), "concat": Planted(0.6, 0.05)}
    store = write_results(tmp_path / "results", methods, datasets=("digits",), seeds=2, rows=1000)
    (board,) = build_all(gather([store.folder]))
    figure = scatter(board, leaders_only=leaders_only)
    assert figure is not None
    figure.draw_without_rendering()
    (axes,) = figure.axes
    named = {text.get_text() for text in axes.texts}
    # Of the others the worst are out of sight.
    assert len(named & {shortened(name, 24) for name in close}) >= (6 if leaders_only else len(close))
    assert (axes.get_xlim()[0] < 0.3) is not leaders_only, "who is far behind sets the scale of the other chart"
    boxes = [Text.get_window_extent(text) for text in axes.texts]
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    dots = [axes.transData.transform(at) for drawn in axes.collections for at in np.asarray(drawn.get_offsets())]
    for box in boxes:
        assert not any(box.contains(*dot) for dot in dots)
        assert axes.get_window_extent().containsx(box.x0) and axes.get_window_extent().containsx(box.x1)


def test_leaders_are_the_better_half_without_what_is_beyond_a_void() -> None:
    line = np.linspace(0, 1, 8)
    assert _leaders(np.stack([line, line], axis=1), [3]) == [3, 4, 5, 6, 7]
    parted = np.array([0.1, 0.1, 0.1, 0.11, 0.12, 0.8, 0.81, 0.82, 0.83])
    assert _leaders(np.stack([parted, parted], axis=1), []) == [5, 6, 7, 8]


def test_pareto_by_hand() -> None:
    points = np.array([[1, 1], [2, 0], [0, 2], [1, 0.5], [2, 0], [np.nan, 9]])
    assert pareto(points) == [0, 1, 2, 4]
