"""What makes a new cell, and what does not: edits of a copy of the packages, planned in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import benchmark.conditions
from benchmark import identity
from benchmark.runner import run_cell
from leaderboard.record import Record
from leaderboard.store import Store
from tests.benchmark.conftest import planned as plan_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("benchmark", "datamodules", "methods", "leaderboard")

# An addition to the end of a file. The plan is of `additive` on digit_halves.
STATEMENT = "\n_edited = 1\n"
NEW_CELL = (
    "benchmark/trainer.py",
    "benchmark/evaluate.py",
    "benchmark/seeds.py",
    "methods/base.py",
    "methods/metrics.py",
    "methods/additive.py",
    "methods/functional/fusion.py",
    "methods/parts/encoders.py",
    "datamodules/base.py",
    "datamodules/digit_halves.py",
    "datamodules/targets/multiclass.py",
)
SAME_CELL = (
    "benchmark/cli.py",
    "benchmark/plan.py",
    "benchmark/commands/run.py",
    "datamodules/sources/wheels.py",
    "datamodules/registry.py",
    "datamodules/encoders/features.py",
    "datamodules/shapes_count.py",
    "datamodules/targets/pairs.py",
    "methods/concat.py",
    "methods/functional/energy.py",
    "leaderboard/page/__init__.py",
    "leaderboard/tables.py",
)
SCRIPT = """
import json, sys
from pathlib import Path
from benchmark.matrix import Choice, Matrix
from benchmark.plan import make_plan

def planned():
    matrix = Matrix("test", (Choice("additive"),), (Choice("digit_halves"),), baselines=False)
    (cell,) = make_plan(matrix).cells
    return cell.id

found = {"before": planned()}
for path, text in json.loads(sys.argv[1]):
    file = Path(path)
    old = file.read_text()
    file.write_text(text.replace("WHOLE", old))
    found[path] = [*found.get(path, []), planned()]
    file.write_text(old)
found["after"] = planned()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def planned(folder: Path, edits: list[tuple[str, str]]) -> dict[str, list[str]]:
    """The id of the cell after each edit, each made alone."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", SCRIPT, json.dumps(edits)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("before") == found.pop("after")
    return found


def test_code_that_decides_numbers_makes_a_new_cell_and_no_other_does(copy: Path) -> None:
    edits = [(path, "WHOLE" + STATEMENT) for path in (*NEW_CELL, *SAME_CELL)]
    found = planned(copy, edits)
    (same,) = {found[path][0] for path in SAME_CELL}
    assert not {path for path in NEW_CELL if found[path][0] == same}, "edited, and the old cell would be taken for it"


def test_comments_docstrings_and_layout_do_not(copy: Path) -> None:
    text = (copy / "methods/additive.py").read_text()
    docstring = text.replace('"""', '"""Edited. ', 1)
    edits = [("methods/additive.py", t) for t in ("WHOLE", "# edited\nWHOLE", "WHOLE\n\n\n", docstring)]
    assert len(set(planned(copy, edits)["methods/additive.py"])) == 1


def test_code_that_gives_the_same_numbers_keeps_its_digest_until_it_is_edited_again() -> None:
    """Each line of `same_numbers.toml` is of the file as it is: a stale one would excuse nothing, or too much."""
    changes = tomllib.loads((ROOT / "benchmark/same_numbers.toml").read_text())["change"]
    assert changes
    for change in changes:
        path = ROOT / change["file"]
        assert change["before"] != change["now"] and change["why"]
        assert identity._read(path, path.stat().st_mtime_ns)[0] == change["before"], f"{path} was edited: show it again"
    assert len({change["now"] for change in changes}) == len(changes)


PLUGIN = '''"""Doc."""
from methods import Method, register

@register("edited")
class Mine(Method):
    """Doc."""
    def __init__(self, task, recipe):
        super().__init__(task, recipe, fused_dim=recipe.width)

    def fuse(self, z, present):
        return {expression}
'''
RACE = """
from pathlib import Path
from benchmark.matrix import Choice, Matrix
from benchmark.plan import make_plan
from benchmark.runner import run_cell
from datamodules.registry import load_plugin
from leaderboard.store import Store

load_plugin("mine.py")
xor = Choice("interactions_xor", {"rows": 200})
matrix = Matrix("t", (Choice("edited"),), (xor,), conditions="none", recipe={"epochs": 1, "width": 8}, baselines=False)
(cell,) = make_plan(matrix).cells
Path("mine.py").write_text(Path("mine.py").read_text().replace("z.sum(1)", "z.mean(1)"))
store = Store("results")
store.prepare()
record = run_cell(cell, store)
print(record.status, record.error and record.error.message)
"""


def test_a_plugin_edited_after_the_plan_is_not_stored_under_the_old_id(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN.format(expression="z.sum(1)"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", RACE], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("failed the method changed after the plan was made"), done.stdout + done.stderr


PLANNED = """
import sys
import msgspec
from benchmark.executors.pool import Settings, prepare_worker, run_and_report
from benchmark.matrix import Choice, Matrix
from benchmark.plan import make_plan
from datamodules.registry import load_plugin
from leaderboard.record import Cell
from pathlib import Path

settings, old = Settings("results", plugins=("mine.py",)), Path("mine.py").read_text()
if sys.argv[1] == "plan":
    load_plugin("mine.py")
    data = Choice("interactions_xor", {"rows": 200})
    recipe = {"epochs": 1, "width": 8}
    one = (Choice("edited"),), (data,)
    (cell,) = make_plan(Matrix("t", *one, conditions="none", recipe=recipe, baselines=False)).cells
    Path("cell.json").write_bytes(msgspec.json.encode(cell))
else:
    Path("mine.py").write_text(old.replace("z.sum(1)", sys.argv[2]))
    store = prepare_worker(settings, one_thread=True)
    Path("mine.py").write_text(old)
    store.prepare()
    cell = msgspec.json.decode(Path("cell.json").read_bytes(), type=Cell)
    print(run_and_report(cell, store, settings).text)
"""


def test_an_edit_that_a_worker_imported_is_not_forgotten_when_the_file_is_put_back(tmp_path: Path) -> None:
    """The file then has the digest of the plan; what the worker runs has not."""
    (tmp_path / "mine.py").write_text(PLUGIN.format(expression="z.sum(1)"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def ran(*arguments: str) -> str:
        command = [sys.executable, "-c", PLANNED, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    ran("plan")
    refused = Record.from_json(ran("run", "z.mean(1)"))
    assert refused.error and "a file that this process has imported changed" in refused.error.message
    assert Record.from_json(ran("run", "z.sum(1)")).status == "ok", "nothing was edited"


def test_a_table_edited_after_the_plan_is_not_stored_under_the_old_id(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    rows = [f"{i % 7},{i % 5},{'cat' if i % 2 else 'dog'}" for i in range(60)]
    table.write_text("\n".join(["a,b,kind", *rows]))
    options = {"name": "csv_views", "file": str(table), "modalities": {"a": ["a"], "b": ["b"]}, "target": "kind"}
    (cell,) = plan_of(datasets=[options], recipe={"epochs": 1, "width": 8}).cells
    table.write_text("\n".join(["a,b,kind", *reversed(rows)]))
    store = Store(tmp_path / "results")
    store.prepare()
    record = run_cell(cell, store)
    assert record.error and record.error.message.startswith("the data changed after the plan was made")
    (other,) = plan_of(datasets=[options], recipe={"epochs": 1, "width": 8}).cells
    assert other.id != cell.id and run_cell(other, store).status == "ok"


def test_edited_severities_are_another_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = {"conditions": ["gaussian_noise"], "recipe": {"epochs": 1, "width": 8}}
    (cell,) = plan_of(**small).cells
    assert any(c.corruption == "gaussian_noise" for c in cell.conditions)
    original = benchmark.conditions.levels

    def edited(name: str, *rest: Any) -> tuple[Any, ...]:
        levels: tuple[Any, ...] = original(name, *rest)
        return (levels[0] * 1.01, *levels[1:])

    monkeypatch.setattr(benchmark.conditions, "levels", edited)
    (other,) = plan_of(**small).cells
    assert other.id != cell.id
    store = Store(tmp_path)
    record = run_cell(cell, store)
    assert record.error and record.error.message.startswith("a corruption changed after the plan was made")
