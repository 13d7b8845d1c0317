"""Lightning's loggers, for who wants to watch a cell train. Off unless asked for with `--logger`.

A stage of a cell is one run of the logger, with its own folder, because every stage counts its epochs from zero.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.errors import UsageError

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

# What has to be installed; any one of them will do.
_PACKAGES: dict[str, tuple[str, ...]] = {
    "csv": (),
    "tensorboard": ("tensorboard", "tensorboardX"),
    "wandb": ("wandb",),
    "mlflow": ("mlflow", "mlflow_skinny"),
}
LOGGERS = tuple(_PACKAGES)


def check_logger(name: str | None) -> None:
    """Say before the first epoch that a logger is unknown or that its package is missing.

    Raises:
        UsageError: Naming the logger, and the package to install.
    """
    if name is None:
        return
    if name not in _PACKAGES:
        raise UsageError(f"no logger {name!r}. Known: {', '.join(LOGGERS)}")
    wanted = _PACKAGES[name]
    if wanted and not any(find_spec(package) for package in wanted):
        raise UsageError(f"--logger {name} needs the package `{wanted[0]}`, which is not installed: pip install it")


@dataclass(frozen=True)
class Log:
    """Where the curves of one cell go.

    Attributes:
        name: One of `LOGGERS`.
        folder: The cell's own.
        config: What the cell is, shown beside its curves.
    """

    name: str
    folder: Path
    config: dict[str, Any] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget the curves of an earlier try of this cell."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def of_stage(self, index: int, stage: str) -> Logger:
        """The Lightning logger of one stage."""
        from lightning.pytorch import loggers

        run = f"{index}-{stage}"
        folder = self.folder / run
        folder.mkdir(parents=True, exist_ok=True)
        title = f"{self.folder.name}/{run}"
        match self.name:
            case "csv":
                made = loggers.CSVLogger(self.folder, name="", version=run)
            case "tensorboard":
                made = loggers.TensorBoardLogger(self.folder, name="", version=run, default_hp_metric=False)
            case "wandb":
                made = loggers.WandbLogger(name=title, save_dir=folder, project="polymodal", group=self.folder.name)
            case "mlflow":
                made = loggers.MLFlowLogger("polymodal", run_name=title, save_dir=str(folder))
            case _:
                check_logger(self.name)
                raise AssertionError(self.name)
        made.log_hyperparams({**self.config, "stage": stage})
        return made
