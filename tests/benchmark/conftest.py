"""A quick matrix, a plugin file with methods that misbehave, and the command line in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from leaderboard.store import Store

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def numbers(folder: Path) -> dict[str, object]:
    """Everything of every record that is a result, not a timing."""
    found = {}
    for record in Store(folder).scan().records:
        assert record.status == "ok", record.error
        training = [{k: v for k, v in s.items() if k != "seconds"} for s in record.training]
        arrays = {k: v.tolist() for k, v in Store(folder).predictions(record.cell).items()}
        found[record.cell] = (record.conditions, record.summary, training, arrays)
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
