"""Workers: the same bits as in one process, deaths that harm one cell only, kills that lose nothing."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.executors.local import _signal
from leaderboard.store import Store
from tests.benchmark.conftest import ENVIRONMENT, FAULTY, numbers

pytestmark = pytest.mark.slow
Call = Callable[..., subprocess.CompletedProcess[str]]


def test_bit_equal_with_one_and_two_workers_and_in_process(polymodal: Call, matrix: Path, tmp_path: Path) -> None:
    for workers in (0, 1, 2):
        done = polymodal("run", matrix, "--workers", workers, "--quiet", "--results", f"r{workers}")
        assert done.returncode == 0, done.stderr
    assert numbers(tmp_path / "r0") == numbers(tmp_path / "r1") == numbers(tmp_path / "r2")
    assert len(numbers(tmp_path / "r0")) == 4


def test_a_worker_that_dies_fails_its_cell_only(polymodal: Call, matrix: Path, tmp_path: Path) -> None:
    done = polymodal("run", matrix, "--plugin", FAULTY, "--methods", "dies,steady,concat", "--workers", 2, "--quiet")
    assert done.returncode == 1
    assert "6 cells: 4 run, 0 cached, 2 failed" in done.stdout
    failed = [r for r in Store(tmp_path / "results").scan().records if r.status == "failed"]
    assert {r.cell.method for r in failed} == {"dies"}
    assert all(r.error and "signal SIGKILL" in r.error.message for r in failed)


def test_two_runs_on_one_folder(polymodal: Call, matrix: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmark.cli", "run", str(matrix), "--workers", "1", "--quiet"]
    both = [subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT) for _ in range(2)]
    assert [p.wait(timeout=600) for p in both] == [0, 0]
    assert polymodal("validate").returncode == 0
    polymodal("run", matrix, "--workers", 0, "--quiet", "--results", "alone")
    assert numbers(tmp_path / "results") == numbers(tmp_path / "alone")


def test_ctrl_c_lets_running_cells_end(matrix: Path, tmp_path: Path, polymodal: Call) -> None:
    command = [
        sys.executable, "-m", "benchmark.cli", "run", str(matrix), "--plugin", str(FAULTY), "--methods",
        "takes_its_time", "--seeds", "6", "--workers", "1", "--quiet", "--set", "recipe.epochs=20",
        "--set", "recipe.patience=20",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    _wait_for(lambda: list((tmp_path / "results").glob("*.json")), 300)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    done = Store(tmp_path / "results").scan()
    assert 1 <= len(done.records) < 6 and not done.invalid
    assert all(r.status == "ok" for r in done.records)
    assert f"{6 - len(done.records)} left" in output


def test_ten_kills_lose_nothing(polymodal: Call, matrix: Path, tmp_path: Path) -> None:
    """SIGKILL for the runner or a worker at ten random moments.

    Then the same command gives an undisturbed run's records.
    """
    arguments = ["--seeds", "4", "--workers", "2", "--quiet"]
    polymodal("run", matrix, *arguments, "--results", "undisturbed")
    command = [sys.executable, "-m", "benchmark.cli", "run", str(matrix), *arguments, "--results", "disturbed"]
    moments = random.Random(7)
    for i in range(10):
        process = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        started = time.monotonic()
        delay = moments.uniform(0.5, 14)
        while time.monotonic() - started < delay and process.poll() is None:
            time.sleep(0.05)
        if i % 2:
            children = _children(process.pid)
            for child in moments.sample(children, min(1, len(children))):
                _kill(child)
            time.sleep(moments.uniform(0, 1))
        _kill(process.pid)
        process.wait(timeout=60)
        assert _wait_for(lambda pid=process.pid: not _children(pid), 30), "workers must die with their parent"
        if i == 4:  # begin anew half-way, so that later kills meet unfinished cells too
            for path in (tmp_path / "disturbed").glob("late-*.json"):
                path.unlink()
    final = polymodal("run", matrix, *arguments, "--results", "disturbed")
    assert final.returncode == 0, final.stderr
    assert polymodal("validate", "disturbed").returncode == 0
    assert numbers(tmp_path / "disturbed") == numbers(tmp_path / "undisturbed")
    assert len(numbers(tmp_path / "undisturbed")) == 8


def _children(pid: int) -> list[int]:
    """Worker processes started by `pid`, while it lives or after."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            if b"spawn_main" in command and (parent == pid or f"parent_pid={pid}".encode() in command):
                found.append(int(entry.name))
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _wait_for(condition: Callable[[], object], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


def test_a_real_time_signal_has_a_number() -> None:
    assert _signal(signal.SIGKILL) == "SIGKILL" and _signal(40) == "40"
