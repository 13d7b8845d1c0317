"""Tuning: equal trials, chosen on validation rows alone, the same file however it comes about."""

import importlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomli_w
import torch

from benchmark.conformance.probe import PROBES, Probe
from benchmark.errors import UsageError
from benchmark.matrix import parse
from benchmark.plan import Plan, make_plan
from benchmark.runner import run_cell
from datamodules.base import DataModule
from leaderboard.record import Record
from leaderboard.store import Store
from methods import Recipe
from methods.low_rank import LowRank
from methods.registry import methods
from tests.benchmark.conftest import ENVIRONMENT
from tests.records import make_record, measured

# The others declare a space. These spend their trials on the shared part, for the reason given here.
WITHOUT_A_SPACE = {
    "additive": "nothing but the recipe decides its score",
    "augmented": "what it corrupts is that of its twin, emma",
    "concat_matched": "its width is what it is for",
    "linear": "its one strength is chosen in every fit",
    "modality_dropout": "what it drops is that of its twin, emma",
    "unimodal": "nothing but the recipe decides its score",
    "zero_shot": "nothing is trained",
}

tune = importlib.import_module("benchmark.tune")  # the package's own `tune` is the function for notebooks
MATRIX: dict[str, Any] = {
    "methods": ["concat", "low_rank"],
    "datasets": [{"name": "interactions_xor", "rows": 200}],
    "baselines": False,
    "conditions": ["gaussian_noise"],
    "recipe": {"width": 8, "epochs": 2, "batch_size": 50},
}


@pytest.fixture
def plan() -> Plan:
    return make_plan(parse(MATRIX, "test"))


def test_trials_share_what_is_shared_and_start_at_the_default(plan: Plan) -> None:
    concat, low_rank = tune.plan_trials(plan, 4, 2)
    assert [len(own.cells) for own in (concat, low_rank)] == [4, 4]
    for mine, theirs in zip(concat.cells, low_rank.cells, strict=True):
        assert [c.seed for c in mine] == [1000, 1001]
        assert {k: mine[0].recipe[k] for k in tune.SHARED} == {k: theirs[0].recipe[k] for k in tune.SHARED}
        assert all(c.split == "val" and [m.id for m in c.conditions] == ["clean"] for c in (*mine, *theirs))
    assert concat.cells[0][0].recipe == concat.entry.recipe and concat.cells[0][0].options == concat.entry.options
    assert len({c.recipe["lr"] for (c, _) in concat.cells}) == 4
    assert len({c.options["rank"] for (c, _) in low_rank.cells}) > 1, "its own space"


def test_more_trials_go_on_where_fewer_ended(plan: Plan) -> None:
    few, many = (tune.plan_trials(plan, trials, 1)[0] for trials in (4, 9))
    assert many.cells[:4] == few.cells
    assert tune.points("a", 5) != tune.points("b", 5)


def test_every_method_has_a_space_or_a_reason() -> None:
    without = {name for name in methods.names() if methods.get(name).__module__.startswith("methods.")}
    assert {name for name in without if not methods.get(name).search} == set(WITHOUT_A_SPACE)


@pytest.mark.parametrize("name", methods.names())
def test_every_corner_of_a_space_builds(name: str) -> None:
    from benchmark.options import resolve

    cls = methods.get(name)
    assert len(cls.search) <= tune.OWN
    task = next(task for shape in PROBES if cls.applies_to(task := Probe(shape=shape).task, {}) is None)
    for corner in itertools.product((0.0, 0.31, 0.5, 0.77, 0.999999), repeat=len(cls.search)):
        tried = {option: space.at(u) for (option, space), u in zip(cls.search.items(), corner, strict=True)}
        with torch.device("meta"):
            cls(task, Recipe(width=32), **resolve(name, cls, tried, "search"))


def test_an_option_outside_of_the_space_changes_no_choice(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wider(LowRank):
        def __init__(self, task: Any, recipe: Recipe, *, before: bool = True, rank: int = 8, after: int = 3) -> None:
            super().__init__(task, recipe, rank=rank)

    def choice() -> Any:
        trials = tune.plan_trials(make_plan(parse(MATRIX, "test")), 4, 1)
        return tune.choose(trials, scored(trials, float), 4, 1).choice

    before, get = choice(), methods.get
    monkeypatch.setattr(methods, "get", lambda name: Wider if name == "low_rank" else get(name))
    assert "after" in make_plan(parse(MATRIX, "test")).cells[-1].options
    assert choice() == before


@pytest.mark.slow
def test_the_choice_is_the_same_with_two_workers_and_after_kills(tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(tomli_w.dumps(MATRIX))

    def start(results: str, workers: int) -> subprocess.Popen[bytes]:
        options = ["--trials", "4", "--results", results, "--workers", str(workers), "--quiet", "--no-checkpoints"]
        command = [sys.executable, "-m", "benchmark.cli", "tune", str(matrix), *options]
        return subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, start_new_session=True)

    for done in (1, 3, 6):
        process = start("killed", 1)
        while process.poll() is None and len(list((tmp_path / "killed" / "trials").glob("*.json"))) < done:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "killed" / "tuned.toml").exists(), "the kills came too late to prove anything"
    for results, workers in (("killed", 1), ("one", 0), ("two", 2)):
        assert start(results, workers).wait() == 0
    chosen = {(tmp_path / results / "tuned.toml").read_bytes() for results in ("killed", "one", "two")}
    assert len(chosen) == 1 and b"[[choice]]" in chosen.pop()


def test_a_trial_reads_no_test_row(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoTest(dict):
        def __getitem__(self, name: str) -> Any:
            assert name != "test", "a trial looked at the test split"
            return super().__getitem__(name)

        def items(self) -> Any:
            raise AssertionError("a trial looked at all splits")

        values = items

    load = DataModule.splits.func  # type: ignore[attr-defined]
    monkeypatch.setattr(DataModule, "splits", property(lambda self: NoTest(load(self))))
    monkeypatch.setattr("benchmark.runner._loaded", OrderedDict())
    store = Store(tmp_path)
    store.prepare()
    (trial,) = tune.plan_trials(plan, 2, 1)[0].cells[1]
    record = run_cell(trial, store)
    assert record.status == "ok", record.error
    assert record.rows == 40 and record.provenance["dataset_hash"] == "", "validation rows; nothing else was hashed"


def scored(trials: tuple[tune.Trials, ...], score: Callable[[int], float]) -> dict[str, Record]:
    return {
        cell.id: msgspec.structs.replace(make_record(conditions=(measured("clean", score(t)),)), cell=cell)
        for own in trials
        for t, cells in enumerate(own.cells)
        for cell in cells
    }


def test_the_best_is_chosen_and_the_first_of_equals(plan: Plan) -> None:
    trials = tune.plan_trials(plan, 4, 1)
    tuned = tune.choose(trials, scored(trials, lambda t: [0.5, 0.7, 0.7, 0.6][t]), 4, 1)
    assert [c.trial for c in tuned.choice] == [1, 1]
    assert tuned.choice[0].scores == (0.5, 0.7, 0.7, 0.6)
    assert tune.choose(trials, scored(trials, lambda t: 0.5), 4, 1).choice[0].recipe == {}, "the default stays"


def test_a_failed_trial_is_never_chosen(plan: Plan) -> None:
    trials = tune.plan_trials(plan, 3, 1)
    records = scored(trials, float)
    for own in trials:
        del records[own.cells[2][0].id]
    assert {c.trial for c in tune.choose(trials, records, 3, 1).choice} == {1}
    with pytest.raises(UsageError, match="every trial failed"):
        tune.choose(trials, {}, 3, 1)


def test_the_file_is_read_as_it_was_written_and_edits_are_noticed(plan: Plan, tmp_path: Path) -> None:
    trials = tune.plan_trials(plan, 4, 1)
    records = scored(trials, float)
    del records[trials[0].cells[1][0].id]  # a failed trial has no score
    tuned = tune.choose(trials, records, 4, 1)
    path = tmp_path / "tuned.toml"
    tune.write(tuned, path)
    assert tune.read(path).digest == tuned.digest
    path.write_text(path.read_text().replace("trial = 3", "trial = 2", 1))
    with pytest.raises(UsageError, match="was changed after"):
        tune.read(path)
    path.write_text("digest = 1")
    with pytest.raises(UsageError, match="no file of `polymodal tune`"):
        tune.read(path)


def test_a_tuned_plan_runs_the_choice_and_says_so(plan: Plan) -> None:
    trials = tune.plan_trials(plan, 4, 1)
    tuned = tune.choose(trials, scored(trials, float), 4, 1)
    cells = tune.apply(plan, tuned).cells
    assert [c.seed for c in cells] == [c.seed for c in plan.cells] and not {c.id for c in cells} & {
        c.id for c in plan.cells
    }
    for cell, own in zip(cells, trials, strict=True):
        assert cell.recipe == own.cells[3][0].recipe and cell.options == own.cells[3][0].options
        assert cell.tuning and cell.tuning.trial == 3
        choice = next(c for c in tuned.choice if (c.label, c.dataset) == (cell.label, cell.dataset))
        assert cell.tuning.digest == tuned.of(choice)
        assert cell.split == "test" and cell.conditions == own.entry.conditions
    other = make_plan(parse({**MATRIX, "methods": ["late"]}, "test"))
    with pytest.raises(UsageError, match="not tuned: late on interactions_xor"):
        tune.apply(other, tuned)


def test_a_matrix_may_be_tuned_a_piece_at_a_time(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "tuned.toml"
    trials = tune.plan_trials(plan, 4, 1)
    both = tune.choose(trials, scored(trials, float), 4, 1)
    assert tune.kept(path, trials, 4, 1) == ()
    tune.write(tune.choose(trials[:1], scored(trials, float), 4, 1), path)
    others = tune.kept(path, trials[1:], 4, 1)
    assert tune.choose(trials[1:], scored(trials, float), 4, 1, others) == both
    assert tune.kept(path, trials, 5, 1) == (), "more trials of the same entries replace fewer"
    with pytest.raises(UsageError, match="has choices by 4 trials of 1 seeds for others"):
        tune.kept(path, trials[1:], 5, 1)


def test_a_tuned_cell_keeps_its_id_when_others_are_tuned_later(plan: Plan) -> None:
    trials = tune.plan_trials(plan, 4, 1)
    both = tune.choose(trials, scored(trials, float), 4, 1)
    alone = tune.choose(trials[:1], scored(trials[:1], float), 4, 1)
    own = replace(plan, cells=tuple(c for c in plan.cells if c.label == trials[0].entry.label))
    assert {c.id for c in tune.apply(own, alone).cells} == {c.id for c in tune.apply(own, both).cells}
