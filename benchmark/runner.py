"""One cell, from its description to its record. Knows no method, no dataset and no corruption by name."""

from __future__ import annotations

import fcntl
import io
import json
import platform
import subprocess
import time
import traceback
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmark import distributed
from benchmark.conditions import versions
from benchmark.cost import peak, reset_peak
from benchmark.evaluate import sweep
from benchmark.loggers import Log, check_logger
from benchmark.plan import Cell, build_dataset, build_method
from benchmark.precision import check_precision
from benchmark.seeds import seed_all
from benchmark.trainer import Encodings, TrainerOptions, fit, root_device
from datamodules.base import DataModule
from leaderboard.record import Record
from leaderboard.store import Store
from methods.base import Method
from methods.metrics import trivial_score

_PACKAGES = ("torch", "lightning", "torchmetrics", "torchvision", "numpy", "scipy", "scikit-learn", "polymodal")
_loaded: OrderedDict[str, DataModule] = OrderedDict()


def run_cell(cell: Cell, store: Store, *, checkpoint: bool = True, logger: str | None = None) -> Record:
    """Train and test one cell, and write what came of it; a failure is a record too.

    Holds the cell's lock meanwhile: of two runs on one folder, the second waits and then finds the record.

    Args:
        checkpoint: Keep the trained weights.
        logger: One of `loggers.LOGGERS`; its files go to `logs/<cell id>` of the results.
    """
    with _lock(store, cell.id):
        if (done := store.done(cell.id)) is not None:
            return done
        try:
            record, arrays, weights = _run(cell, _log(cell, store, logger))
        except Exception as error:  # noqa: BLE001 - whatever a method does, the matrix goes on
            return write_failure(cell, store, error)
        if checkpoint:
            store.write_bytes(cell.id, ".pt", weights)
        store.write(record, arrays)
        return record


def write_failure(cell: Cell, store: Store, error: BaseException) -> Record:
    """Record that a cell failed, and why."""
    lines = traceback.format_exception(error)
    failure = {"type": type(error).__name__, "message": str(error), "traceback": "".join(lines)}
    record = Record(status="failed", error=failure, provenance=_provenance(cell), **_identity(cell))
    store.write(record)
    return record


def record_death(cell: Cell, store: Store, error: BaseException) -> Record:
    """Record a cell whose process died, unless another process has finished it meanwhile."""
    with _lock(store, cell.id):
        return store.done(cell.id) or write_failure(cell, store, error)


def load_method(record: Record, store: Store) -> tuple[Method, DataModule]:
    """The trained method of a record, and its dataset, from the cell's checkpoint."""
    datamodule = build_dataset(record.dataset, record.dataset_options)
    method = build_method(record.method, record.options, datamodule.task, record.recipe)
    path = store.path(record.cell, ".pt")
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint {path}: run the cell again without --no-checkpoints")
    method.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
    return method.train(False), datamodule


def _log(cell: Cell, store: Store, logger: str | None) -> Log | None:
    """Where the cell's curves go; those of an earlier try are forgotten."""
    if logger is None:
        return None
    check_logger(logger)
    config = {"method": cell.label, "dataset": cell.dataset, "seed": cell.seed, **cell.options, **cell.recipe}
    log = Log(logger, store.folder / "logs" / cell.id, config)
    log.clear()
    return log


def _run(cell: Cell, log: Log | None = None) -> tuple[Record, Mapping[str, Any], bytes]:
    datamodule = _dataset(cell)
    task = datamodule.task
    options = TrainerOptions(**cell.trainer)
    device = root_device(options)
    check_precision(options.precision, device.type)
    reset_peak(device)
    seed_all(cell.dataset, cell.seed, "init")  # never the method: all methods start from the same encoders
    method = build_method(cell.method, cell.options, task, cell.recipe)
    trained = _train(cell, method, datamodule, options, log)
    started = time.perf_counter()
    swept = sweep(method, datamodule, cell.conditions, device)
    ended = time.perf_counter()
    summary = method.summary(
        Encodings(method, datamodule.ordered("train"), device), Encodings(method, datamodule.ordered("test"), device)
    )
    cost = {
        "parameters": float(sum(p.numel() for p in method.parameters())),
        "trainable_parameters": float(_trainable(method)),
        "train_seconds": trained.seconds,
        "sweep_seconds": ended - started,
        "devices": float(options.devices),
        "peak_memory_mb": max(peak(device), trained.peak_mb),
        **_latency(method, datamodule, device),
    }
    splits = datamodule.splits
    record = Record(
        status="ok",
        trivial=trivial_score(task, splits["train"].target, splits["test"].target, splits["test"].gallery),
        rows=len(splits["test"].target),
        conditions=swept.conditions,
        summary={name: float(value) for name, value in summary.items()},
        training=trained.stages,
        cost=cost,
        provenance={
            **_provenance(cell),
            "dataset_hash": _fingerprint(datamodule),
            # What a dataset found odd about the user's files, and what many devices could not keep equal.
            "notes": [*getattr(datamodule, "notes", ()), *distributed.notes(method, options)],
        },
        **_identity(cell),
    )
    buffer = io.BytesIO()
    torch.save({name: value.cpu() for name, value in method.state_dict().items()}, buffer)
    return record, swept.predictions, buffer.getvalue()


def _train(
    cell: Cell, method: Method, datamodule: DataModule, options: TrainerOptions, log: Log | None
) -> distributed.Trained:
    """Fit the method here, or on as many devices as the cell asks for."""
    if options.devices > 1:
        datamodule.splits  # noqa: B018 - fetched once, here, before all ranks ask for it
        return distributed.train(cell, method, options, log)
    started = time.perf_counter()
    stages = fit(method, datamodule, seed=cell.seed, options=options, log=log)
    return distributed.Trained(stages, time.perf_counter() - started)


def _dataset(cell: Cell) -> DataModule:
    """The cell's dataset; a worker keeps the last ones it loaded."""
    key = json.dumps([cell.dataset, cell.dataset_options], sort_keys=True)
    if key not in _loaded:
        _loaded[key] = build_dataset(cell.dataset, cell.dataset_options)
        while len(_loaded) > 3:
            _loaded.popitem(last=False)
    _loaded.move_to_end(key)
    return _loaded[key]


def _fingerprint(datamodule: DataModule) -> str:
    """The hash of the rows, computed once for as long as they are loaded."""
    if not hasattr(datamodule, "_fingerprint"):
        datamodule._fingerprint = datamodule.fingerprint()  # pyright: ignore[reportAttributeAccessIssue]
    return datamodule._fingerprint  # pyright: ignore[reportAttributeAccessIssue]


def _identity(cell: Cell) -> dict[str, Any]:
    """The fields of a record that its cell already knows."""
    return {
        "cell": cell.id,
        "method": cell.method,
        "label": cell.label,
        "family": cell.family,
        "track": cell.track,
        "options": dict(cell.options),
        "dataset": cell.dataset,
        "dataset_version": cell.dataset_version,
        "dataset_options": dict(cell.dataset_options),
        "seed": cell.seed,
        "modalities": cell.modalities,
        "target": cell.target,
        "metric": cell.metric,
        "higher_is_better": cell.higher_is_better,
        "recipe": dict(cell.recipe),
        "bayes": cell.bayes,
    }


def _trainable(method: Method) -> int:
    """Parameters that some stage fits by gradient."""
    parts = [part for s in method.stages() if s.solve is None for part in s.learn or (s.method,)]
    fitted = {id(p): p for part in parts for p in ([part] if isinstance(part, torch.Tensor) else part.parameters())}
    return sum(p.numel() for p in fitted.values() if p.requires_grad)


def _latency(method: Method, datamodule: DataModule, device: torch.device) -> dict[str, float]:
    """Of a clean forward pass: FLOPs per row; milliseconds at batch 1 and 64, median and 95th percentile of 20."""
    rows = datamodule.ordered("test")
    found: dict[str, float] = {}
    with torch.inference_mode():
        for size in (1, 64):
            batch = rows.take(slice(0, min(size, rows.rows)))
            inputs = {name: x.to(device) for name, x in batch.inputs.items()}
            present = batch.present.to(device)
            if size == 1:
                found["flops"] = _flops(method, inputs, present)
            times = torch.tensor([_timed(method, inputs, present, device) for _ in range(22)][2:])
            found[f"latency_b{size}_p50_ms"] = float(times.median())
            found[f"latency_b{size}_p95_ms"] = float(times.quantile(0.95))
    return found


def _flops(method: Method, inputs: dict[str, torch.Tensor], present: torch.Tensor) -> float:
    with FlopCounterMode(display=False) as counter:
        method(inputs, present)
    return float(counter.get_total_flops())


def _timed(method: Method, inputs: dict[str, torch.Tensor], present: torch.Tensor, device: torch.device) -> float:
    started = time.perf_counter()
    method(inputs, present)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return 1e3 * (time.perf_counter() - started)


def _provenance(cell: Cell) -> dict[str, Any]:
    devices = cell.trainer.get("devices", 1)
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "world_size": devices,
        "batch_size": {"global": cell.recipe["batch_size"], "per_device": cell.recipe["batch_size"] // devices},
        "trainer": dict(cell.trainer),
        "source": cell.source,
        "corruptions": versions(cell.conditions),
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
    folder = Path(__file__).parent
    try:
        revision = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
        dirty = subprocess.run(
            ["git", "status", "--porcelain"], cwd=folder, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return {"revision": None, "dirty": None}
    return {"revision": revision, "dirty": bool(dirty)}


@contextmanager
def _lock(store: Store, cell: str) -> Iterator[None]:
    """Hold the cell's lock file; the kernel lets go of it when the process dies, however it dies."""
    folder = store.folder / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / cell).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
