"""What goes wrong on real machines, done for real: the matrix ends, and every other cell is valid."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from leaderboard.record import Record
from tests.benchmark.conftest import ENVIRONMENT, by_method, start, until, waiting


@pytest.fixture(scope="module")
def disaster(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], dict[str, Record]]:
    """One run in which a worker is killed, a cell hangs and the disk is full, while other cells run."""
    folder = tmp_path_factory.mktemp("disaster")
    methods = "hangs,dies,full_disk,steady,concat"
    process = start(folder, "--methods", methods, "--workers", 2, "--cell-timeout", 45)
    try:
        out, err = process.communicate(timeout=1500)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess([], process.returncode, out, err), by_method(folder / "results")


@pytest.mark.slow
def test_a_killed_worker_fails_its_cell(disaster: tuple[object, dict[str, Record]]) -> None:
    failed = disaster[1]["dies"]
    assert failed.status == "failed" and failed.error and failed.error.type == "WorkerDied"
    assert failed.error.message == "the worker died in the middle of this cell: signal SIGKILL"


@pytest.mark.slow
def test_a_cell_that_hangs_is_ended(disaster: tuple[object, dict[str, Record]]) -> None:
    failed = disaster[1]["hangs"]
    assert failed.status == "failed" and failed.error
    assert failed.error.message == "timed out after 45 s (--cell-timeout)"


@pytest.mark.slow
def test_a_full_disk_in_the_middle_of_a_record(disaster: tuple[object, dict[str, Record]]) -> None:
    failed = disaster[1]["full_disk"]
    assert failed.status == "failed" and failed.error and failed.error.type == "NotStored"
    assert "File too large" in failed.error.message


@pytest.mark.slow
def test_every_other_cell_is_valid(
    disaster: tuple[subprocess.CompletedProcess[str], dict[str, Record]],
) -> None:
    run, records = disaster
    assert run.returncode == 1
    assert "5 cells: 2 run, 0 cached, 3 failed, 0 left" in run.stdout
    assert {name for name, record in records.items() if record.status == "ok"} == {"steady", "concat"}
    assert run.stderr.count("failed: ") == 3 and "Traceback" not in run.stderr


@pytest.mark.slow
def test_a_scheduler_stops_us_and_the_running_cell_ends(
    running: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = running("--methods", "waits,steady", "--workers", 1, "--grace", 900)
    until(lambda: waiting(tmp_path), process)
    os.killpg(process.pid, signal.SIGTERM)  # all processes of the job get it
    assert "stopping" in _line(process)
    (tmp_path / "go").touch()
    out, _ = process.communicate(timeout=900)
    assert process.returncode == 128 + signal.SIGTERM
    assert "2 cells: 1 run, 0 cached, 0 failed, 1 left" in out
    assert {name: r.status for name, r in by_method(tmp_path / "results").items()} == {"waits": "ok"}


@pytest.mark.slow
def test_when_the_grace_time_is_over_cells_are_cut_off_without_a_record(
    running: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = running("--methods", "waits,steady", "--workers", 1, "--grace", 0.5)
    until(lambda: waiting(tmp_path), process)
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=900)
    assert process.returncode == 128 + signal.SIGTERM
    assert "2 cells: 0 run, 0 cached, 0 failed, 2 left" in out and "cut off" in err
    assert not by_method(tmp_path / "results")
    (worker,) = waiting(tmp_path)
    assert not Path(f"/proc/{worker}").exists()


@pytest.mark.slow
def test_results_folder_vanishes_and_cells_that_can_be_written_are(
    running: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = running("--methods", "concat,waits,steady", "--workers", 1)
    until(lambda: waiting(tmp_path), process)
    assert set(by_method(tmp_path / "results")) == {"concat"}
    shutil.rmtree(tmp_path / "results")
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=900)
    assert process.returncode == 1
    records = by_method(tmp_path / "results")
    assert {name: r.status for name, r in records.items()} == {"waits": "failed", "steady": "ok"}
    assert records["waits"].error and "No such file or directory" in records["waits"].error.message
    assert "1 records of this run are no longer in results" in err and "Traceback" not in err
    assert "3 cells: 2 run, 0 cached, 1 failed, 0 left" in out


@pytest.mark.slow
def test_results_folder_cannot_be_written_any_more(
    running: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """As when a file system is unmounted: one clear error, and no cell is run for nothing."""
    process = running("--methods", "waits,steady", "--seeds", 3, "--workers", 1)
    until(lambda: waiting(tmp_path), process)
    shutil.rmtree(tmp_path / "results")
    (tmp_path / "results").write_text("in the way")
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=900)
    assert process.returncode == 1
    assert "cannot write to the results folder results any more: " in err and "Traceback" not in err
    assert "6 cells: 0 run, 0 cached, 0 failed, 6 left" in out
    assert (tmp_path / "results").read_text() == "in the way"


@pytest.mark.slow
def test_two_runners_share_the_cells_of_one_folder(
    running: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """The second waits for the cell the first is in; the first is killed; the second runs it."""
    first = running("--methods", "waits", "--workers", 1, "--json")
    until(lambda: waiting(tmp_path), first)
    second = running("--methods", "waits,steady", "--workers", 2, "--json")
    until(lambda: list((tmp_path / "results").glob("steady-*.json")), second)
    assert len(waiting(tmp_path)) == 1, "one cell, two processes in it"
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: len(waiting(tmp_path)) == 2, second)
    (tmp_path / "go").touch()
    out, _ = second.communicate(timeout=900)
    assert second.returncode == 0
    assert {json.loads(line)["status"] for line in out.splitlines()} == {"ok"}
    assert {name: r.status for name, r in by_method(tmp_path / "results").items()} == {"waits": "ok", "steady": "ok"}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import math\n\nmath.sqrt(-1)\n", "ValueError: math domain error ({path}, line 3)"),
        ("x = 1\ny = (\n", "SyntaxError: '(' was never closed"),
        ("raise SystemError('no')\n", "SystemError: no ({path}, line 1)"),
    ],
)
def test_a_plugin_that_raises_is_one_message_before_anything_runs(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "broken.py").write_text(code)
    command = [sys.executable, "-m", "benchmark.cli", "run", "--plugin", "broken.py", "--quiet"]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message.format(path=tmp_path / "broken.py") in done.stderr and f"{tmp_path / 'broken.py'}" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def _line(process: subprocess.Popen[str]) -> str:
    """The next line on standard error that says something."""
    assert process.stderr is not None
    while not (line := process.stderr.readline()).strip():
        assert line, "the run ended without a word"
    return line


@pytest.mark.slow
def test_a_worker_killed_while_it_imports_costs_no_cell(
    running: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = running("--methods", "steady,concat", "--workers", 1)
    until(lambda: children(process.pid), process)
    os.kill(children(process.pid)[0], 40)  # a signal without a name
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    assert "2 cells: 2 run, 0 cached, 0 failed, 0 left" in out and "Traceback" not in err


@pytest.mark.slow
def test_a_lost_terminal_ends_workers_and_runner(running: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    process = running("--methods", "waits,steady", "--workers", 1, "--grace", 0.5)
    until(lambda: waiting(tmp_path), process)
    os.killpg(process.pid, signal.SIGHUP)
    out, err = process.communicate(timeout=900)
    assert process.returncode == 128 + signal.SIGHUP
    assert "2 cells: 0 run, 0 cached, 0 failed, 2 left" in out and "Traceback" not in err
    (worker,) = waiting(tmp_path)
    assert not Path(f"/proc/{worker}").exists()


@pytest.mark.slow
def test_a_second_run_takes_other_cells_and_keeps_its_timeout(
    running: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """The first one's worker is stopped in the middle of a cell; the second runs all others."""
    first = running("--methods", "waits", "--workers", 1, "--json")
    until(lambda: waiting(tmp_path), first)
    (worker,) = waiting(tmp_path)
    os.kill(worker, signal.SIGSTOP)
    second = running("--methods", "waits,steady,concat", "--seeds", 2, "--workers", 1, "--cell-timeout", 60)
    until(lambda: len(waiting(tmp_path)) == 2, second)  # the other seed of `waits`
    (tmp_path / "go").touch()
    until(lambda: len(list((tmp_path / "results").glob("*.json"))) == 5, second)
    os.kill(worker, signal.SIGCONT)
    out, err = second.communicate(timeout=900)
    assert second.returncode == 0 and first.wait(timeout=900) == 0, err
    assert "6 cells: 6 run, 0 cached, 0 failed, 0 left" in out
    assert all(record.status == "ok" for record in by_method(tmp_path / "results").values())


@pytest.mark.slow
def test_too_little_address_space_is_said_in_a_sentence(tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (700 * 2**20, resource.RLIM_INFINITY))

    command = [sys.executable, "-m", "benchmark.cli", "plan", "quick"]
    done = subprocess.run(
        command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False, preexec_fn=limited
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "address space" in done.stderr.splitlines()[-1]


def children(pid: int) -> list[int]:
    """The worker processes of a runner."""
    try:
        started = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in started if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
    except OSError:
        return []
