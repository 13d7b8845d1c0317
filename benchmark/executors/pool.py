"""What all executors share: cells are fed to workers that may hang, die or find the disk full, and no other cell minds.

An executor provides a `Backend`: it starts workers and passes on what they say. Everything that decides about cells
(who runs next, who is tried again, what is recorded as failed) is here, once.
"""

from __future__ import annotations

import math
import os
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from benchmark import start
from leaderboard.record import Cell, Record
from leaderboard.store import Locked, Store

_POLL = 0.5  # seconds between looks at clocks and signals
_FAREWELL = 5.0  # seconds in which a worker that was killed elsewhere (Ray's are) lets go of its cell
_RETURN = 2.0  # seconds until we look again at a cell that another run is in
_PATIENCE = 60.0  # seconds of waiting for others after which we say so


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

    `ready` for a cell; `finished` its cell (text: the record); `unstored`: it ran, but could not be written; `locked`:
    another run is in this cell (text: who); `lost`: the worker is no more; `refused`: it will not work here, nor will
    another.
    """

    kind: Literal["ready", "finished", "unstored", "locked", "lost", "refused"]
    text: str = ""


class Worker(ABC):
    """One worker, seen from the pool."""

    slot: int
    cell: Cell | None = None
    since: float = 0.0
    ready = False

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
    false_starts = 5  # workers that die before their first cell, one after the other, until we give up

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
        self.others = Others()
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
                self._feed()
                if not any(worker.cell for worker in self.workers):
                    self.others.say_whom()
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
        free = len(self.waiting) - self.others.inside(self.waiting)
        vacant = min(self.backend.places() - len(self.workers), max(free, not self.workers) - idle)
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
                worker.ready, self.false_starts = True, 0
            case "finished":
                self._give(worker)  # first: it need not wait until the record is read and shown
                yield Record.from_json(message.text)
            case "locked" if cell is not None:
                self.others.keep(cell, message.text)
                self.waiting.append(cell)
            case "unstored" if cell is not None:
                yield from self._record_failure(cell, NotStored(message.text))
            case "refused":
                raise WorkerDied(f"worker {worker.slot} could not start: {message.text}")
            case "lost":
                self._remove(worker)
                yield from self._lost(worker, cell, message.text)

    def _feed(self) -> None:
        """A cell for every idle worker; those that another run is in come later, and workers without any leave."""
        for worker in [w for w in self.workers if w.ready and w.cell is None]:
            if self._feeding():
                self._give(worker)
            else:
                self.workers.remove(worker)
                worker.dismiss()

    def _give(self, worker: Worker) -> None:
        if self._feeding() and (cell := self.others.next(self.waiting)) is not None:
            worker.take(cell)

    def _lost(self, worker: Worker, cell: Cell | None, cause: str) -> Iterator[Record]:
        if cell is None and worker.ready:  # it died idle: nothing is lost but the worker
            return
        if cell is None:
            self.false_starts += 1
            if self.false_starts >= self.backend.false_starts:
                times = f", {self.false_starts} times in a row" if self.false_starts > 1 else ""
                raise WorkerDied(f"worker {worker.slot} could not start ({cause}{times}); its error may be above")
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
        ends = time.monotonic() + _FAREWELL
        while True:
            try:
                record = record_failure(cell, self.store, error)
                break
            except Locked as other:
                if time.monotonic() > ends:  # another run is in it already: what comes of it is the cell's record
                    self.others.keep(cell, str(other))
                    self.waiting.append(cell)
                    return
                time.sleep(_POLL / 5)
        if isinstance(record, ResultsLost):
            self.lost = self.lost or record
        else:
            yield record


class Others:
    """The cells that other runs on the same folder are in: left to them, and looked at again later."""

    def __init__(self) -> None:
        self.seen: dict[str, tuple[float, str]] = {}  # cell -> when to look again, and who is in it
        self.since: float | None = None

    def keep(self, cell: Cell, who: str) -> None:
        """Remember that another run is in a cell."""
        self.seen[cell.id] = (time.monotonic() + _RETURN, who)
        self.since = self.since or time.monotonic()

    def inside(self, waiting: Iterable[Cell]) -> int:
        """In how many of the waiting cells others are, as far as we know."""
        return sum(self._later(cell) for cell in waiting)

    def next(self, waiting: deque[Cell]) -> Cell | None:
        """The first waiting cell that may be free, taken out of the queue."""
        for cell in waiting:
            if not self._later(cell):
                waiting.remove(cell)
                self.seen.pop(cell.id, None)
                return cell
        return None

    def say_whom(self) -> None:
        """Called while nothing runs here: after a minute, say for whom we wait."""
        if self.since is not None and time.monotonic() - self.since > _PATIENCE and self.seen:
            self.since = math.inf
            cell, (_, who) = next(iter(self.seen.items()))
            more = f" and {len(self.seen) - 1} more" if len(self.seen) > 1 else ""
            warnings.warn(f"still waiting for {who}, which is in cell {cell}{more}", stacklevel=2)

    def _later(self, cell: Cell) -> bool:
        return cell.id in self.seen and time.monotonic() < self.seen[cell.id][0]


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
    with start.importing():
        import torch

        import benchmark.runner  # noqa: F401 - what cells need
        from benchmark.identity import as_imported
        from datamodules.registry import datasets, load_plugin
        from methods.registry import methods

        for plugin in settings.plugins:
            load_plugin(plugin)
        as_imported(*methods.classes().values(), *datasets.classes().values())
    if one_thread:
        torch.set_num_threads(1)
    return Store(settings.results)


def run_and_report(cell: Cell, store: Store, settings: Settings) -> Message:
    """Run a cell, in a worker, and say what came of it."""
    from benchmark.runner import run_cell
    from benchmark.trainer import own_signals

    try:
        with own_signals():
            record = run_cell(cell, store, checkpoint=settings.checkpoint, logger=settings.logger)
    except Locked as other:
        return Message("locked", str(other))
    except OSError as error:  # `run_cell` records what a method does: only the store is left to fail
        return Message("unstored", f"the cell ran, but its files could not be written: {error}")
    return Message("finished", record.to_json())
