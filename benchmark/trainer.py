"""Fitting a method: its stages in order, each with one Lightning Trainer, tuned so that small models train fast.

What Lightning's defaults cost a small model is known (design.md, section 7): no logger, progress bar, summary or
checkpoint here, and the best epoch's weights are kept in memory.
"""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.fabric.utilities.apply_func import move_data_to_device
from torch import Tensor

from benchmark.seeds import derive, seed_all
from datamodules.base import Batches, DataModule
from methods.base import Encoded, Method, Stage
from methods.metrics import higher_is_better


@dataclass(frozen=True)
class TrainerOptions:
    """What a matrix may say about the Trainer; everything else is the protocol's."""

    accelerator: str = "auto"
    devices: int = 1
    strategy: str = "auto"
    precision: str = "32-true"


class BestEpoch(Callback):
    """Keep the best epoch's weights in preallocated tensors, stop when patience runs out, restore at the end."""

    def __init__(self, stage: Stage, patience: int) -> None:
        self.stage = stage
        self.patience = patience
        metric = stage.method.task.metric if stage.select == "metric" else "loss"
        self.monitor = f"val/{metric}"
        self.sign = 1 if stage.select == "metric" and higher_is_better(metric) else -1
        self.score = -math.inf
        self.epoch = -1
        self.history: list[dict[str, float]] = []
        self._best: dict[str, Tensor] = {}

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        score = self.sign * float(trainer.callback_metrics[self.monitor])
        if score > self.score:
            self.score, self.epoch = score, trainer.current_epoch
            self._keep(pl_module)
        elif self.stage.stop_early and trainer.current_epoch - self.epoch >= self.patience:
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.history.append({name: float(value) for name, value in trainer.callback_metrics.items()})

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.epoch < 0:
            raise FloatingPointError(
                f"{type(pl_module).__name__}: `{self.monitor}` was never a number in stage {self.stage.name!r}"
            )
        with torch.no_grad():
            for name, value in self._tensors(pl_module):
                value.copy_(self._best[name])

    def _keep(self, module: LightningModule) -> None:
        with torch.no_grad():
            for name, value in self._tensors(module):
                if name in self._best:
                    self._best[name].copy_(value)
                else:
                    self._best[name] = value.detach().clone()

    def _tensors(self, module: LightningModule) -> Iterator[tuple[str, Tensor]]:
        yield from ((name, p.data) for name, p in module.named_parameters() if p.requires_grad)
        yield from module.named_buffers()


@dataclass
class Encodings:
    """A re-iterable stream of a split, encoded and pooled by a frozen method."""

    method: Method
    batches: Batches
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __iter__(self) -> Iterator[Encoded]:
        self.method.to(self.device).train(False)
        with torch.no_grad():
            for batch in self.batches:
                batch = move_data_to_device(batch, self.device)
                out = self.method(batch.inputs, batch.present)
                yield Encoded(out.z, batch.present, batch.target)


def fit(
    method: Method,
    datamodule: DataModule,
    *,
    seed: int = 0,
    options: TrainerOptions | None = None,
    callbacks: tuple[Callback, ...] = (),
) -> tuple[dict[str, Any], ...]:
    """Fit a method stage by stage.

    Every stage reseeds from (dataset, seed, stage index): a wrapper's first stage is bit-equal to its base's own
    cell, and all methods see the rows in the same order.

    Returns:
        One report per stage: name, epochs, steps, seconds, best epoch and score, history.
    """
    options = options or TrainerOptions()
    datamodule.batch_size = method.recipe.batch_size
    reports = []
    for index, stage in enumerate(method.stages()):
        identity = (datamodule.task.name, seed, index)
        seed_all(*identity, "stage")
        datamodule.seed = derive(*identity, "order")
        stage.method.augment_seed = derive(*identity, "augment") >> 16
        started = time.perf_counter()
        with stage.method.in_stage(stage):
            report = (
                _solve(stage, datamodule, options) if stage.solve else _train(stage, datamodule, options, callbacks)
            )
        reports.append({"name": stage.name, "seconds": time.perf_counter() - started, **report})
    return tuple(reports)


def make_trainer(options: TrainerOptions, **arguments: Any) -> Trainer:
    """A Trainer without what a benchmark does not need."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    return Trainer(
        accelerator=options.accelerator,
        devices=options.devices,
        strategy=options.strategy,
        precision=options.precision,  # pyright: ignore[reportArgumentType] - Lightning checks it
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,  # ours shares the global batch; Lightning's shuffles even when told not to
        **arguments,
    )


def root_device(options: TrainerOptions) -> torch.device:
    """The device this process trains on."""
    return make_trainer(options).strategy.root_device


def _train(
    stage: Stage, datamodule: DataModule, options: TrainerOptions, callbacks: tuple[Callback, ...]
) -> dict[str, Any]:
    recipe = stage.method.recipe
    best = BestEpoch(stage, recipe.patience)
    trainer = make_trainer(options, max_epochs=recipe.epochs, callbacks=[best, *callbacks])
    trainer.fit(stage.method, datamodule.train_dataloader(), datamodule.val_dataloader())
    return {
        "epochs": trainer.current_epoch,
        "steps": trainer.global_step,
        "best_epoch": best.epoch,
        "best_score": best.sign * best.score,
        "monitor": best.monitor,
        "history": best.history,
    }


def _solve(stage: Stage, datamodule: DataModule, options: TrainerOptions) -> dict[str, Any]:
    assert stage.solve is not None
    stream = Encodings(stage.method, datamodule.ordered("train"), root_device(options))
    with torch.no_grad():
        stage.solve(stream)
    return {"epochs": 0, "steps": 0}
