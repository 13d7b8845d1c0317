"""Cells on this machine: in this process, or in persistent worker processes that may die without harm.

A worker imports torch once (seconds) and runs cell after cell, with one torch thread on a CPU, or on its own GPUs. A
worker that dies takes only its cell with it: the cell is recorded as failed and the worker is replaced. Workers die
with their parent.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait

from benchmark.executors.lifeline import die_with
from benchmark.executors.pool import (
    Backend,
    Message,
    NotStored,
    Others,
    Pool,
    Settings,
    Stop,
    Worker,
    WorkerDied,
    cores,
    prepare_worker,
    record_failure,
    run_and_report,
)
from leaderboard.record import Cell, Record
from leaderboard.store import Locked, Store

__all__ = ["Settings", "Stop", "WorkerDied", "default_workers", "execute"]


def execute(cells: Sequence[Cell], settings: Settings, stop: Stop | None = None) -> Iterator[Record]:
    """Run cells and yield their records as they come."""
    stop = stop or Stop()
    if settings.workers == 0:
        yield from _in_process(cells, settings, stop)
    elif cells:
        yield from Pool(cells, settings, stop, _Processes(cells, settings)).run()


def default_workers(per_gpu: int = 1, devices: int = 1, device: str = "auto") -> int:
    """Cells that can run at once: one per GPU (times `per_gpu`) or core, fewer when each takes several.

    Raises:
        ValueError: If a cell asks for more GPUs than there are.
    """
    import torch

    gpus = torch.cuda.device_count() if device in ("auto", "cuda", "gpu") else 0
    if gpus:
        if devices > gpus:
            raise ValueError(f"a cell takes {devices} GPUs (devices = {devices}), this machine has {gpus}")
        if devices > 1 and per_gpu > 1:
            raise ValueError("--workers-per-gpu packs cells of one device; these take several GPUs each")
        return gpus // devices * per_gpu
    return max(1, cores() // devices)


def gpus_of(slot: int, devices: int, count: int, visible: str | None = None) -> str:
    """The GPUs of a worker, as CUDA_VISIBLE_DEVICES: `devices` neighbours, shared by slots when they are all taken.

    Args:
        slot: The worker's number.
        devices: GPUs of one cell.
        count: GPUs of this machine.
        visible: CUDA_VISIBLE_DEVICES of the parent, as a scheduler sets it.
    """
    names = visible.split(",") if visible else [str(i) for i in range(count)]
    first = slot % (count // devices) * devices
    return ",".join(names[first : first + devices])


def _in_process(cells: Sequence[Cell], settings: Settings, stop: Stop) -> Iterator[Record]:
    import torch

    # The same number of threads as a worker has: sums of floats depend on it.
    threads = torch.get_num_threads()
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    store = Store(settings.results)
    try:
        waiting, others = deque(cells), Others()
        while waiting and not stop.is_set():
            if (cell := others.next(waiting)) is None:
                others.say_whom()
                stop.wait(1)
                continue
            message = run_and_report(cell, store, settings)
            if message.kind == "locked":
                others.keep(cell, message.text)
                waiting.append(cell)
                continue
            if message.kind == "finished":
                yield Record.from_json(message.text)
                continue
            try:
                record = record_failure(cell, store, NotStored(message.text))
            except Locked as other:
                others.keep(cell, str(other))
                waiting.append(cell)
                continue
            if isinstance(record, Exception):
                raise record
            yield record
    finally:
        torch.set_num_threads(threads)


class _Processes(Backend):
    """Persistent worker processes, each with a pipe."""

    def __init__(self, cells: Sequence[Cell], settings: Settings) -> None:
        import torch

        trainer = cells[0].trainer  # of the matrix, so the same for all
        self.settings = settings
        self.devices = int(trainer.get("devices", 1))
        device = trainer.get("accelerator", "auto")
        self.room = default_workers(settings.per_gpu, self.devices, device)
        if settings.workers is not None:
            self.room = settings.workers
        self.gpus = torch.cuda.device_count() if device in ("auto", "cuda", "gpu") else 0

    def places(self) -> int:
        return self.room

    def hire(self, slot: int) -> _Process:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = gpus_of(slot, self.devices, self.gpus, visible) if self.gpus else None
        return _Process(slot, self.settings, gpus)

    def listen(self, workers: Sequence[Worker], seconds: float) -> list[tuple[Worker, Message]]:
        pipes = {worker.pipe: worker for worker in workers if isinstance(worker, _Process)}
        ready = wait(list(pipes), timeout=seconds)
        return [(pipes[pipe], pipes[pipe].hear()) for pipe in ready]  # pyright: ignore[reportArgumentType]


class _Process(Worker):
    """One worker process, seen from the parent."""

    def __init__(self, slot: int, settings: Settings, gpus: str | None) -> None:
        self.slot = slot
        context = multiprocessing.get_context("spawn")
        self.pipe, self.theirs = context.Pipe()
        self.process = context.Process(
            target=_work,
            args=(self.theirs, settings, gpus, os.getpid()),
            name=f"polymodal-worker-{slot}",
            daemon=True,
        )

    def start(self) -> None:
        self.process.start()
        self.theirs.close()

    def send(self, cell: Cell) -> None:
        with suppress(BrokenPipeError):  # it died idle: `hear` will say so
            self.pipe.send(cell)

    def hear(self) -> Message:
        try:
            return Message(*self.pipe.recv())
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            if code < 0:
                return Message("lost", f"signal {_signal(-code)}")
            # It ended by itself: before its first cell that is an error of the installation, and would repeat itself.
            return Message("lost" if self.ready else "refused", f"exit code {code}; its error may be above")

    def dismiss(self) -> None:
        with suppress(BrokenPipeError):
            self.pipe.send(None)
        self.process.join(timeout=10)
        self.kill()

    def kill(self) -> None:
        if self.process.pid is not None:
            self.process.kill()
            self.process.join()
        self.pipe.close()


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return str(number)


def _work(pipe: Connection, settings: Settings, gpus: str | None, parent: int) -> None:
    """The life of a worker."""
    die_with(parent)
    # Ctrl-C, a lost terminal and the SIGTERM of a scheduler reach all processes of a job: the parent decides.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus  # before CUDA wakes up
    store = prepare_worker(settings, one_thread=gpus is None)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        pipe.send(Message("ready"))
        while (cell := pipe.recv()) is not None:
            pipe.send(run_and_report(cell, store, settings))
