"""Small plans and matrices, and the command line in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmark.matrix import parse
from benchmark.plan import Plan, make_plan
from leaderboard.record import Record
from leaderboard.store import Store

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def numbers(folder: Path) -> dict[str, object]:
    """Everything of every record that is a result, not a timing."""
    found = {}
    for record in Store(folder).scan().records:
        assert record.status == "ok", record.error
        training = [msgspec.structs.replace(stage, seconds=0.0) for stage in record.training]
        arrays = {k: v.tolist() for k, v in Store(folder).predictions(record.cell.id).items()}
        found[record.cell.id] = (record.conditions, record.summary, training, arrays)
    return found


SMALL = {
    "datasets": [{"name": "interactions_xor", "rows": 200}],
    "methods": ["concat"],
    "conditions": "none",
    "baselines": False,
}


def planned(**change: Any) -> Plan:
    """The plan of one small cell, or of what is said instead."""
    return make_plan(parse({**SMALL, **change}, "test.toml"))


FAULTY = ROOT / "tests" / "benchmark" / "faulty_methods.py"


def write_matrix(path: Path, methods: Sequence[str], seeds: int, epochs: int) -> Path:
    """Cells of about a second."""
    path.write_text(
        f'seeds = {seeds}\nconditions = ["gaussian_noise", "missing"]\nmethods = {json.dumps(methods)}\n'
        'baselines = false\ndatasets = [{ name = "interactions_xor", rows = 400 }]\n'
        f"[recipe]\nwidth = 8\nepochs = {epochs}\nbatch_size = 100\n"
    )
    return path


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    return write_matrix(tmp_path / "small.toml", ["concat", "late"], seeds=2, epochs=2)


@pytest.fixture
def polymodal(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `polymodal ...` in an own process, in the test's folder."""

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "benchmark.cli", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT, check=False)

    return call


def start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    """`polymodal run` on the faulty methods, in a process group of its own, as a scheduler starts it."""
    matrix = write_matrix(folder / "matrix.toml", ["steady"], seeds=1, epochs=1)
    command = [
        sys.executable, "-m", "benchmark.cli", "run", str(matrix), "--plugin", str(FAULTY), "--quiet",
        "--no-checkpoints", *map(str, arguments),
    ]  # fmt: skip
    environment = {**ENVIRONMENT, "POLYMODAL_TEST_FOLDER": str(folder)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


def waiting(folder: Path) -> list[int]:
    """The processes in which the method `waits` has begun."""
    return [int(path.name.partition("-")[2]) for path in folder.glob("waiting-*")]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts runs in the test's folder; whatever happens, they and the cluster they start do not outlive the test."""
    started: list[subprocess.Popen[str]] = []

    def call(*arguments: object) -> subprocess.Popen[str]:
        started.append(start(tmp_path, *arguments))
        return started[-1]

    yield call
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until(condition: Callable[[], object], process: subprocess.Popen[str], seconds: float = 900) -> None:
    """Wait, as long as the run lives."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)


def by_method(folder: Path) -> dict[str, Record]:
    """The records of a folder that must hold nothing else, no half file in particular."""
    reading = Store(folder).scan()
    assert not reading.invalid
    assert not list(folder.glob(".*.tmp"))
    return {record.cell.method: record for record in reading.records}
