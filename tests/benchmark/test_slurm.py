"""The job array: a script that bash can run, in which every cell is run by exactly one task."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.cli import parser
from benchmark.executors.slurm import script
from leaderboard.store import Store
from tests.benchmark.conftest import ENVIRONMENT

Call = Callable[..., subprocess.CompletedProcess[str]]


def ask(*arguments: str) -> str:
    """The script for a plan of ten cells, three per task."""
    return script(parser().parse_args(["plan", *arguments]), cells=10, per_task=3, devices=2)


def task_command(text: str, folder: Path, number: int) -> list[str]:
    """The words that task `number` would execute, as bash sees them."""
    assert text.count("\nexec ") == 1
    shown = text.replace("\nexec ", "\nprintf '%s\\n' ")
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(number)}
    done = subprocess.run(["bash", "-c", shown], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[1:]


def test_the_script_is_complete() -> None:
    text = ask("quick")
    assert text.startswith("#!/bin/bash\n#SBATCH ") and text.endswith("\n")
    assert "#SBATCH --array=0-3\n" in text and "#SBATCH --cpus-per-task=2\n" in text
    head = text.partition("\nset -")[0]
    assert all(re.fullmatch(r"|#.*", line) for line in head.splitlines()), "sbatch reads options before any command"


def test_the_selection_is_repeated_word_by_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my matrix.toml").write_text("")
    given = [
        "my matrix.toml", "--methods", "concat,late", "--datasets", "digit_halves", "--seeds", "5", "--conditions",
        "none", "--set", "late.combine=\"it's $HOME\"", "--set", "recipe.epochs=3", "--plugin", "p q.py", "--data",
        "da ta", "--results", "re;sults", "--devices", "2", "--no-baselines",
    ]  # fmt: skip
    wanted = parser().parse_args(["plan", *given])
    for task in range(4):
        got = parser().parse_args(task_command(ask(*given), tmp_path, task))
        assert got.cells == slice(3 * task, 3 * task + 3) and got.only_missing and got.workers == 1
        assert got.matrix == str(tmp_path / "my matrix.toml")
        assert got.plugin == [str(tmp_path / "p q.py")]
        assert (got.results, got.data) == (str(tmp_path / "re;sults"), str(tmp_path / "da ta"))
        for name in ("methods", "datasets", "seeds", "conditions", "settings", "devices", "no_baselines"):
            assert getattr(got, name) == getattr(wanted, name), name


def test_an_empty_plan_is_an_error() -> None:
    with pytest.raises(ValueError, match="no cells"):
        script(parser().parse_args(["plan"]), cells=0, per_task=1, devices=1)


@pytest.mark.slow
def test_tasks_run_every_cell_once(polymodal: Call, matrix: Path, tmp_path: Path) -> None:
    made = polymodal("plan", matrix, "--format", "slurm-array", "--per-task", 3, "--output", "job.sh")
    assert made.returncode == 0, made.stderr
    last = re.search(r"^#SBATCH --array=0-(\d+)$", (tmp_path / "job.sh").read_text(), re.MULTILINE)
    assert last and int(last[1]) == 1, "four cells, three per task"
    seen: list[set[str]] = []
    for task in range(2):
        environment = {**ENVIRONMENT, "SLURM_ARRAY_TASK_ID": str(task)}
        done = subprocess.run(
            ["bash", "job.sh"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert f"{3 - 2 * task} cells: {3 - 2 * task} run, 0 cached, 0 failed" in done.stdout
        seen.append({record.cell.id for record in Store(tmp_path / "results").scan().records})
    plan = json.loads(polymodal("plan", matrix, "--json").stdout)
    order = [cell["cell"] for cell in plan["cells"]]
    assert seen == [set(order[:3]), set(order)]
    assert all(cell["done"] for cell in plan["cells"])
