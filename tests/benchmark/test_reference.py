"""The published results: small, whole, and what this code still gives."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from benchmark.again import TOLERANCE, run_again, same_kind
from benchmark.cli import main
from benchmark.matrix import shipped
from benchmark.tune import read as choices_of
from leaderboard.export import read
from leaderboard.record import Record
from leaderboard.reference import REFERENCE, TUNED

ROOT = Path(__file__).resolve().parents[2]
MATRIX = tomllib.loads(shipped()["reference"].read_text())


def fixed_cells(records: tuple[Record, ...]) -> list[Record]:
    """Three cells, the same for a file: the quickest of the control, on as many datasets as there are."""
    done = [r for r in records if r.status == "ok" and r.cell.label == "concat" and r.cell.tuning is None]
    quickest = sorted(done, key=lambda r: (r.cost["train_seconds"] + r.cost["sweep_seconds"], r.cell.id))
    seen: dict[str, list[Record]] = {}
    for record in quickest:
        seen.setdefault(record.cell.dataset, []).append(record)
    one_each = [several[0] for several in seen.values()]
    return [*one_each, *(r for several in seen.values() for r in several[1:])][:3]


def test_the_file_is_small_and_its_readme_is_its_own() -> None:
    content = REFERENCE.read_bytes()
    assert len(content) < 8_000_000
    assert hashlib.sha256(content).hexdigest() in (REFERENCE.parent / "README.md").read_text()


def test_it_holds_what_the_matrix_says() -> None:
    export = read(REFERENCE)
    names = {d if isinstance(d, str) else d["name"] for d in MATRIX["datasets"]}
    assert {r.cell.dataset for r in export.records} == names, "a dataset is in the matrix when it is published"
    assert {"concat", "additive"} <= {r.cell.label for r in export.records}
    assert {r.cell.seed for r in export.records} == set(range(MATRIX["seeds"]))
    assert export.priors("default", "plain"), "frozen priors travel with it"
    entries = {(r.cell.label, r.cell.dataset, r.cell.tuning is None) for r in export.records if r.status == "ok"}
    assert len(export.kept.lines) == len(entries)


def test_tuned_results_are_of_the_published_choice() -> None:
    choices = choices_of(TUNED)
    chosen = {(one.label, one.dataset): one for one in choices.choice}
    tuned = [record.cell for record in read(REFERENCE).records if record.cell.tuning is not None]
    assert tuned
    for cell in tuned:
        own = chosen[cell.label, cell.dataset]
        assert cell.tuning is not None and cell.tuning.digest == choices.of(own)
        assert cell.tuning.trial == own.trial and {**cell.recipe, **own.recipe} == cell.recipe


def test_the_first_thing_to_look_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leaderboard", "--reference"]) == 0
    assert "concat" in capsys.readouterr().out
    assert main(["leaderboard", "--reference", "--with", "reference"]) == 2
    assert "--reference shows the published results alone" in capsys.readouterr().err
    assert main(["compare", "additive", "concat", "--reference"]) == 0
    assert "additive against concat" in capsys.readouterr().out


def test_the_wheel_holds_it() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "leaderboard" in packages["packages"] and REFERENCE.is_relative_to(ROOT / "leaderboard")
    ignored = subprocess.run(["git", "check-ignore", str(REFERENCE)], cwd=ROOT, capture_output=True, check=False)
    assert ignored.returncode == 1  # hatch leaves out what git ignores


def test_machines_are_told_apart() -> None:
    facts = {"python": "3.11", "platform": "p", "processor": "c", "gpu": None, "threads": 1}
    one = {**facts, "versions": {"torch": "2", "polymodal": "0.1"}}
    assert same_kind(one, {**one, "versions": {"torch": "2", "polymodal": "0.2"}, "finished": "later"})
    assert not same_kind(one, {**one, "processor": "d"})
    assert not same_kind(one, {**one, "versions": {"torch": "3", "polymodal": "0.1"}})


def test_only_mine_is_run(tmp_path: Path) -> None:
    """Baselines come from the file: a plugin's author runs a cell per dataset and seed, and no more."""
    (tmp_path / "mine.py").write_text(
        "from methods import Method, register\n\n\n@register('mine')\nclass Mine(Method):\n"
        "    def __init__(self, task, recipe):\n        super().__init__(task, recipe, fused_dim=recipe.width)\n\n"
        "    def fuse(self, z, present):\n        return z.sum(dim=1)\n"
    )
    command = [sys.executable, "-m", "benchmark.cli", "plan", "reference", "--methods", "mine", "--plugin", "mine.py",
               "--datasets", "digit_halves,interactions_xor", "--json"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"method": "mine"') == 2 * MATRIX["seeds"] == done.stdout.count('"method":')


@pytest.mark.slow
def test_the_published_numbers_are_what_this_code_gives(tmp_path: Path) -> None:
    cells = fixed_cells(read(REFERENCE).records)
    assert len(cells) == 3
    for number, record in enumerate(cells):
        again = run_again(record, tmp_path / str(number))
        assert not again.problem, f"{record.cell.id}: {again.problem}"
        if again.same_machine:
            assert not again.differs
        assert max(again.differs.values(), default=0.0) <= TOLERANCE
