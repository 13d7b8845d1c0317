"""What a board claims, derived again from the raw predictions, and what must not move it."""

import io
from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from leaderboard import renderings, tables
from leaderboard.answer import answer
from leaderboard.board import TRIVIAL, Board, Row, build
from leaderboard.merge import Evidence, gather
from leaderboard.record import Fitted
from leaderboard.store import Store
from tests.leaderboard.conftest import STANDARD, Planted, write_results
from tests.records import changed

Build = Callable[..., Store]
CHANCE = 0.25


def _board(store: Store) -> Board:
    return build(gather([store.folder]), "plain")


def _row(board: Board, label: str) -> Row:
    return next(r for r in board.rows if r.label == label)


def _accuracies(store: Store, label: str, dataset: str) -> list[dict[str, float]]:
    """By seed: condition -> accuracy, counted row by row from the predictions and nothing else."""
    found = []
    for record in store.scan().records:
        if record.cell.label == label and record.cell.dataset == dataset:
            stored = store.predictions(record.cell.id)
            hits: dict[str, float] = {}
            for name, predicted in stored.items():
                if name.startswith("pred:"):
                    right = sum(int(p == t) for p, t in zip(predicted, stored["target"], strict=True))
                    hits[name.removeprefix("pred:")] = right / len(predicted)
            found.append(hits)
    return found


def _single(own: dict[str, float]) -> float:
    """Mean normalised fall over modalities, corruptions, and severities 0 to 5 by the trapezoid rule."""
    falls = []
    for k in ("image", "audio"):
        for c in ("gaussian", "dropout", "scale"):
            line = [own["clean"], *(own[f"single:{k}:{c}:{s}"] for s in range(1, 6))]
            falls.append(own["clean"] - np.trapezoid(line, dx=0.2))
    return float(np.mean(falls)) / (1 - CHANCE)


def _joint(own: dict[str, float]) -> float:
    line = [own["clean"], *(own[f"joint:{s}"] for s in range(1, 6))]
    return float(own["clean"] - np.trapezoid(line, dx=0.2)) / (1 - CHANCE)


def _missing(own: dict[str, float]) -> float:
    return ((own["missing:image"] + own["missing:audio"]) / 2 - CHANCE) / (1 - CHANCE)


def test_every_measure_comes_from_the_predictions(build: Build) -> None:
    store = build(datasets=("digits", "shapes"), seeds=2, rows=200)
    board = _board(store)
    for label in ("tensor", "gated", "additive"):
        totals: dict[str, list[float]] = {"clean": [], "robust": [], "missing": []}
        for dataset in ("digits", "shapes"):
            own, control = (_accuracies(store, m, dataset) for m in (label, "concat"))
            image = _accuracies(store, "unimodal[image]", dataset)
            wanted = {
                "clean": [a["clean"] for a in own],
                "gain": [a["clean"] - b["clean"] for a, b in zip(own, image, strict=True)],
                "drop_single": [_single(a) for a in own],
                "drop_joint": [_joint(a) for a in own],
                "drop": [(_single(a) + _joint(a)) / 2 for a in own],
                "area": [(a["clean"] - CHANCE) / (1 - CHANCE) - _single(a) for a in own],
                "joint": [(a["clean"] - CHANCE) / (1 - CHANCE) - _joint(a) for a in own],
                "missing": [_missing(a) for a in own],
            }
            found = _row(board, label).entries[dataset].measures
            for name, values in wanted.items():
                assert found[name].values == pytest.approx(tuple(values)), name
                assert found[name].mean == pytest.approx(np.mean(values)), name
                assert (found[name].half or 0) > 0, name
            for a, b in zip(own, control, strict=True):
                totals["clean"].append((a["clean"] - b["clean"]) / (1 - CHANCE))
                totals["robust"].append((_single(b) + _joint(b) - _single(a) - _joint(a)) / 2)
                totals["missing"].append(_missing(a) - _missing(b))
        for pillar, values in totals.items():
            assert _row(board, label).standings[pillar].advantage == pytest.approx(np.mean(values)), (label, pillar)


@pytest.fixture(scope="module", name="evidence")
def evidence_fixture(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    methods = {**STANDARD, "late": Planted(0.83, 0.04), "weak": Planted(0.4, 0.01)}
    store = write_results(tmp_path_factory.mktemp("real") / "results", methods, seeds=3, rows=120)
    # `late` does not apply everywhere, as attention and exchange methods do not.
    for record in store.scan().records:
        if record.cell.label == "late" and record.cell.dataset == "shapes":
            store.path(record.cell.id).unlink()
    return gather([store.folder])


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.sampled_from(["additive", "gated", "gated_twin", "tensor", "late", "weak"]), min_size=1, max_size=4))
def test_no_method_moves_another(evidence: Evidence, without: set[str]) -> None:
    whole = build(evidence, "plain")
    less = build(replace(evidence, records=tuple(r for r in evidence.records if r.cell.label not in without)), "plain")
    for pillar in ("clean", "robust", "missing"):
        before = {s.method: s for s in whole.order(pillar)}
        after = less.order(pillar)
        assert [s.method for s in after] == [m for m in before if m not in without]
        for s in after:
            assert s.advantage == pytest.approx(before[s.method].advantage, abs=1e-12)
            assert (s.on, s.of) == (before[s.method].on, before[s.method].of)


def test_every_method_has_a_place(evidence: Evidence) -> None:
    board = build(evidence, "plain")
    assert all("clean" in r.standings and "missing" in r.standings for r in board.rows if r.label != TRIVIAL)
    late = _row(board, "late").standings["clean"]
    assert (late.on, late.of, late.peers) == (2, 3, len(board.rows) - 1)
    assert late.mean_rank is None
    assert "robust" not in _row(board, "weak").standings, "at chance nothing can be lost"
    assert any("not placed in robust" in n and "weak" in n for n in board.notes)


@pytest.mark.parametrize(("effect", "least", "most"), [(0.05, 11, 12), (0.02, 6, 12), (0.0, 0, 2)])
def test_planted_effects_are_found_and_nothing_else(build: Build, effect: float, least: int, most: int) -> None:
    methods = {"concat": Planted(0.8), **{f"m{i}": Planted(0.8 + effect) for i in range(12)}}
    board = _board(build(methods, datasets=("digits",), seeds=5, rows=1000))
    verdicts = [_row(board, f"m{i}").standings["clean"].by_dataset["digits"] for i in range(12)]
    assert least <= sum(v != "tie" for v in verdicts) <= most
    assert all(v != "loss" for v in verdicts if effect)


def test_the_best_modality_is_chosen_on_validation(build: Build) -> None:
    store = build(datasets=("digits",), seeds=2, rows=200)
    for record in store.scan().records:
        if record.cell.method == "unimodal":
            better = 0.9 if record.cell.label == "unimodal[audio]" else 0.1
            stages = (Fitted("train", 1.0, best_score=better, monitor="val/accuracy"), Fitted("solve", 1.0))
            predictions = store.predictions(record.cell.id)
            store.write(changed(record, training=stages), predictions)
    board = _board(store)
    assert not any(r.label.startswith("unimodal") for r in board.rows)
    row = _row(board, "best unimodal")
    assert board.datasets[0].unimodal == "unimodal[audio]", "worse on the test split, and so be it"
    assert {r.cell.label for r in row.entries["digits"].records} == {"unimodal[audio]"}
    assert set(row.folded) == {"unimodal[audio]", "unimodal[image]"}
    audio = np.mean([a["clean"] for a in _accuracies(store, "unimodal[audio]", "digits")])
    gain = _row(board, "gated").entries["digits"].measures["gain"].mean
    assert gain == pytest.approx(np.mean([a["clean"] for a in _accuracies(store, "gated", "digits")]) - audio)


def test_a_loss_is_better_when_lower(build: Build) -> None:
    store = build(datasets=("digits",), seeds=2, rows=60)
    for record in store.scan().records:
        loss = 0.9 if record.cell.label == "unimodal[audio]" else 0.1
        stage = msgspec.structs.replace(record.training[-1], best_score=loss, monitor="val/loss")
        store.write(changed(record, training=(stage,)), store.predictions(record.cell.id))
    assert _board(store).datasets[0].unimodal == "unimodal[image]"


def test_rows_of_one_source_are_counted_as_one(build: Build) -> None:
    """Every row four times over, in groups: as exact as the rows were once."""
    methods = {k: STANDARD[k] for k in ("concat", "gated")}
    once = build(methods, datasets=("digits",), seeds=3, rows=100)
    want = _row(_board(once), "gated")
    again, blind = (build(methods, name=n, datasets=("digits",), seeds=3, rows=100) for n in ("again", "blind"))
    for store in (again, blind):
        for record in store.scan().records:
            own = {k: np.repeat(v, 4, axis=0) for k, v in store.predictions(record.cell.id).items()}
            own["row"] = np.arange(400)
            store.write(
                changed(record, rows=400), {**own, "group": np.repeat(np.arange(100), 4)} if store is again else own
            )
    half, wrong = (_row(_board(s), "gated").entries["digits"].measures["clean"].half or 0 for s in (again, blind))
    assert half == pytest.approx(want.entries["digits"].measures["clean"].half, rel=0.02)
    assert 0 < wrong < 0.75 * half


def test_without_the_control_there_are_scores_but_no_advantage(build: Build) -> None:
    store = build({k: STANDARD[k] for k in ("gated", "tensor")}, datasets=("digits",), seeds=2, rows=200)
    board = _board(store)
    assert [r.label for r in board.rows] == [TRIVIAL, "gated", "tensor"]
    assert not any(r.standings for r in board.rows)
    assert any("control concat has no result" in n for n in board.notes)
    assert "gated" in renderings.markdown(tables.table(board))


def test_one_seed_gives_scores_without_intervals(build: Build) -> None:
    board = _board(build(datasets=("digits",), seeds=1, rows=200))
    assert all(s.low is None and s.verdict == "tie" for s in board.order("clean") if s.method != "concat")
    assert _row(board, "gated").entries["digits"].measures["clean"].half is None
    assert any("one seed" in n for n in board.notes)


@pytest.mark.parametrize("seeds", [2, 5])
def test_ranks_take_five_seeds(build: Build, seeds: int) -> None:
    board = _board(build(datasets=("digits", "shapes"), seeds=seeds, rows=100))
    assert board.ranked == (seeds == 5)
    assert ("#" in tables.table(board).headers) == board.ranked
    assert ("no ranks" in answer(board)[0]) != board.ranked


def test_the_answer_is_what_was_planted(build: Build) -> None:
    said = answer(_board(build(seeds=5)))
    assert len(said) == 6
    assert said[0].startswith("3 of 4 methods are ahead of concat on clean data and 1 behind")
    assert "2 of the 6 methods" in said[1] and "gated, gated_twin" in said[1]
    assert "median method gains +0.1" in said[2]
    assert "fusing is worse than ignoring the broken modality: tensor" in said[3]
    assert "With a modality missing, gated" in said[4] and "(accuracy) without" in said[4]
    assert "1.5 times the parameters of concat" in said[5] or "gated_twin has 1.5" in said[5]


@pytest.mark.parametrize("view", ["overview", "clean", "robust", "missing", "cost"])
def test_eighty_columns_show_fewer_columns_and_cut_none(build: Build, view: str) -> None:
    shown = tables.table(_board(build(seeds=2, rows=100)), view)
    console = Console(file=io.StringIO(), width=80)
    console.print(renderings.terminal(shown, 80))
    text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "best unimodal" in text
    assert "advantage" in text
