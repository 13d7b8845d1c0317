"""Paired comparisons of two planted methods."""

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from benchmark.cli import main
from benchmark.commands import compare as command
from leaderboard.comparison import compare
from leaderboard.merge import BoardError, gather
from leaderboard.record import Failure
from leaderboard.scores import score
from leaderboard.store import Store
from tests.leaderboard.conftest import STANDARD, Planted
from tests.records import changed

Build = Callable[..., Store]
PAIR = {k: STANDARD[k] for k in ("gated", "gated_twin", "tensor")}


@pytest.fixture(name="store")
def store_fixture(build: Build) -> Store:
    return build(PAIR, datasets=("digits", "shapes"), seeds=2)


def test_a_planted_difference_is_a_win_and_a_twin_a_tie(store: Store) -> None:
    evidence = gather([store.folder])
    found = compare(evidence, "gated", "tensor")
    clean = next(d for d in found.differences if d.kind == "clean" and d.dataset == "digits")
    assert clean.verdict == "win"
    assert clean.low < clean.difference < clean.high
    assert found.tally("clean") == {"win": 2, "tie": 0, "loss": 0}
    assert found.tally("robust")["win"] == 2
    back = compare(evidence, "tensor", "gated")
    assert back.tally("clean")["loss"] == 2
    twin = compare(evidence, "gated", "gated_twin")
    assert twin.tally("clean") == {"win": 0, "tie": 2, "loss": 0}


def test_scores_are_those_of_the_records(store: Store) -> None:
    found = compare(gather([store.folder]), "gated", "tensor", every=True)
    records = [r for r in store.scan().records if r.cell.label == "tensor" and r.cell.dataset == "digits"]
    for d in found.differences:
        if d.dataset == "digits" and d.kind == "condition":
            want = np.mean([next(c.score for c in r.conditions if c.id == d.what) for r in records])
            assert d.b == pytest.approx(want)
            assert d.difference == pytest.approx(d.a - d.b)
    assert sum(d.kind == "condition" for d in found.differences) == 2 * (len(records[0].conditions) - 1)


def test_rows_that_differ_most_do_differ(store: Store) -> None:
    found = compare(gather([store.folder]), "gated", "tensor", top=4)
    digits = [r for r in found.rows if r.dataset == "digits"]
    assert len(digits) == 4
    assert digits[0].a - digits[0].b > 0.5
    assert digits[0].a - digits[0].b >= digits[1].a - digits[1].b
    # By hand: the share of seeds and conditions under which the row was right.
    for label, claimed in (("gated", digits[0].a), ("tensor", digits[0].b)):
        right = []
        for r in store.scan().records:
            if r.cell.label == label and r.cell.dataset == "digits":
                p = store.predictions(r.cell.id)
                right += [p[f"pred:{c.id}"][digits[0].row] == p["target"][digits[0].row] for c in r.conditions]
        assert claimed == pytest.approx(np.mean(right))


def test_the_same_method_twice_never_differs(store: Store) -> None:
    found = compare(gather([store.folder]), "gated", "gated")
    assert all(d.low == d.high == d.difference == 0 for d in found.differences)
    assert not found.rows


def test_lower_is_better_turns_the_sign(store: Store) -> None:
    for record in store.scan().records:
        predictions = store.predictions(record.cell.id)
        store.path(record.cell.id).unlink()
        errors = [score("mse", predictions["target"], predictions[f"pred:{c.id}"]) for c in record.conditions]
        conditions = tuple(replace(c, score=float(e)) for c, e in zip(record.conditions, errors, strict=True))
        store.write(changed(record, metric="mse", higher_is_better=False, conditions=conditions), predictions)
    found = compare(gather([store.folder]), "gated", "tensor")
    robust = next(d for d in found.differences if d.kind == "robust")
    assert robust.difference == pytest.approx(robust.b - robust.a)
    assert robust.verdict == "win", "fewer errors, squared or not"


def test_lost_predictions_are_said(store: Store) -> None:
    record = next(r for r in store.scan().records if r.cell.label == "gated" and r.cell.dataset == "digits")
    store.path(record.cell.id, ".npz").unlink()
    with pytest.raises(BoardError, match="No such file"):
        gather([store.folder])
    found = compare(gather([store.folder], skip_invalid=True), "gated", "tensor")
    assert found.differences[0].difference > 0


def test_a_failed_seed_leaves_its_dataset_out(store: Store) -> None:
    record = next(r for r in store.scan().records if r.cell.label == "gated" and r.cell.dataset == "digits")
    store.write(changed(record, status="failed", conditions=(), error=Failure("RuntimeError", "boom")))
    found = compare(gather([store.folder]), "gated", "tensor")
    assert {d.dataset for d in found.differences} == {"shapes"}
    assert any("digits is left out" in n for n in found.notes)


def test_an_unknown_method_gets_a_suggestion(store: Store) -> None:
    with pytest.raises(BoardError, match="Did you mean 'tensor'"):
        compare(gather([store.folder]), "gated", "tensr")


def test_tracks_and_lone_datasets_are_noted(store: Store, build: Build) -> None:
    other = build({"augmented": Planted(track="augmented")}, name="other", datasets=("digits", "pulsars"), seeds=2)
    found = compare(gather([store.folder, other.folder]), "gated", "augmented")
    assert any("different tracks" in n for n in found.notes)
    assert any("only gated has results on shapes" in n for n in found.notes)


def _run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


def test_the_command_prints_and_draws(store: Store, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = ("gated", "tensor", "--results", str(store.folder))
    assert _run(*given, "--dataset", "digits", "--output", str(tmp_path / "out")) == 0
    said = capsys.readouterr().out
    assert "gaussian on image" in said
    assert "1 won, 0 tied, 0 lost" in said
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"compare-gated-tensor.png", "compare-gated-tensor.svg"}
    assert _run(*given, "--json") == 0
    assert json.loads(capsys.readouterr().out)["differences"][0]["verdict"] == "win"
    assert main(["compare", "gated", "nothing", "--results", str(store.folder)]) == 2
    assert "no method named 'nothing'" in capsys.readouterr().err


def test_every_number_is_whole_in_80_columns(
    store: Store, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    arguments = ["compare", "gated_twin", "tensor", "--results", str(store.folder), "--output", str(tmp_path)]
    assert main(arguments) == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).split("Rows that differ")[0].splitlines()
    assert max(map(len, lines)) <= 80
    intervals = [line for line in lines if re.search(r"\[[+-]", line)]
    assert len(intervals) > 10
    assert all(re.search(r"\[[+-]\d\.\d{3}, [+-]\d\.\d{3}\]", line) for line in intervals)


def test_verdicts_are_adjusted_for_the_number_of_lines(build: Build) -> None:
    store = build({f"m{i}": Planted(0.8, 0.05) for i in range(6)}, datasets=("digits", "shapes"), seeds=3, rows=300)
    evidence = gather([store.folder])
    found = [compare(evidence, "m0", f"m{i}", every=True) for i in range(1, 6)]
    alone = sum(d.low > 0 or d.high < 0 for one in found for d in one.differences)
    adjusted = sum(d.verdict != "tie" for one in found for d in one.differences)
    assert adjusted <= alone, "an adjusted verdict is never bolder than the interval of its line"
    assert all(d.p <= 0.05 or d.verdict == "tie" for one in found for d in one.differences)
    assert sum(any(d.verdict != "tie" for d in one.differences) for one in found) <= 1, "equals"


def test_one_seed_is_not_enough_to_tell(build: Build, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = build(PAIR, datasets=("digits",), seeds=1, rows=100)
    assert _run("gated", "tensor", "--results", str(store.folder), "--output", str(tmp_path)) == 0
    said = capsys.readouterr().out
    assert "unknown" in said
    assert "0 won, 1 tied, 0 lost" in said
