"""Three places to look at: several modes beat one, and what they looked at can be drawn."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from leaderboard.store import Store


@pytest.mark.slow
def test_several_modes_beat_one_where_three_places_matter(
    polymodal: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """The matrix `attention` as shipped, one seed (0.92 and 0.64 when it was written), and the picture of it."""
    methods = "continuous_softmax,mixture_attention"
    run = polymodal("run", "attention", "--datasets", "shapes_count", "--methods", methods, "--seeds", 1, "--quiet")
    assert run.returncode == 0, run.stderr
    score = {record.method: record.clean for record in Store(tmp_path / "results").scan().records}
    assert score["mixture_attention"] > score["continuous_softmax"] + 0.1
    assert score["continuous_softmax"] > 7 / 16, "who averages over all six objects"
    drawn = polymodal("attend", "--dataset", "shapes_count", "--rows", "0,5", "--output", "maps.png")
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "maps.png").read_bytes().startswith(b"\x89PNG")
    compared = polymodal("compare", *methods.split(","), "--dataset", "shapes_count")
    assert compared.returncode == 0, compared.stderr
    assert "shapes_count" in compared.stdout
