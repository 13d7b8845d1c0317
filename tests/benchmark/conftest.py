"""Quick matrices, plugins with methods that misbehave, and the command line in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

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


PLUGIN = '''"""Methods that misbehave, for tests of the runner."""
import os
import signal
import time

import torch
from torch import Tensor

from methods import Method, register


class Mean(Method):
    family = "test"

    def __init__(self, task, recipe):
        super().__init__(task, recipe, fused_dim=recipe.width)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return z.mean(dim=1)


@register("well_behaved")
class WellBehaved(Mean):
    """Works."""


@register("raises")
class Raises(Mean):
    """Raises in training."""

    def auxiliary(self, out, batch):
        raise RuntimeError("on purpose")


@register("not_finite")
class NotFinite(Mean):
    """Has a NaN loss from its third step on."""

    def auxiliary(self, out, batch):
        return {"bad": out.z.sum() * (torch.nan if self.global_step >= 2 else 0.0)}


@register("crashes")
class Crashes(Mean):
    """Kills its process, as the kernel does when memory runs out."""

    def auxiliary(self, out, batch):
        os.kill(os.getpid(), signal.SIGKILL)


@register("slow_one")
class SlowOne(Mean):
    """Takes its time."""

    def auxiliary(self, out, batch):
        time.sleep(0.05)
        return {}
'''


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "misbehaving.py"
    path.write_text(PLUGIN)
    return path


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """Cells of about a second."""
    path = tmp_path / "small.toml"
    path.write_text(
        'seeds = 2\nconditions = ["gaussian_noise", "missing"]\nmethods = ["concat", "late"]\nbaselines = false\n'
        'datasets = [{ name = "interactions_xor", rows = 400 }]\n'
        "[recipe]\nwidth = 8\nepochs = 2\nbatch_size = 100\n"
    )
    return path


@pytest.fixture
def polymodal(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `polymodal ...` in an own process, in the test's folder."""

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "benchmark.cli", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT, check=False)

    return call


FAULTY = ROOT / "tests" / "benchmark" / "faulty_methods.py"
FAULTY_MATRIX = (
    'seeds = 1\nconditions = ["gaussian_noise", "missing"]\nmethods = ["steady"]\nbaselines = false\n'
    'datasets = [{ name = "interactions_xor", rows = 400 }]\n'
    "[recipe]\nwidth = 8\nepochs = 1\nbatch_size = 100\n"
)


def start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    """`polymodal run` on the faulty methods, in a process group of its own, as a scheduler starts it."""
    (folder / "matrix.toml").write_text(FAULTY_MATRIX)
    command = [
        sys.executable, "-m", "benchmark.cli", "run", "matrix.toml", "--plugin", str(FAULTY), "--quiet",
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
