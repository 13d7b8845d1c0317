"""Three places to look at: cells beat one mode, one mode beats the blind, and what they looked at can be drawn."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from leaderboard.store import Store


@pytest.mark.slow
def test_places_matter_and_can_be_drawn(
    polymodal: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """The matrix `attention` as shipped, one seed. Three seeds had 0.91-0.99, 0.62-0.66 and 0.46-0.51."""
    methods = "softmax_attention,continuous_softmax"
    run = polymodal("run", "attention", "--datasets", "shapes_count", "--methods", methods, "--seeds", 1, "--quiet")
    assert run.returncode == 0, run.stderr
    score = {record.cell.label: record.clean for record in Store(tmp_path / "results").scan().records}
    assert score["softmax_attention"] > score["continuous_softmax"] + 0.1
    assert score["continuous_softmax"] > score["softmax_attention[query=constant]"] + 0.05
    drawn = polymodal("attend", "--dataset", "shapes_count", "--rows", "0,5", "--output", "maps.png")
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "maps.png").read_bytes().startswith(b"\x89PNG")
