"""What all executors share: cells are fed to workers that may hang, die or find the disk full, and no other cell minds.

An executor provides a `Backend`: it starts workers and passes on what they say. Everything that decides about cells
(who runs next, who is tried again, what is recorded as failed) is here, once.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from leaderboard.record import Cell, Record
from leaderboard.store import Store

_POLL = 0.5  # seconds between looks at clocks and signals


@dataclass(frozen=True)
class Settings:
    """How cells are run.

    Attributes:
        workers: Processes; 0 runs in this process, for a debugger. None: as many as the devices can take.
        per_gpu: Small cells that share one GPU.
        logger: A logger of `benchmark.loggers`, for who wants to watch.
        timeout: Seconds after which a cell is taken for hung and recorded as failed. None: never.
        tries: How often a cell whose worker dies is run. None: once on this machine, where a death repeats itself,
            three times on a cluster, where nodes are lost.
        ray_address: The cluster to connect to; None starts one on this machine.
    """

    results: str
    plugins: tuple[str, ...] = ()
    workers: int | None = None
    per_gpu: int = 1
    checkpoint: bool = True
    logger: str | None = None
    timeout: float | None = None
    tries: int | None = None
    ray_address: str | None = None


class WorkerDied(RuntimeError):
    """A worker process ended in the middle of a cell: out of memory, a crash in native code, or a kill."""


class TimedOut(RuntimeError):
    """A cell took longer than `--cell-timeout`."""


class NotStored(RuntimeError):
    """A cell ended, but its files could not be written: the disk is full, or the folder went away."""


class ResultsLost(RuntimeError):
    """Nothing can be written to the results folder any more, so that running on would be for nothing."""


class Stop(threading.Event):
    """Set it to let the running cells end and start no more."""


class Message(NamedTuple):
    """What a worker says, or what is to be said of it.

    `ready` for a cell; `finished` its cell (text: the record); `unstored`: it ran, but could not be written; `lost`:
    the worker is no more; `refused`: it will not work here, nor will another.
    """

    kind: Literal["ready", "finished", "unstored", "lost", "refused"]
    text: str = ""


class Worker(ABC):
    """One worker, seen from the pool."""

    slot: int
    cell: Cell | None = None
    since: float = 0.0

    def take(self, cell: Cell) -> None:
        """Start a cell."""
        self.cell, self.since = cell, time.monotonic()
        self.send(cell)

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def send(self, cell: Cell) -> None: ...

    @abstractmethod
    def kill(self) -> None: ...

    def dismiss(self) -> None:
        """Let an idle worker go."""
        self.kill()


class Backend(ABC):
    """Where workers come from."""

    tries = 1
    false_starts = 1  # workers that die before their first cell, one after the other, until we give up

    @abstractmethod
    def places(self) -> int:
        """How many workers there is room for now."""

    @abstractmethod
    def hire(self, slot: int) -> Worker:
        """A worker, not yet started."""

    @abstractmethod
    def listen(self, workers: Sequence[Worker], seconds: float) -> list[tuple[Worker, Message]]:
        """Wait for the next messages."""

    def close(self) -> None:
        """Called at the end, however it comes."""
        return


class Pool:
    """Cells, and the workers that run them."""

    def __init__(self, cells: Sequence[Cell], settings: Settings, stop: Stop, backend: Backend) -> None:
        self.waiting = deque(cells)
        self.settings = settings
        self.stop = stop
        self.backend = backend
        self.store = Store(settings.results)
        self.limit = settings.tries or backend.tries
        self.tries: Counter[str] = Counter()
        self.workers: list[Worker] = []
        self.false_starts = 0
        self.lost: ResultsLost | None = None

    def run(self) -> Iterator[Record]:
        """Run all cells and yield their records as they come.

        Raises:
            ResultsLost: Once the running cells have ended, if the results folder cannot be written to.
        """
        try:
            while self._feeding() or any(worker.cell for worker in self.workers):
                self._hire()
                for worker, message in self.backend.listen(self.workers, _POLL):
                    yield from self._hear(worker, message)
                yield from self._cut_off()
            if self.lost:
                raise self.lost
        finally:
            for worker in self.workers:
                worker.kill()
            self.backend.close()

    def _feeding(self) -> bool:
        return bool(self.waiting) and not self.stop.is_set() and self.lost is None

    def _hire(self) -> None:
        if not self._feeding():
            return
        idle = sum(worker.cell is None for worker in self.workers)
        vacant = min(self.backend.places() - len(self.workers), len(self.waiting) - idle)
        taken = {worker.slot for worker in self.workers}
        free = (slot for slot in range(len(self.workers) + max(vacant, 0)) if slot not in taken)
        for slot in list(free)[: max(vacant, 0)]:
            worker = self.backend.hire(slot)
            self.workers.append(worker)  # before it starts: whatever interrupts us now, it will be ended
            worker.start()

    def _hear(self, worker: Worker, message: Message) -> Iterator[Record]:
        cell, worker.cell = worker.cell, None
        match message.kind:
            case "ready":
                self.false_starts = 0
            case "finished":
                yield Record.from_json(message.text)
            case "unstored" if cell is not None:
                yield from self._record_failure(cell, NotStored(message.text))
            case "refused":
                raise WorkerDied(f"worker {worker.slot} could not start: {message.text}")
            case "lost":
                self._remove(worker)
                yield from self._lost(worker, cell, message.text)
                return
        if self._feeding():
            worker.take(self.waiting.popleft())
        else:
            self.workers.remove(worker)
            worker.dismiss()

    def _lost(self, worker: Worker, cell: Cell | None, cause: str) -> Iterator[Record]:
        if cell is None:
            self.false_starts += 1
            if self.false_starts >= self.backend.false_starts:
                raise WorkerDied(f"worker {worker.slot} could not start ({cause}); its error may be above")
            return
        self.tries[cell.id] += 1
        if self.tries[cell.id] < self.limit:
            self.waiting.appendleft(cell)
            return
        times = f", {self.limit} times" if self.limit > 1 else ""
        yield from self._record_failure(cell, WorkerDied(f"the worker died in the middle of this cell{times}: {cause}"))

    def _cut_off(self) -> Iterator[Record]:
        """End the cells that hang."""
        if self.settings.timeout is None:
            return
        for worker in list(self.workers):
            cell = worker.cell
            if cell is not None and time.monotonic() - worker.since > self.settings.timeout:
                self._remove(worker)
                yield from self._record_failure(
                    cell, TimedOut(f"timed out after {self.settings.timeout:g} s (--cell-timeout)")
                )

    def _remove(self, worker: Worker) -> None:
        self.workers.remove(worker)
        worker.kill()

    def _record_failure(self, cell: Cell, error: RuntimeError) -> Iterator[Record]:
        """Record a cell that its worker could not record."""
        record = record_failure(cell, self.store, error)
        if isinstance(record, ResultsLost):
            self.lost = self.lost or record
        else:
            yield record


def record_failure(cell: Cell, store: Store, error: RuntimeError) -> Record | ResultsLost:
    """The record of a failure that the cell's own process could not write, or why it cannot be written here either."""
    from benchmark.runner import record_death

    try:
        return record_death(cell, store, error)
    except OSError as blocked:
        return ResultsLost(
            f"cannot write to the results folder {store.folder} any more: {blocked}. Nothing more was started; what "
            f"has no record runs again with the same command. Last cell: {cell.id}: {error}"
        )


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prepare_worker(settings: Settings, one_thread: bool) -> Store:
    """Import everything, once per worker, so that no cell's time counts it.

    Args:
        one_thread: On a CPU, as everywhere: sums of floats depend on the number of threads.
    """
    import torch

    import benchmark.runner  # noqa: F401 - what cells need
    from datamodules.registry import load_plugin

    if one_thread:
        torch.set_num_threads(1)
    for plugin in settings.plugins:
        load_plugin(plugin)
    return Store(settings.results)


def run_and_report(cell: Cell, store: Store, settings: Settings) -> Message:
    """Run a cell, in a worker, and say what came of it."""
    from benchmark.runner import run_cell
    from benchmark.trainer import own_signals

    try:
        with own_signals():
            record = run_cell(cell, store, checkpoint=settings.checkpoint, logger=settings.logger)
    except OSError as error:  # `run_cell` records what a method does: only the store is left to fail
        return Message("unstored", f"the cell ran, but its files could not be written: {error}")
    return Message("finished", record.to_json())
