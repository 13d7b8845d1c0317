"""Submissions: an honest one is accepted, and every way to cheat that we know is named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from benchmark.cli import main
from benchmark.errors import UsageError
from benchmark.submission import MANIFEST, files, submit
from benchmark.verification import Verification, verify
from leaderboard.record import Record
from leaderboard.store import Store
from tests.records import changed

ROOT = Path(__file__).resolve().parents[2]
MATRIX = """
seeds = 2
conditions = ["gaussian_noise", "missing"]
methods = ["concat"]
baselines = false
datasets = [{ name = "interactions_xor", rows = 300 }]
recipe = { width = 8, epochs = 2, batch_size = 100, lr = 1e-2, patience = 2 }
"""
PLUGIN = '''
import torch
from torch import Tensor, nn

from datamodules.spec import Task
from methods import Method, Recipe, register


@register("mine")
class Mine(Method):
    """A sum with a learned scale."""

    def __init__(self, task: Task, recipe: Recipe) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)
        self.scale = nn.Parameter(torch.ones(recipe.width))

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return z.sum(dim=1) * self.scale
'''


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A matrix, a plugin and its results, run as a user does: in a process of their own."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "small.toml").write_text(MATRIX)
    (folder / "mine.py").write_text(PLUGIN)
    command = [sys.executable, "-m", "benchmark.cli", "run", "small.toml", "--methods", "mine", "--plugin", "mine.py",
               "--workers", "0", "--no-checkpoints", "--quiet"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    submit(folder / "results", "mine", folder / "submission", [folder / "mine.py"], "MIT")
    return folder


@pytest.fixture
def submission(work: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return shutil.copytree(work / "submission", tmp_path / "submission")


@pytest.fixture
def check(work: Path, submission: Path) -> Callable[..., Verification]:
    def run(**more: Any) -> Verification:
        return verify(submission, str(work / "small.toml"), **more)

    return run


def records(submission: Path) -> list[Record]:
    return sorted(Store(submission / "records").scan().records, key=lambda r: r.cell.seed)


def rewrite_manifest(submission: Path) -> None:
    """As somebody does who wants the hashes to be right."""
    import hashlib

    path = submission / MANIFEST
    manifest = json.loads(path.read_text())
    manifest["files"] = {f: hashlib.sha256((submission / f).read_bytes()).hexdigest() for f in files(submission)}
    path.write_text(json.dumps(manifest))


def replace_record(submission: Path, old: Record, new: Record, predictions: dict[str, np.ndarray]) -> None:
    store = Store(submission / "records")
    for suffix in (".json", ".npz"):
        store.path(old.cell.id, suffix).unlink()
    store.write(new, predictions)
    rewrite_manifest(submission)


def problems(found: Verification) -> str:
    assert not found.accepted
    return "\n".join([*found.folder_problems, *(f"{v.cell}: {p}" for v in found.cells for p in v.problems)])


def test_an_honest_submission_is_accepted(check: Callable[..., Verification], submission: Path) -> None:
    found = check(rerun=1)
    assert found.accepted, problems(found)
    assert len(found.cells) == 2 and len(found.rerun) == 1
    manifest = json.loads((submission / MANIFEST).read_text())
    assert {"plugins/mine.py", "LICENCE.txt", "results.parquet"} <= set(manifest["files"])
    assert "MIT" in (submission / "LICENCE.txt").read_text()


def test_an_edited_score_is_named(check: Callable[..., Verification], submission: Path) -> None:
    record = records(submission)[0]
    path = submission / "records" / f"{record.cell.id}.json"
    whole = json.loads(path.read_text())
    whole["conditions"][0]["score"] = 0.99
    path.write_text(json.dumps(whole))
    assert "its hash is another" in problems(check())
    rewrite_manifest(submission)
    assert f"{record.cell.id}: condition clean: the record says accuracy 0.99, its predictions give" in problems(
        check()
    )


def test_two_swapped_prediction_files_are_named(check: Callable[..., Verification], submission: Path) -> None:
    a, b = ((submission / "records" / f"{r.cell.id}.npz") for r in records(submission))
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)
    rewrite_manifest(submission)
    assert problems(check()).count("predictions are not those the record was written with") == 2


def test_predictions_that_do_not_give_the_score_are_named(check: Callable[..., Verification], submission: Path) -> None:
    record = records(submission)[0]
    store = Store(submission / "records")
    predictions = store.predictions(record.cell.id)
    predictions["pred:clean"] = predictions["target"].copy()
    replace_record(submission, record, record, predictions)
    assert "condition clean: the record says accuracy" in problems(check())


def test_a_changed_recipe_is_named(check: Callable[..., Verification], submission: Path) -> None:
    record = records(submission)[0]
    predictions = Store(submission / "records").predictions(record.cell.id)
    longer = changed(record, recipe={**record.cell.recipe, "epochs": 50})
    replace_record(submission, record, longer, predictions)
    assert f"{longer.cell.id}: the recipe changed: epochs 50, planned 2" in problems(check())


def test_a_missing_seed_is_named(check: Callable[..., Verification], submission: Path) -> None:
    record = records(submission)[1]
    for suffix in (".json", ".npz"):
        Store(submission / "records").path(record.cell.id, suffix).unlink()
    assert "is in the manifest, but not here" in problems(check())
    rewrite_manifest(submission)
    assert problems(check()) == "missing: mine on interactions_xor, seed 1"


def test_a_copied_record_is_named(check: Callable[..., Verification], submission: Path) -> None:
    first, second = records(submission)
    store = Store(submission / "records")
    copied = msgspec.structs.replace(first, cell=first.cell.with_seed(1))
    replace_record(submission, second, copied, store.predictions(first.cell.id))
    assert f"{second.cell.id}: has the predictions of {first.cell.id}: a copied record" in problems(check())


def test_a_record_copied_from_the_published_ones_is_named(check: Callable[..., Verification], submission: Path) -> None:
    record = records(submission)[0]
    theirs = changed(record, method="concat", label="concat")
    said = problems(check(published=[theirs]))
    assert f"{record.cell.id}: has the scores of the published {theirs.cell.id}" in said


def test_other_code_than_the_submitted_is_named(check: Callable[..., Verification], submission: Path) -> None:
    plugin = submission / "plugins" / "mine.py"
    plugin.write_text(plugin.read_text().replace("z.sum(dim=1)", "z.mean(dim=1)"))
    rewrite_manifest(submission)
    assert problems(check()).count("the method's code changed") == 2


def test_a_run_that_does_not_repeat_is_named(check: Callable[..., Verification], submission: Path) -> None:
    # Scores and predictions agree, but no training gives them: only a rerun can tell.
    for record in records(submission):
        store = Store(submission / "records")
        predictions = store.predictions(record.cell.id)
        predictions["pred:clean"] = predictions["target"].copy()
        perfect = msgspec.structs.replace(record.conditions[0], score=1.0)
        better = msgspec.structs.replace(record, conditions=(perfect, *record.conditions[1:]))
        replace_record(submission, record, better, predictions)
    assert check().accepted
    assert "run again, 1 of 13 conditions differ, most of all clean: 1 before" in problems(check(rerun=2))


def test_targets_that_are_not_the_datasets_are_named(check: Callable[..., Verification], submission: Path) -> None:
    record = records(submission)[0]
    predictions = Store(submission / "records").predictions(record.cell.id)
    predictions["target"] = predictions["pred:clean"].copy()
    replace_record(submission, record, record, predictions)
    assert "the targets beside the predictions are not those of the dataset" in problems(check())


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda s: (s / MANIFEST).unlink(), "has no manifest.json"),
        (lambda s: (s / MANIFEST).write_text("{}"), "is no manifest"),
        (lambda s: (s / "records" / "link.json").symlink_to("/etc/passwd"), "is a link"),
        (lambda s: shutil.rmtree(s / "plugins"), "no plugin of it registers that name"),
    ],
)
def test_what_is_no_submission_is_one_error(
    check: Callable[..., Verification], submission: Path, spoil: Callable[[Path], Any], message: str
) -> None:
    spoil(submission)
    with pytest.raises(UsageError, match=message):
        check()


def test_a_file_outside_the_folder_is_not_looked_at(check: Callable[..., Verification], submission: Path) -> None:
    path = submission / MANIFEST
    manifest = json.loads(path.read_text())
    manifest["files"] |= {"../../etc/passwd": "0" * 64, "": "0" * 64, ".": "0" * 64}
    path.write_text(json.dumps(manifest))
    assert "../../etc/passwd is no path within the submission" in problems(check())


def test_names_of_files_are_shown_and_not_obeyed(check: Callable[..., Verification], submission: Path) -> None:
    for folder in ("records", "plugins"):
        (submission / folder / "\x1b[2J\u202e.npz").touch()
    said = problems(check())
    assert "plugins/\\x1b[2J\\u202e.npz is not in the manifest" in said and "\x1b" not in said and "\u202e" not in said


def test_the_commands(work: Path, submission: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, output = str(work / "results"), str(tmp_path / "again")
    arguments = ["submit", results, "--name", "mine", "--licence", "MIT", "--output", output]
    assert main(arguments) == 2
    assert "mine is not registered by Polymodal: give its source with --plugin FILE" in capsys.readouterr().err
    assert main([*arguments, "--plugin", str(work / "mine.py")]) == 0
    assert main([*arguments, "--plugin", str(work / "mine.py")]) == 2
    assert "is not empty" in capsys.readouterr().err
    matrix = ["--matrix", str(work / "small.toml")]
    assert main(["verify", str(submission), *matrix]) == 0
    assert "accepted: 2 cells, 0 refused" in capsys.readouterr().out
    next((submission / "records").glob("*.npz")).unlink()
    assert main(["verify", str(submission), *matrix, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["accepted"] is False
