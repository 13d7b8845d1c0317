"""Cells on this machine: in this process, or in persistent worker processes that may die without harm.

A worker imports torch once (seconds) and runs cell after cell, with one torch thread on a CPU, or on its own GPU. A
worker that
dies takes only its cell with it: the cell is recorded as failed and the worker is replaced. Workers die with their
parent.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from benchmark.plan import Cell
from leaderboard.record import Record
from leaderboard.store import Store


@dataclass(frozen=True)
class Settings:
    """How cells are run.

    Attributes:
        workers: Processes; 0 runs in this process, for a debugger. None: one per GPU, or one per CPU core.
        per_gpu: Small cells that share one GPU.
    """

    results: str
    plugins: tuple[str, ...] = ()
    workers: int | None = None
    per_gpu: int = 1
    checkpoint: bool = True


class WorkerDied(RuntimeError):
    """A worker process ended in the middle of a cell: out of memory, a crash in native code, or a kill."""


class Stop(threading.Event):
    """Set it to let the running cells end and start no more."""


def execute(cells: Sequence[Cell], settings: Settings, stop: Stop | None = None) -> Iterator[Record]:
    """Run cells and yield their records as they come."""
    stop = stop or Stop()
    if settings.workers == 0:
        yield from _in_process(cells, settings, stop)
    else:
        yield from _Pool(cells, settings, stop).run()


def default_workers(per_gpu: int = 1) -> int:
    """One worker per GPU (times `per_gpu`), or one per core this process may use."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.device_count() * per_gpu
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_process(cells: Sequence[Cell], settings: Settings, stop: Stop) -> Iterator[Record]:
    import torch

    from benchmark.runner import run_cell

    # The same number of threads as a worker has: sums of floats depend on it.
    threads = torch.get_num_threads()
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    try:
        for cell in cells:
            if stop.is_set():
                return
            yield run_cell(cell, Store(settings.results), checkpoint=settings.checkpoint)
    finally:
        torch.set_num_threads(threads)


class _Pool:
    """Persistent workers, each with a pipe: one cell at a time goes in, the word that it is written comes out."""

    def __init__(self, cells: Sequence[Cell], settings: Settings, stop: Stop) -> None:
        self.waiting = deque(cells)
        self.settings = settings
        self.stop = stop
        self.store = Store(settings.results)
        count = default_workers(settings.per_gpu) if settings.workers is None else settings.workers
        self.slots = range(min(count, len(cells)))
        self.workers: dict[Connection, _Worker] = {}

    def run(self) -> Iterator[Record]:
        try:
            for slot in self.slots:
                self._start(slot)
            while self.workers:
                for pipe in wait(list(self.workers), timeout=0.5):
                    worker = self.workers[pipe]  # pyright: ignore[reportArgumentType] - pipes are what we wait for
                    record = worker.result(self.store)
                    if record is not None:
                        yield record
                    if not worker.alive:
                        del self.workers[worker.pipe]
                        if self.waiting and not self.stop.is_set():
                            self._start(worker.slot)
                    elif not self._feed(worker):
                        worker.dismiss()
                        del self.workers[worker.pipe]
        finally:
            for worker in self.workers.values():
                worker.kill()

    def _start(self, slot: int) -> None:
        worker = _Worker(slot, self.settings)
        self.workers[worker.pipe] = worker

    def _feed(self, worker: _Worker) -> bool:
        """Give the worker its next cell; False if there is none for it."""
        if self.stop.is_set() or not self.waiting:
            return False
        return worker.send(self.waiting.popleft())


class _Worker:
    """One worker process, seen from the parent."""

    def __init__(self, slot: int, settings: Settings) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.slot = slot
        self.cell: Cell | None = None
        self.alive = True
        self.process = context.Process(
            target=_work, args=(theirs, slot, settings, os.getpid()), name=f"polymodal-worker-{slot}", daemon=True
        )
        self.process.start()
        theirs.close()

    def send(self, cell: Cell) -> bool:
        self.cell = cell
        with suppress(BrokenPipeError):  # it died idle: `result` will say so
            self.pipe.send(cell)
        return True

    def result(self, store: Store) -> Record | None:
        """What the worker has to say: ready (None), a finished cell, or, if it died, the failure of its cell."""
        try:
            ended = self.pipe.recv()
        except (EOFError, OSError):
            return self._buried(store)
        self.cell = None
        return None if ended is None else Record.from_json(ended)

    def dismiss(self) -> None:
        """Let an idle worker go."""
        with suppress(BrokenPipeError):
            self.pipe.send(None)
        self.process.join(timeout=10)
        self.kill()

    def kill(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.pipe.close()

    def _buried(self, store: Store) -> Record | None:
        from benchmark.runner import record_death

        self.process.join()
        self.alive = False
        code = self.process.exitcode or 0
        cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if self.cell is None:
            raise WorkerDied(f"worker {self.slot} could not start ({cause}); the error is above")
        return record_death(self.cell, store, WorkerDied(f"the worker died in the middle of this cell: {cause}"))


def _work(pipe: Connection, slot: int, settings: Settings, parent: int) -> None:
    """The life of a worker."""
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: running cells end
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(slot % torch.cuda.device_count())
    else:
        torch.set_num_threads(1)
    from benchmark.runner import run_cell
    from datamodules.registry import load_plugin

    for plugin in settings.plugins:
        load_plugin(plugin)
    store = Store(settings.results)
    with suppress(EOFError, BrokenPipeError, OSError):
        pipe.send(None)
        while (cell := pipe.recv()) is not None:
            pipe.send(run_cell(cell, store, checkpoint=settings.checkpoint).to_json())


def _die_with(parent: int) -> None:
    """End this process when its parent ends, even by SIGKILL: an orphan would hold its cell's lock."""
    if sys.platform == "linux":
        libc: Any = ctypes.CDLL(None, use_errno=True)
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
