"""Cells on a Ray cluster: the machines' workers, the same records.

A worker is a Ray actor, not a task: it imports torch once, keeps the datasets it has loaded, loads plugins once, and
can be killed alone when its cell hangs. (A task that takes a GPU gets a fresh process each time, seven seconds before
its first step.) Nothing but cells goes out and nothing but messages comes back: results go to the shared results folder
through the same store and locks as everywhere.
"""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmark.executors.pool import (
    Backend,
    Message,
    Pool,
    Settings,
    Stop,
    Worker,
    cores,
    prepare_worker,
    run_and_report,
)
from leaderboard.record import Cell, Record

_LOOK = 10.0  # seconds between looks at the size of the cluster
_PATIENCE = 60.0  # seconds without any worker after which we say so
_OBJECTS = 100 * 2**20  # bytes of the object store, which we do not use
# No usage reports; a CPU cell on a GPU machine keeps its environment.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# Cells are the work: at Ray's default niceness of 15 any other process of the machine would starve them.
_WORKERS: dict[str, Any] = {"max_restarts": 0, "runtime_env": {"env_vars": {"RAY_worker_niceness": "0"}}}


def execute(cells: Sequence[Cell], settings: Settings, stop: Stop | None = None) -> Iterator[Record]:
    """Run cells on a cluster and yield their records as they come."""
    if not cells:
        return
    # Other machines have other working directories.
    settings = replace(
        settings,
        results=str(Path(settings.results).resolve()),
        plugins=tuple(str(Path(plugin).resolve()) for plugin in settings.plugins),
    )
    with _cluster(cells, settings):
        yield from Pool(cells, settings, stop or Stop(), _Actors(cells, settings)).run()


def code_digest(plugins: Sequence[str]) -> str:
    """A hash of this project's code and the plugins: a machine with other code would write wrong records."""
    root = Path(__file__).parents[2]
    own = [p for name in ("benchmark", "datamodules", "leaderboard", "methods") for p in (root / name).rglob("*.py")]
    digest = hashlib.sha256()
    for path in [*sorted(own), *map(Path, plugins)]:
        name = path.relative_to(root) if path in own else path.name
        digest.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


@contextmanager
def _cluster(cells: Sequence[Cell], settings: Settings) -> Iterator[None]:
    """Connect to the cluster, or start one of this machine alone."""
    os.environ.update({name: os.environ.get(name, value) for name, value in _QUIET.items()})
    import ray

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if settings.ray_address:
            ray.init(address=settings.ray_address, **quiet)
        else:
            wanted = (settings.workers or 1) * _devices(cells)
            ray.init(
                address="local",
                num_cpus=max(cores(), wanted),
                include_dashboard=False,
                object_store_memory=_OBJECTS,
                _node_ip_address="127.0.0.1",
                **quiet,
            )
    except ConnectionError as error:
        raise ConnectionError(f"no Ray cluster at {settings.ray_address!r} (`ray start --head`?): {error}") from None
    finally:
        for number, handler in handlers.items():  # Ray brings its own; stopping is ours to do
            signal.signal(number, handler)
    try:
        yield
    finally:
        ray.shutdown()


def _devices(cells: Sequence[Cell]) -> int:
    return int(cells[0].trainer.get("devices", 1))  # of the matrix, so the same for all


class _Actors(Backend):
    """Actors, each with the devices of one cell."""

    tries = 3

    def __init__(self, cells: Sequence[Cell], settings: Settings) -> None:
        import ray

        self.settings = settings
        self.devices = _devices(cells)
        accelerator = cells[0].trainer.get("accelerator", "auto")
        has_gpus = accelerator in ("auto", "gpu", "cuda") and ray.cluster_resources().get("GPU", 0) > 0
        if has_gpus and self.devices > 1 and settings.per_gpu > 1:
            raise ValueError("--workers-per-gpu packs cells of one device; these take several GPUs each")
        self.gpus = self.devices / settings.per_gpu if has_gpus else 0
        self.digest = code_digest(settings.plugins)
        self.environment = {k: v for k, v in os.environ.items() if k.startswith("POLYMODAL_")}
        self.actor = ray.remote(CellWorker).options(num_cpus=self.devices, num_gpus=self.gpus, **_WORKERS)
        self.room, self.looked = 0, -_LOOK
        self.alone_since: float | None = time.monotonic()

    def places(self) -> int:
        """Looked up again and again: machines come and go."""
        if self.settings.workers is not None:
            return self.settings.workers
        if time.monotonic() - self.looked >= _LOOK:
            self.looked = time.monotonic()
            self.room = max(1, _capacity(self.devices, self.gpus))  # at least one waits for a machine to come
        return self.room

    def hire(self, slot: int) -> _Actor:
        return _Actor(slot, self)

    def listen(self, workers: Sequence[Worker], seconds: float) -> list[tuple[Worker, Message]]:
        import ray

        self._say_if_alone(workers)
        pending = {w.pending: w for w in workers if isinstance(w, _Actor) and w.pending is not None}
        if not pending:  # all wait for cells that another run is in
            time.sleep(seconds)
            return []
        ready, _ = ray.wait(list(pending), num_returns=1, timeout=seconds)
        return [(pending[ref], pending[ref].hear()) for ref in ready]

    def _say_if_alone(self, workers: Sequence[Worker]) -> None:
        if self.alone_since is None or any(worker.cell for worker in workers):
            self.alone_since = None
        elif time.monotonic() - self.alone_since > _PATIENCE:
            self.alone_since = None
            warnings.warn(
                f"still waiting for a machine of the cluster with {self.devices} CPUs and {self.gpus:g} GPUs free",
                stacklevel=2,
            )


def _capacity(cpus: int, gpus: float) -> int:
    """Actors the living machines can hold; an actor is never on two machines."""
    import ray

    total = 0
    for node in ray.nodes():
        if node["Alive"]:
            has: Mapping[str, float] = node["Resources"]
            by_gpu = [int(has.get("GPU", 0) / gpus)] if gpus else []
            total += min([int(has.get("CPU", 0) // cpus), *by_gpu])
    return total


class _Actor(Worker):
    """One actor, seen from the pool."""

    def __init__(self, slot: int, backend: _Actors) -> None:
        self.slot = slot
        self.backend = backend
        self.actor: Any = None
        self.pending: Any = None

    def start(self) -> None:
        self.actor = self.backend.actor.remote()
        self.pending = self.actor.prepare.remote(self.backend.settings, self.backend.environment, self.backend.digest)

    def send(self, cell: Cell) -> None:
        self.pending = self.actor.run.remote(cell)

    def hear(self) -> Message:
        import ray
        from ray.exceptions import RayActorError, RayTaskError

        pending, self.pending = self.pending, None
        try:
            return Message(*ray.get(pending))
        except RayActorError as error:  # the process or its machine is gone
            return Message("lost", _brief(error))
        except RayTaskError as error:  # our own code raised
            return Message("lost" if self.cell else "refused", _brief(error.cause))

    def kill(self) -> None:
        import ray

        if self.actor is not None:
            ray.kill(self.actor, no_restart=True)


def _brief(error: BaseException) -> str:
    """The first lines of Ray's long messages."""
    return " ".join(str(error).split())[:400]


class CellWorker:
    """The actor: runs cells on its machine."""

    def prepare(self, settings: Settings, environment: Mapping[str, str], digest: str) -> Message:
        """Import everything and check that this machine runs the same code."""
        if not Path(settings.results).is_dir():
            raise FileNotFoundError(
                f"no results folder {settings.results} on {os.uname().nodename}: it must be shared by all machines"
            )
        for plugin in settings.plugins:
            if not Path(plugin).is_file():
                raise FileNotFoundError(f"no plugin file {plugin} on {os.uname().nodename}: it must be shared")
        if code_digest(settings.plugins) != digest:
            raise ImportError(f"{os.uname().nodename} has another version of Polymodal or of a plugin")
        os.environ.update(environment)
        import torch

        self.settings, self.store = settings, prepare_worker(settings, one_thread=not torch.cuda.is_available())
        return Message("ready")

    def run(self, cell: Cell) -> Message:
        """Run one cell."""
        return run_and_report(cell, self.store, self.settings)
