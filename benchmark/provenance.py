"""Where numbers come from: versions, revision and hardware. Facts of a record that do not identify its cell."""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from leaderboard.record import Cell

_PACKAGES = ("torch", "lightning", "torchmetrics", "torchvision", "numpy", "scipy", "scikit-learn", "polymodal")


def provenance(cell: Cell) -> dict[str, Any]:
    """Of a cell that has just ended."""
    devices = cell.trainer.get("devices", 1)
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "world_size": devices,
        "batch_size": {"global": cell.recipe["batch_size"], "per_device": cell.recipe["batch_size"] // devices},
        **_environment(),
    }


@lru_cache(maxsize=1)
def _environment() -> dict[str, Any]:
    """Versions, revision and hardware: once per process."""
    installed = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return {
        "versions": installed,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "threads": torch.get_num_threads(),
        **_revision(),
    }


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _revision() -> dict[str, Any]:
    def git(*words: str) -> str:
        options: Any = {"cwd": Path(__file__).parent, "capture_output": True, "text": True}
        return subprocess.run(["git", *words], check=True, timeout=10, **options).stdout.strip()

    try:
        return {"revision": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return {"revision": None, "dirty": None}
