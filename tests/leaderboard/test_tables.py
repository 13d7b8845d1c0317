"""Boards from synthetic records with planted effects, and their renderings."""

import csv
import io
import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmark.cli import main
from leaderboard import csv_and_json, renderings, tables
from leaderboard.board import TRIVIAL, Board, build, build_all
from leaderboard.measures import MEASURES, SLICES, area_weights
from leaderboard.merge import BoardError, gather
from leaderboard.not_applicable import remember
from leaderboard.record import Failure, Record, Tuning
from leaderboard.store import Store
from tests.leaderboard.conftest import STANDARD, Planted, make_record
from tests.records import changed

Build = Callable[..., Store]


def _board(store: Store, track: str = "plain", **settings: object) -> Board:
    return build(gather([store.folder], **settings), track)  # pyright: ignore[reportArgumentType]


def _rewrite(store: Store, record: Record, **changes: object) -> None:
    predictions = store.predictions(record.cell.id)
    store.path(record.cell.id).unlink()
    store.write(changed(record, **changes), predictions)


def _first(store: Store, **facts: object) -> Record:
    return next(r for r in store.scan().records if all(getattr(r.cell, k) == v for k, v in facts.items()))


# --- The board --------------------------------------------------------------------------------------------------------


def test_planted_effects_are_found_and_the_tie_is_grouped(build: Build) -> None:
    board = _board(build(rows=1000))
    rows = {r.label: r for r in board.rows}
    assert "clean" not in rows.pop(TRIVIAL).standings
    assert {m for m, r in rows.items() if r.standings["clean"].best} == {"gated", "gated_twin"}
    assert rows["tensor"].standings["clean"].place == 3
    assert rows["tensor"].standings["clean"].verdict == "win"
    assert rows["additive"].standings["clean"].verdict == "loss"
    assert rows["tensor"].standings["robust"].place == 5, "accurate but fragile"
    assert rows["tensor"].standings["robust"].verdict == "loss"
    assert [r.label for r in board.rows][:3] == [TRIVIAL, "best unimodal", "concat"]
    assert [r.label for r in board.rows][5:] == ["tensor", "additive"]
    for dataset in board.datasets:
        tied = {m for m, r in rows.items() if "clean" in r.entries[dataset.name].best}
        assert tied == {"gated", "gated_twin"}


def test_measures_are_those_of_the_records(build: Build) -> None:
    store = build(datasets=("digits",), seeds=2, rows=200)
    board = _board(store)
    records = [r for r in store.scan().records if r.cell.label == "tensor"]
    entry = next(r for r in board.rows if r.label == "tensor").entries["digits"]
    assert entry.measures["clean"].mean == pytest.approx(np.mean([r.clean for r in records]))
    assert entry.measures["parameters"].mean == 400_000
    by_hand = []
    for record in records:
        scores = {c.id: (c.score - 0.25) / 0.75 for c in record.conditions}
        by_hand.append(
            np.mean(
                [
                    sum((scores[a] + scores[b]) / 2 / 5 for a, b in pairwise(points))
                    for k in record.cell.modalities
                    for c in ("gaussian", "dropout", "scale")
                    for points in [["clean", *(f"single:{k}:{c}:{s}" for s in range(1, 6))]]
                ]
            )
        )
    assert entry.measures["area"].mean == pytest.approx(np.mean(by_hand))
    image = {r.cell.seed: r.clean for r in store.scan().records if r.cell.label == "unimodal[image]"}
    gains = [r.clean - image[r.cell.seed] for r in records]
    assert entry.measures["gain"].values == pytest.approx(tuple(gains))


def test_area_weights_are_a_mean() -> None:
    weights = area_weights(frozenset({("image", "a"), ("image", "b"), ("audio", "a")}))
    assert sum(weights.values()) == pytest.approx(1)
    assert weights["single:audio:a:1"] == pytest.approx(2 * weights["single:image:b:1"])


def test_tracks_are_never_in_one_table(build: Build) -> None:
    boards = build_all(gather([build().folder]))
    assert [b.track for b in boards] == ["plain", "augmented"]
    assert {r.label for r in boards[1].rows} == {TRIVIAL, "augmented"}
    assert "augmented" not in {r.label for r in boards[0].rows}
    # The baselines of the plain track are the reference of both.
    assert boards[1].rows[1].means["gain"] is not None


def test_an_incomplete_method_has_a_place_and_says_what_it_misses(build: Build) -> None:
    store = build()
    for record in store.scan().records:
        if record.cell.label == "tensor" and record.cell.dataset == "shapes":
            store.path(record.cell.id).unlink()
    board = _board(store)
    row = next(r for r in board.rows if r.label == "tensor")
    assert row.standings["clean"].place == 3
    assert (row.standings["clean"].on, row.standings["clean"].of) == (2, 3)
    assert row.holes == ("shapes: not run",)
    assert row.means["clean"] is None
    shown = renderings.markdown(tables.table(board))
    assert "2 of 3" in shown
    assert "shapes: not run: tensor." in shown
    remember(store.folder, {("tensor", "shapes"): "needs the same shape"})
    remember(store.folder, {("gated", "shapes"): "would need more memory"})
    board = _board(store)
    entries = {r.label: r.entries["shapes"] for r in board.rows}
    assert entries["tensor"].status == "not applicable"
    assert entries["gated"].status == "ok", "a record is better evidence than an old plan"
    assert "shapes: not applicable: needs the same shape: tensor." in renderings.markdown(tables.table(board))


def test_a_method_on_some_datasets_is_told_how_to_see_all_on_these(build: Build) -> None:
    store = build()
    assert not [note for note in _board(store).notes if "--datasets" in note]
    for record in store.scan().records:
        if record.cell.label in ("tensor", "gated") and record.cell.dataset == "shapes":
            store.path(record.cell.id).unlink()
    (note,) = [note for note in _board(store).notes if "--datasets" in note]
    assert note.startswith("gated, tensor: run on 2 of 3 datasets; `--datasets digits,interactions_xor` compares")
    board = _board(store, datasets=["digits", "interactions_xor"])
    assert not [note for note in board.notes if "--datasets" in note]
    remember(store.folder, {("gated", "shapes"): "no shapes", ("tensor", "shapes"): "no shapes"})
    assert not [note for note in _board(store).notes if "--datasets" in note], "there is nothing to be run"


def test_a_failed_seed_is_a_hole_not_a_better_mean(build: Build) -> None:
    store = build()
    record = _first(store, label="concat", dataset="digits", seed=1)
    error = Failure("FloatingPointError", "NaN loss at step 3")
    store.write(changed(record, status="failed", conditions=(), error=error))
    board = _board(store)
    entry = next(r for r in board.rows if r.label == "concat").entries["digits"]
    assert entry.status == "failed"
    assert not entry.measures
    assert any("NaN loss at step 3" in n for n in board.notes)
    assert "failed" in renderings.markdown(tables.table(board))


def test_scores_that_rows_do_not_give_have_intervals_over_seeds_with_a_note(build: Build) -> None:
    store = build(datasets=("digits",), seeds=2, rows=200)
    for record in store.scan().records:
        _rewrite(store, record, metric="a_metric_of_a_plugin")
    board = _board(store)
    assert any("over seeds only" in n for n in board.notes)
    assert board.rows[3].standings["clean"].best


def test_a_collapse_is_said(build: Build) -> None:
    store = build(datasets=("digits",), seeds=2, rows=200)
    _rewrite(store, _first(store, label="tensor"), summary={"codes_collapsed": 1.0, "centers_collapsed": 0.0})
    notes = _board(store).notes
    assert "tensor on digits: codes collapsed" in notes
    assert not any("centers collapsed" in n for n in notes)


def test_methods_on_other_conditions_share_the_common_curves(build: Build) -> None:
    store = build(datasets=("digits",), seeds=2, rows=200)
    for record in store.scan().records:
        if record.cell.label == "concat":
            kept = tuple(c for c in record.conditions if c.corruption != "scale")
            _rewrite(store, record, conditions=kept)
    board = _board(store)
    assert len(board.datasets[0].curves) == 4
    assert any("not in it: scale on audio, scale on image" in n for n in board.notes)
    assert all("robust" in r.standings for r in board.rows if r.label not in (TRIVIAL, "best unimodal"))


def test_no_board_depends_on_the_order_of_records(build: Build) -> None:
    evidence = gather([build(datasets=("digits", "shapes"), seeds=2, rows=200).folder])
    want = csv_and_json.to_json([_of(evidence)])
    shuffled = list(evidence.records)
    random.Random(3).shuffle(shuffled)
    assert (
        csv_and_json.to_json([_of(replace(evidence, records=tuple(sorted(shuffled, key=lambda r: r.cell.seed))))])
        == want
    )


def _of(evidence: object) -> Board:
    return build(evidence, "plain")  # pyright: ignore[reportArgumentType]


# --- Merging ----------------------------------------------------------------------------------------------------------


def test_folders_merge_and_a_cell_counts_once(build: Build) -> None:
    half = {k: v for k, v in STANDARD.items() if k != "tensor"}
    first, second = build(half, name="a"), build({"tensor": STANDARD["tensor"], "concat": STANDARD["concat"]}, name="b")
    evidence = gather([first.folder, second.folder])
    assert len(evidence.records) == len(STANDARD) * 9
    assert not evidence.notes


def test_an_unreadable_record_is_refused_by_name(build: Build) -> None:
    store = build(datasets=("digits",), seeds=2, rows=200)
    path = store.path(_first(store, label="concat").cell.id)
    path.write_text(path.read_text()[:200])
    with pytest.raises(BoardError, match=path.name):
        gather([store.folder])
    evidence = gather([store.folder], skip_invalid=True)
    assert any(path.name in n for n in evidence.notes)


def test_another_schema_is_refused_and_named(build: Build) -> None:
    store = build(datasets=("digits",), seeds=2, rows=200)
    path = store.path(_first(store, label="concat").cell.id)
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    with pytest.raises(BoardError, match="schema 99"):
        gather([store.folder])


def test_versions_of_a_dataset_are_never_averaged(build: Build) -> None:
    store = build(datasets=("digits", "shapes"), seeds=2, rows=200)
    for record in store.scan().records:
        if record.cell.label == "tensor" and record.cell.dataset == "digits":
            _rewrite(store, record, dataset_version="2")
    board = _board(store)
    assert next(r for r in board.rows if r.label == "tensor").entries["digits"].status == "not run"
    assert any("digits: 2 records of version 2" in n for n in board.notes)
    other = _board(store, datasets=["digits@2"])
    assert [r.label for r in other.rows] == [TRIVIAL, "tensor"]
    with pytest.raises(BoardError, match="version 3 of digits"):
        gather([store.folder], ["digits@3"])


def test_tuned_and_default_are_never_in_one_ranking(build: Build) -> None:
    store = build(datasets=("digits",), seeds=2, rows=200)
    for record in [r for r in store.scan().records if r.cell.label == "tensor"]:
        store.write(
            changed(record, tuning=Tuning("abc", 3, (0.5, 0.6, None, 0.9)), cost={"train_seconds": 1.0}),
            store.predictions(record.cell.id),
        )
    board = _board(store)
    assert {r.cell.tuning for row in board.rows for e in row.entries.values() for r in e.records} == {None}
    assert any("2 records of the setting `tuned` are set aside" in n for n in board.notes)
    assert {r.label for r in _board(store, setting="tuned").rows} == {TRIVIAL, "tensor"}


def test_only_the_newest_configuration_of_a_method_counts(build: Build) -> None:
    store = build(datasets=("digits",), seeds=2, rows=200)
    record, predictions = make_record("concat", Planted(0.5), seed=0)
    late = {**record.provenance, "finished": "2025-12-01T00:00:00+00:00"}
    edited = store.write(changed(record, source="abc", provenance=late), predictions)
    board = _board(store)
    entry = next(r for r in board.rows if r.label == "concat").entries["digits"]
    assert entry.records == (edited,)
    assert any(
        "digits: records of other recipes, options or sources are set aside: concat (2)" in n for n in board.notes
    )


@pytest.mark.parametrize("said", ["2035-01-01T00:00:00+00:00", "9999-12-31T23:59:59", "zzz", 7, None])
def test_a_clock_that_was_wrong_makes_nothing_the_newest(build: Build, said: object) -> None:
    store = build(datasets=("digits",), seeds=2, rows=200)
    old = _first(store, label="concat")
    record, predictions = make_record("concat", Planted(0.5), seed=0)
    ahead = changed(record, source="abc", provenance={**record.provenance, "finished": said})
    store.write(ahead, predictions)
    evidence = gather([store.folder])
    assert ahead.cell.id not in evidence.stores and old.cell.id in evidence.stores
    future = "digits: records that a wrong clock dates to the future do not count as newest: concat (1)"
    assert (future in evidence.notes) == (str(said)[:1] in "29")
    # Nor of two records of one cell, wherever they are.
    other = Store(store.folder.parent / "other")
    other.prepare()
    other.write(changed(old, provenance={**old.provenance, "finished": said}), store.predictions(old.cell.id))
    for folders in ((store.folder, other.folder), (other.folder, store.folder)):
        source = gather(folders).stores[old.cell.id]
        assert isinstance(source, Store) and source.folder == store.folder
    # A clock that is a little ahead is right.
    soon = (datetime.now(UTC) + timedelta(minutes=5)).isoformat(timespec="seconds")
    store.write(changed(ahead, provenance={**record.provenance, "finished": soon}), predictions)
    assert ahead.cell.id in gather([store.folder]).stores


def test_the_recipe_of_most_methods_counts_and_others_are_named(build: Build) -> None:
    store = build(datasets=("digits",), seeds=2, rows=200)
    record, predictions = make_record("concat", Planted(0.5), seed=0)
    late = {**record.provenance, "finished": "2025-12-01T00:00:00+00:00"}
    hasty = store.write(changed(record, recipe={"epochs": 1}, provenance=late), predictions)
    assert hasty.cell.id not in gather([store.folder]).stores
    other, predictions = make_record("late", Planted(0.5), seed=0)
    store.write(changed(other, recipe={**record.cell.recipe, "epochs": 1}), predictions)
    assert any("recipe differs in epochs (not 10) for late" in n for n in _board(store).notes)


def test_other_content_under_the_same_version_is_set_aside(build: Build) -> None:
    store = build(datasets=("digits",), seeds=2, rows=200)
    for record in store.scan().records:
        content = "edited" if record.cell.label == "tensor" else "first"
        _rewrite(store, record, provenance={**record.provenance, "dataset_hash": content})
    board = _board(store)
    assert "tensor" not in {r.label for r in board.rows}
    assert any("content edited are set aside" in n for n in board.notes)
    # A cell that failed before it saw the data belongs to the board all the same.
    record = _first(store, label="concat", seed=1)
    early = changed(record, status="failed", conditions=(), error=Failure("RuntimeError", "boom"), provenance={})
    store.write(early)
    assert next(r for r in _board(store).rows if r.label == "concat").entries["digits"].status == "failed"


@pytest.mark.parametrize(("folder", "says"), [("nowhere", "no results folder"), ("empty", "no records in")])
def test_nothing_to_show_is_said(tmp_path: Path, folder: str, says: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BoardError, match=says):
        gather([tmp_path / folder])


def test_an_unknown_dataset_is_named_with_those_there_are(build: Build) -> None:
    with pytest.raises(BoardError, match=r"no records on digit\. Datasets with records: digits"):
        gather([build(datasets=("digits",), seeds=2, rows=200).folder], ["digit"])


# --- Renderings -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="board")
def board_fixture(tmp_path_factory: pytest.TempPathFactory) -> Board:
    from tests.leaderboard.conftest import write_results

    nasty = {**STANDARD, "<b>|x_1&\\": Planted(0.75)}
    return _board(write_results(tmp_path_factory.mktemp("results"), nasty, seeds=2, rows=100))


@pytest.mark.parametrize("view", SLICES)
def test_every_slice_renders_everywhere(board: Board, view: str) -> None:
    shown = tables.table(board, view)
    assert len({len(r) for r in shown.rows} | {len(shown.headers)}) == 1
    console = Console(file=io.StringIO(), width=300)
    console.print(renderings.terminal(shown))
    text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    for rendered in (text, renderings.markdown(shown), renderings.latex(shown)):
        assert "gated" in rendered
    # Never a bare advantage.
    places = [c.text for row in shown.rows for h, c in zip(shown.headers, row, strict=True) if "advantage" in h]
    assert all("±" in p or p in ("control", tables.HOLE) for p in places)


def test_names_are_escaped(board: Board) -> None:
    shown = tables.table(board)
    assert "<b>" not in renderings.markdown(shown)
    assert "&lt;b&gt;\\|x\\_1&amp;\\\\" in renderings.markdown(shown)
    assert r"\textless{}b\textgreater{}|x\_1\&\textbackslash{}" in renderings.latex(shown)
    lines = renderings.markdown(shown).splitlines()
    pipes = {line.replace("\\|", "").count("|") for line in lines if line.startswith("|")}
    assert len(pipes) == 1


def test_csv_has_every_method_and_dataset_at_full_precision(board: Board) -> None:
    lines = list(csv.DictReader(io.StringIO(csv_and_json.comma_separated([board]))))
    assert len(lines) == len(board.rows) * len(board.datasets)
    assert {x["trivial"] for x in lines} == {"0.25"}
    line = next(x for x in lines if x["method"] == "gated" and x["dataset"] == "digits")
    entry = next(r for r in board.rows if r.label == "gated").entries["digits"]
    assert float(line["clean"]) == entry.measures["clean"].mean
    assert float(line["area_low"]) == entry.measures["area"].low
    narrow = csv_and_json.comma_separated([board], "cost").splitlines()[0]
    assert "parameters" in narrow
    assert "clean_low" not in narrow


def test_json_is_json(board: Board) -> None:
    (again,) = json.loads(csv_and_json.to_json([board]))
    assert again["rows"][1]["entries"]["digits"]["measures"]["clean"]["mean"] > 0
    records = again["rows"][1]["entries"]["digits"]["records"]
    assert records and all(isinstance(c, str) for c in records)


def test_every_measure_has_a_help_and_slices_know_them() -> None:
    assert all(m.help and m.title for m in MEASURES.values())
    assert {name for names in SLICES.values() for name in names} <= set(MEASURES)


# --- The command ------------------------------------------------------------------------------------------------------


def _command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = (
        "import argparse, sys, benchmark.commands.leaderboard as c; p = argparse.ArgumentParser(); c.add_arguments(p);"
        "status = c.run(p.parse_args()); assert 'torch' not in sys.modules, 'torch was imported'; sys.exit(status)"
    )
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env={"PYTHONPATH": root, "PATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_reads_results_and_writes_three_files_without_torch(build: Build, tmp_path: Path) -> None:
    build(datasets=("digits",), seeds=2, rows=60)
    done = _command(cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "gated" in done.stdout
    assert {p.name for p in (tmp_path / "results" / "leaderboard").iterdir()} == {
        "leaderboard.md",
        "leaderboard.csv",
        "leaderboard.html",
    }
    again = _command("--format", "csv", "--slice", "cost", "--track", "augmented", cwd=tmp_path)
    assert again.stdout.splitlines()[2].startswith("augmented,augmented,")


def test_the_command_refuses_with_2_and_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leaderboard", str(tmp_path / "nowhere")]) == 2
    assert "no results folder" in capsys.readouterr().err
