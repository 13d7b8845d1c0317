"""A plugin of methods that raise, wait, hang, die and fill the disk, for tests that do it for real.

They meet the test in the folder POLYMODAL_TEST_FOLDER.
"""

import os
import resource
import signal
import time
from pathlib import Path

import torch
from torch import Tensor

from datamodules.base import Batch
from methods import Method, Output, register

FOLDER = Path(os.environ.get("POLYMODAL_TEST_FOLDER", "."))


def allow_files_of(size: int) -> None:
    """What a full disk does to this process: a file ends in the middle."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


class Mean(Method):
    family = "test"

    def __init__(self, task, recipe) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return z.mean(dim=1)

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        allow_files_of(resource.RLIM_INFINITY)
        return {}


@register("steady")
class Steady(Mean):
    """Works, and says how many modalities it has seen."""

    def diagnose(self, out: Output, present: Tensor) -> dict[str, Tensor]:
        return {"modalities_seen": present.float().sum(dim=1)}


@register("raises")
class Raises(Mean):
    """Raises in training."""

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        raise RuntimeError("on purpose")


@register("not_finite")
class NotFinite(Mean):
    """Has a NaN loss from its third step on."""

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        return {"bad": out.z.sum() * (torch.nan if self.global_step >= 2 else 0.0)}


@register("takes_its_time")
class TakesItsTime(Mean):
    """Is slow."""

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        time.sleep(0.05)
        return {}


@register("dies")
class Dies(Mean):
    """Kills its process, as the kernel does when memory runs out."""

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        with (FOLDER / "deaths").open("a") as file:
            file.write(f"{os.getpid()}\n")
        os.kill(os.getpid(), signal.SIGKILL)
        return {}


@register("hangs")
class Hangs(Mean):
    """Never ends."""

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        while True:
            time.sleep(1)


@register("full_disk")
class FullDisk(Mean):
    """Has room for its predictions, but only for a part of its record."""

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        allow_files_of(5000)
        return {}


@register("waits")
class Waits(Mean):
    """Says that it has begun and goes on when the file `go` is there."""

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        (FOLDER / f"waiting-{os.getpid()}").touch()
        while not (FOLDER / "go").exists():
            time.sleep(0.02)
        return {}
