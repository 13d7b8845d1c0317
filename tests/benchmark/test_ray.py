"""The Ray executor: the same records as on one machine, workers that die, cells that kill them, stopping."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmark.executors.ray import code_digest
from tests.benchmark.conftest import ENVIRONMENT, ROOT, numbers
from tests.benchmark.test_faults import by_method, start, until

Call = Callable[..., subprocess.CompletedProcess[str]]
TWO_DATASETS = (
    'seeds = 1\nconditions = ["gaussian_noise", "missing"]\nmethods = ["concat", "late", "low_rank"]\n'
    'baselines = false\ndatasets = [{ name = "interactions_xor", rows = 400 }, "digit_halves"]\n'
    "[recipe]\nwidth = 8\nepochs = 2\nbatch_size = 100\n"
)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts runs on a cluster of their own; with the group of the driver its cluster ends too."""
    started: list[subprocess.Popen[str]] = []

    def call(*arguments: object) -> subprocess.Popen[str]:
        started.append(start(tmp_path, "--executor", "ray", *arguments))
        return started[-1]

    yield call
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.slow
def test_the_same_records_as_the_local_executor(polymodal: Call, tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(TWO_DATASETS)
    for executor in ("local", "ray"):
        done = polymodal(
            "run", "two.toml", "--executor", executor, "--workers", 1, "--quiet", "--results", f"results_{executor}"
        )
        assert done.returncode == 0, done.stderr
        assert "6 cells: 6 run" in done.stdout
    found = numbers(tmp_path / "results_ray")
    assert len(found) == 6
    assert found == numbers(tmp_path / "results_local")


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_a_poisoned_cell_fails_after_its_tries(
    running: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = running("--methods", "waits,dies,steady", "--workers", 1, "--tries", 2)
    until(lambda: list(tmp_path.glob("waiting-*")), process)
    (victim,) = (int(path.name.partition("-")[2]) for path in tmp_path.glob("waiting-*"))
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(list(tmp_path.glob("waiting-*"))) == 2, process)
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=1500)
    assert process.returncode == 1, err
    assert "3 cells: 2 run, 0 cached, 1 failed, 0 left" in out
    records = by_method(tmp_path / "results")
    assert {name: r.status for name, r in records.items()} == {"waits": "ok", "dies": "failed", "steady": "ok"}
    assert records["dies"].error and "died in the middle of this cell, 2 times" in records["dies"].error["message"]
    assert len(set((tmp_path / "deaths").read_text().split())) == 2, "two tries, two processes"


@pytest.mark.slow
def test_a_hung_cell_is_ended_and_sigterm_cuts_off_the_other(
    running: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = running("--methods", "hangs,waits,steady", "--workers", 1, "--cell-timeout", 45, "--grace", 0.5)
    until(lambda: list(tmp_path.glob("waiting-*")), process)
    process.terminate()
    out, _ = process.communicate(timeout=900)
    assert process.returncode == 128 + signal.SIGTERM
    assert "3 cells: 0 run, 0 cached, 1 failed, 2 left" in out
    (record,) = by_method(tmp_path / "results").values()
    assert record.error and record.error["message"] == "timed out after 45 s (--cell-timeout)"
    workers = [path.name.partition("-")[2] for path in tmp_path.glob("waiting-*")]
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


@pytest.mark.parametrize(
    ("arguments", "hide", "message"),
    [
        ("", True, "pip install 'polymodal[ray]'"),
        ("--workers 0", False, "--workers 0 runs in this process, so not on a Ray cluster"),
    ],
)
def test_what_is_missing_is_said_first(tmp_path: Path, arguments: str, hide: bool, message: str) -> None:
    code = f"import sys; sys.modules.update({{'ray': None}} if {hide} else {{}}); from benchmark.cli import main; "
    code += f"sys.exit(main('run --executor ray {arguments}'.split()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_other_code_is_noticed(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text("x = 1\n")
    before = code_digest([str(plugin)])
    assert before == code_digest([str(plugin)]) != code_digest([])
    plugin.write_text("x = 2\n")
    assert code_digest([str(plugin)]) != before
    assert (ROOT / "benchmark" / "executors" / "ray.py").is_file()
