"""`polymodal study calibration`: what it counts, where the answer is known; and, slow, the bounds of the real board."""

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from benchmark.studies import _null_cells
from benchmark.studies import calibration as study


def parse(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    study.add_arguments(parser)
    return parser.parse_args(argv)


def null(seeds: int = 24, rows: int = 40, seed_sd: float = 0.02) -> np.ndarray:
    """Rows `[seeds, rows]` of one method."""
    rng = np.random.default_rng(0)
    return 0.8 + seed_sd * rng.standard_normal((seeds, 1)) + 0.2 * rng.standard_normal((seeds, rows))


def test_rate() -> None:
    rate = study.Rate(5, 100) + study.Rate(1, 20)
    assert rate == study.Rate(6, 120) and rate.share == 0.05
    low, high = rate.interval
    # Wilson: where the normal test of the share just fails to reject.
    for end in (low, high):
        assert abs(0.05 - end) / np.sqrt(end * (1 - end) / 120) == pytest.approx(scipy.stats.norm.ppf(0.975))
    assert str(study.Rate(0, 10)).startswith("0.0% [0.0%")


def test_no_seed_plays_two_methods() -> None:
    order = study.deal(24, 7, 3, np.random.default_rng(0))
    assert order.shape == (7, 3) and len(set(order.ravel())) == 21
    with pytest.raises(ValueError, match="at least 20 seeds"):
        study.calibrate("clean", {"d": null(19)}, 10, boards=1)


def test_equals_are_found_equal_and_a_planted_difference_is_not() -> None:
    equal = study.calibrate("clean", {"a": null(), "b": null(rows=30)}, 3, boards=60)
    assert [o.dataset for o in equal] == ["a", "b", study.EVERY, study.POOLED]
    assert all(o.methods == 8 and o.differ.trials == 60 * 4 for o in equal[:3])
    assert equal[3].differ == equal[0].differ + equal[1].differ
    assert equal[3].expelled == equal[0].expelled + equal[1].expelled
    assert equal[3].holds and equal[3].bounded
    # Half of the seeds are another method in truth: a board that never found anything would show here.
    mixed = null()
    mixed[::2] += 0.3
    spread = study.board(mixed, np.arange(24).reshape(12, 2).T)
    assert spread.difference("m00", "m01").verdict() == "win"


def test_bounds_are_broken_by_more_than_chance() -> None:
    def outcome(differ: study.Rate, expelled: study.Rate, seeds: int = 5) -> study.Outcome:
        return study.Outcome("robust", "d", seeds, 12, differ, expelled)

    fine = study.Rate(50, 1000)
    assert outcome(fine, fine).holds
    assert not outcome(study.Rate(150, 1000), fine).holds
    assert not outcome(study.Rate(5, 1000), fine).holds
    assert not outcome(fine, study.Rate(150, 1000)).holds
    assert not outcome(fine, fine, seeds=2).bounded


def test_holm_over_lines() -> None:
    values = {"clean": {"a": null(), "b": null(rows=30)}, "robust": {"a": null(seed_sd=0.1)}}
    assert study.any_line(values, 3, trials=100).share <= 0.12


def test_runs_reads_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Through the whole pipeline, small: cells are run once, and the second time read."""
    small = {
        **_null_cells._CELLS,
        "datasets": [{"name": "interactions_xor", "rows": 400}],
        "recipe": {"width": 8, "epochs": 1, "batch_size": 100},
        "recipes": {},
    }
    monkeypatch.setattr(_null_cells, "_CELLS", small)
    options = ["--results", str(tmp_path / "cells"), "--out", str(tmp_path / "out"), "--boards", "4"]
    assert study.run(parse(*options, "--seeds", "6", "--workers", "0")) in (0, 1)
    assert "6 cells, 0 of them done already" in capsys.readouterr().out
    study.run(parse(*options, "--seeds", "6", "--workers", "0"))
    assert "6 cells, 6 of them done already" in capsys.readouterr().out
    numbers = json.loads((tmp_path / "out" / "calibration.json").read_text())
    assert {o["pillar"] for o in numbers["outcomes"]} == {"clean", "robust", "missing"}
    assert {o["seeds"] for o in numbers["outcomes"]} == {2, 3}
    assert (tmp_path / "out" / "calibration.png").stat().st_size > 10_000
    assert "| clean | interactions_xor | 2 | 3 |" in (tmp_path / "out" / "calibration.md").read_text()
    assert study.run(parse("--results", str(tmp_path / "nowhere"), "--no-run")) == 2


def test_values_are_the_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is dealt out has, for each seed, the mean that the record says."""
    monkeypatch.setattr(
        _null_cells,
        "_CELLS",
        {"methods": ["concat"], "baselines": False, "datasets": [{"name": "interactions_xor", "rows": 400}],
         "recipe": {"width": 8, "epochs": 1, "batch_size": 100}},
    )  # fmt: skip
    _null_cells.make(tmp_path, 2, 0, lambda text: None)
    from leaderboard import robustness
    from leaderboard.store import Store

    values = _null_cells.read(tmp_path)
    for i, record in enumerate(Store(tmp_path).scan().records):
        assert values["clean"]["interactions_xor"][i].mean() == pytest.approx(record.clean)
        single = np.mean([robustness.area(c) for c in robustness.curves(record).values()])
        (joint,) = (robustness.area(c) for c in robustness.curves(record, "joint").values())
        assert values["robust"]["interactions_xor"][i].mean() == pytest.approx(
            (single + joint) / 2 - record.clean, abs=1e-7
        )


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_board_is_calibrated(tmp_path: Path) -> None:
    """60 seeds of concat: no bound is broken by more than chance on a dataset, and none at all once pooled."""
    code = study.run(parse("--results", str(tmp_path / "cells"), "--out", str(tmp_path / "out"), "--boards", "100"))
    assert code == 0
    outcomes = json.loads((tmp_path / "out" / "calibration.json").read_text())["outcomes"]
    pooled = [o for o in outcomes if o["dataset"] == study.POOLED and o["pillar"] != "missing" and o["seeds"] > 2]
    assert len(pooled) == 6
    for o in pooled:
        assert 0.03 <= o["differ"]["hits"] / o["differ"]["trials"] <= 0.08
        assert o["expelled"]["hits"] / o["expelled"]["trials"] <= 0.08
