"""Fitting a method: its stages in order, each with one Lightning Trainer, tuned so that small models train fast.

What Lightning's defaults cost a small model is known, 3.4 times a bare loop: no logger, progress bar, summary or
checkpoint here, and the best epoch's weights are kept in memory.
"""

from __future__ import annotations

import logging
import math
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.fabric.utilities.apply_func import move_data_to_device
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.connectors.signal_connector import _SignalConnector
from torch import Tensor

from benchmark.loggers import Log
from benchmark.precision import Precision
from benchmark.seeds import derive, random_state, restore_random_state, seed_all
from datamodules.base import Batches, DataModule
from datamodules.options import Count, check_fields
from datamodules.spec import Batch
from leaderboard.record import Fitted
from methods.base import Encoded, Method, Stage
from methods.metrics import higher_is_better
from methods.parts.distributed import from_rank_zero, world
from methods.stage import share_epochs

# Lightning's import makes torch ask NVIDIA's library whether there is a GPU, and AdamW asks in every step: where there
# is none, the search for the library takes a twentieth of a small step.
if not torch.cuda.is_available():
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "0"

FEW_ROWS = 1000  # of validation, below which epochs are chosen by the task's loss
STEPS_AN_EPOCH = 8  # at least: a batch of most rows would make an epoch one step
SMALLEST_BATCH = 4

# What a method or a callback may do in every step of Lightning's; who does is trained one step at a time.
STEP_HOOKS = (
    "on_train_batch_start",
    "on_before_batch_transfer",
    "transfer_batch_to_device",
    "on_after_batch_transfer",
    "on_before_zero_grad",
    "optimizer_zero_grad",
    "on_before_backward",
    "backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "configure_gradient_clipping",
    "optimizer_step",
    "on_train_batch_end",
    "on_validation_batch_start",
    "on_validation_batch_end",
)


@dataclass(frozen=True)
class TrainerOptions:
    """What a matrix may say about the Trainer; everything else is the protocol's.

    Attributes:
        accelerator: "auto" (CUDA, then MPS, then the CPU), "cpu", "cuda" or "mps".
        devices: Of one cell, which share its batch; more than one train by DDP.
        strategy: Both mean DDP on several devices, which is the one strategy with the numbers of one device.
        precision: Tried in a child process before a cell may use it.
    """

    accelerator: Literal["auto", "cpu", "cuda", "gpu", "mps"] = "auto"
    devices: Count = 1
    strategy: Literal["auto", "ddp"] = "auto"
    precision: Precision = "32-true"

    def __post_init__(self) -> None:
        check_fields("trainer", self)

    @property
    def device(self) -> str:
        """The kind of device meant: "cuda", "mps" or "cpu"."""
        if self.accelerator not in ("auto", "gpu"):
            return self.accelerator
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if self.accelerator == "gpu" or torch.backends.mps.is_available() else "cpu"

    def fitting(self, batch_size: int, rows: int) -> int:
        """Rows of a batch that leaves an epoch of `rows` rows eight steps; a power of two if it had to be cut."""
        if rows >= batch_size * STEPS_AN_EPOCH:
            return batch_size
        fits = 1 << max(0, (rows // STEPS_AN_EPOCH).bit_length() - 1)
        fits = min(batch_size, max(fits, SMALLEST_BATCH))
        return max(1, fits // self.devices) * self.devices

    def share(self, batch_size: int) -> int:
        """Rows per device of a global batch, which does not depend on the number of devices.

        Raises:
            ValueError: If the devices cannot have equally many.
        """
        if batch_size % self.devices:
            raise ValueError(
                f"recipe: a batch of {batch_size} rows cannot be shared evenly by {self.devices} devices: "
                f"use a `batch_size` divisible by {self.devices}"
            )
        return batch_size // self.devices


class BestEpoch(Callback):
    """Keep the best epoch's weights in preallocated tensors, stop when patience runs out, restore at the end.

    Args:
        rows: Of the validation split. An accuracy of few rows has many equals and a standard error of a percent: the
            task's loss of the same rows tells epochs apart.
    """

    def __init__(self, stage: Stage, rows: int) -> None:
        self.stage = stage
        recipe, task = stage.method.recipe, stage.method.task
        self.patience = recipe.patience
        # Of the recipe's epochs, not the stage's: the first stage of a wrapper is the beginning of its base's own cell.
        self.earliest = math.ceil(recipe.epochs / 10)
        self.metric = f"val/{task.metric}"
        by_loss = rows < FEW_ROWS and task.goal.labelled and not task.goal.ranked
        self.monitor = {"loss": "val/loss", "last": self.metric}.get(
            stage.select, "val/task_loss" if by_loss else self.metric
        )
        self.sign = 1 if self.monitor == self.metric and higher_is_better(task.metric) else -1
        self.score = -math.inf
        self.metric_score: float | None = None  # of the same epoch
        self.epoch = -1
        self.history: list[dict[str, float]] = []
        self._best: dict[str, Tensor] = {}
        self._random: tuple[Tensor, ...] = ()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        from_rank_zero(pl_module.buffers())  # running statistics of a plugin may differ: all ranks score one model
        # Losses that draw noise draw it here too, on some ranks more often than on others.
        self._random = random_state(pl_module.device)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        score = self.sign * float(trainer.callback_metrics[self.monitor])
        if trainer.world_size > 1:  # ranks that disagreed in the last bit would part for ever
            score = trainer.strategy.broadcast(score)
        if score > self.score or self.stage.select == "last":
            self.score, self.epoch = score, trainer.current_epoch
            self.metric_score = float(trainer.callback_metrics[self.metric])
            self._keep(pl_module)
        elif self.stage.stop_early and trainer.current_epoch - self.epoch >= self.patience:
            trainer.should_stop = trainer.current_epoch + 1 >= self.earliest
        restore_random_state(pl_module.device, self._random)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.history.append({**logged, **self.stage.method.progress()})

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


@dataclass(frozen=True)
class Chunks:
    """The batches of a loader, several at a time: one call by Lightning makes as many steps.

    A chunk is read as it is trained on, so that memory is that of one batch.
    """

    batches: Batches
    size: int = 32

    def __len__(self) -> int:
        return math.ceil(len(self.batches) / self.size)

    def __iter__(self) -> Iterator[Iterator[Batch]]:
        batches = iter(self.batches)
        for _ in range(len(self)):
            yield islice(batches, self.size)


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
                yield Encoded(out.z, batch.present, batch.target, batch.row)


def fit(
    method: Method,
    datamodule: DataModule,
    *,
    seed: int = 0,
    options: TrainerOptions | None = None,
    callbacks: tuple[Callback, ...] = (),
    log: Log | None = None,
) -> tuple[Fitted, ...]:
    """Fit a method stage by stage.

    Every stage reseeds from (dataset, seed, stage index): a wrapper's first stage is bit-equal to the first epochs of
    its base's own cell, and all methods see the rows in the same order. The recipe's epochs are shared by the stages.

    Returns:
        One report per stage.
    """
    options = options or TrainerOptions()
    if options.precision == "64-true":
        method.double()  # all of it: Lightning converts what a stage trains, and a wrapper trains its base first
    asked, rows = method.recipe.batch_size, len(datamodule.splits["train"].target)
    datamodule.batch_size = asked if method.batch_statistic else options.fitting(asked, rows)
    reports = []
    stages = method.stages()
    for index, (stage, epochs) in enumerate(zip(stages, share_epochs(stages, method.recipe.epochs), strict=True)):
        identity = (datamodule.task.name, seed, index)
        seed_all(*identity, "stage")
        datamodule.seed = derive(*identity, "order")
        stage.method.augment_seed = derive(*identity, "augment") >> 16
        started = time.perf_counter()
        with stage.method.in_stage(stage):
            if stage.solve:
                report = _solve(stage, datamodule, options)
            else:
                logger = log.of_stage(index, stage.name) if log else False
                report = _train(stage, epochs, datamodule, options, callbacks, logger)
        reports.append(Fitted(stage.name, time.perf_counter() - started, **report))
    return tuple(reports)


def make_trainer(options: TrainerOptions, logger: Logger | Literal[False] = False, **arguments: Any) -> Trainer:
    """A Trainer without what a benchmark does not need."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    many = options.devices > 1
    if many and world()[1] != options.devices:
        raise RuntimeError(
            f"trainer: {options.devices} devices need as many processes, and this is one of {world()[1]}: run a cell "
            "(benchmark.runner.run_cell), which starts them"
        )
    # Lightning's `devices = 1` is the first GPU; ours is the one this worker has been given.
    devices = [torch.cuda.current_device()] if options.device == "cuda" and not many else options.devices
    return Trainer(
        accelerator=options.device,
        devices=devices,
        # Which parameters a stage leaves alone is its own business, and buffers are kept equal by the statistics.
        strategy=DDPStrategy(find_unused_parameters=True, broadcast_buffers=False) if many else "auto",
        plugins=[LightningEnvironment()],  # within a Slurm job Lightning would take its tasks for our ranks
        sync_batchnorm=many and options.device == "cuda",
        precision=options.precision,  # pyright: ignore[reportArgumentType] - checked by the options
        logger=logger,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,  # ours shares the global batch; Lightning's shuffles even when told not to
        **arguments,
    )


@contextmanager
def own_signals() -> Iterator[None]:
    """Keep Lightning from taking SIGTERM for itself: it would end the process in the middle of the cell."""
    theirs = _SignalConnector.register_signal_handlers
    _SignalConnector.register_signal_handlers = lambda self: None
    try:
        yield
    finally:
        _SignalConnector.register_signal_handlers = theirs


def root_device(options: TrainerOptions) -> torch.device:
    """The device this process works on."""
    if options.device != "cuda":
        return torch.device(options.device)
    rank, ranks = world()
    return torch.device("cuda", rank if ranks > 1 else torch.cuda.current_device())


def _train(
    stage: Stage,
    epochs: int,
    datamodule: DataModule,
    options: TrainerOptions,
    callbacks: tuple[Callback, ...],
    logger: Logger | Literal[False],
) -> dict[str, Any]:
    best = BestEpoch(stage, len(datamodule.splits["val"].target))
    trainer = make_trainer(options, max_epochs=epochs, callbacks=[best, *callbacks], logger=logger)
    train, val = datamodule.train_dataloader(), datamodule.val_dataloader()
    # Autocast keeps the weights it has cast until the call ends: mixed precision must have one step a call.
    one_by_one = options.devices > 1 or options.precision != "32-true" or _watches_steps(stage.method, callbacks)
    stage.method.automatic_optimization = one_by_one
    try:
        trainer.fit(stage.method, *((train, val) if one_by_one else (Chunks(train), Chunks(val))))
        steps = trainer.global_step  # of whom Lightning asks depends on who optimises
    finally:
        stage.method.automatic_optimization = True
    return {
        "epochs": trainer.current_epoch,
        "steps": steps,
        "best_epoch": best.epoch,
        "history": tuple(best.history),
        "cap": epochs,
        "batch_size": datamodule.batch_size,
        "score": best.metric_score,
        **({} if stage.select == "last" else {"best_score": best.sign * best.score, "monitor": best.monitor}),
    }


def _watches_steps(method: Method, callbacks: tuple[Callback, ...]) -> bool:
    """Whether the method or a callback has a hook that Lightning calls in every step."""
    return any(
        hasattr(kind, hook) and getattr(type(one), hook) is not getattr(kind, hook)
        for kind, ones in ((LightningModule, (method,)), (Callback, callbacks))
        for one in ones
        for hook in STEP_HOOKS
    )


def _solve(stage: Stage, datamodule: DataModule, options: TrainerOptions) -> dict[str, Any]:
    assert stage.solve is not None
    # The whole split on every rank: what is solved does not depend on their number, whatever the method does with it.
    stream = Encodings(stage.method, datamodule.ordered("train"), root_device(options))
    with torch.no_grad():
        stage.solve(stream)
        from_rank_zero([*stage.method.parameters(), *stage.method.buffers()])
    return {}
