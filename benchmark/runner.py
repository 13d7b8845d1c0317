"""One cell, from its description to its record. Knows no method, no dataset and no corruption by name."""

from __future__ import annotations

import io
import json
import time
import traceback
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch

from benchmark import distributed
from benchmark.as_planned import check_code
from benchmark.attention import attention_scores
from benchmark.build import build_dataset, build_method
from benchmark.conditions import notes as condition_notes
from benchmark.cost import latency, peak, reset_peak, trainable
from benchmark.evaluate import sweep
from benchmark.fills import choose_filling
from benchmark.loggers import Log, check_logger
from benchmark.precision import check_precision
from benchmark.provenance import provenance
from benchmark.seeds import seed_all
from benchmark.trainer import Encodings, TrainerOptions, fit, root_device
from datamodules.base import DataModule
from leaderboard.record import SCHEMA, Cell, Failure, Record, finite
from leaderboard.store import Store
from methods.base import Method

_loaded: OrderedDict[str, DataModule] = OrderedDict()


def run_cell(cell: Cell, store: Store, *, checkpoint: bool = True, logger: str | None = None) -> Record:
    """Train and test one cell, and write what came of it; a failure is a record too.

    Holds the cell's lock meanwhile.

    Args:
        checkpoint: Keep the trained weights.
        logger: One of `loggers.LOGGERS`; its files go to `logs/<cell id>` of the results.

    Raises:
        Locked: If another run on the same folder is in this cell.
    """
    with store.lock(cell.id):
        if (done := store.done(cell.id)) is not None:
            return done
        try:
            record, arrays, weights = _run(cell, _log(cell, store, logger))
            Record.from_json(record.to_json())  # what cannot be read again, such as a score of NaN, is a failure
        except Exception as error:  # noqa: BLE001 - whatever a method does, the matrix goes on
            return write_failure(cell, store, error)
        if checkpoint:
            store.write_bytes(cell.id, ".pt", weights)
        return store.write(record, arrays)


def write_failure(cell: Cell, store: Store, error: BaseException) -> Record:
    """Record that a cell failed, and why."""
    failure = Failure(type(error).__name__, str(error), "".join(traceback.format_exception(error)))
    return store.write(Record(cell=cell, status="failed", schema=SCHEMA, error=failure, provenance=provenance(cell)))


def record_death(cell: Cell, store: Store, error: BaseException) -> Record:
    """Record a cell whose process died, unless another process has finished it meanwhile.

    Raises:
        Locked: If another run is in it now.
    """
    with store.lock(cell.id):
        return store.done(cell.id) or write_failure(cell, store, error)


def load_method(record: Record, store: Store) -> tuple[Method, DataModule]:
    """The trained method of a record, and its dataset, from the cell's checkpoint."""
    cell = record.cell
    datamodule = build_dataset(cell.dataset, cell.dataset_options)
    method = build_method(cell.method, cell.options, datamodule.task, cell.recipe)
    path = store.path(cell.id, ".pt")
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint {path}: run the cell again without --no-checkpoints")
    try:
        method.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
    except Exception as error:  # whatever is in the file, it is not executed
        reason = str(error).partition("\n")[0][:200]
        raise ValueError(f"{path} is not the checkpoint of {cell.label}: {reason}; run the cell again") from error
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
    check_code(cell, datamodule)
    task = datamodule.task
    options = TrainerOptions(**cell.trainer)
    device = root_device(options)
    check_precision(options.precision, device.type)
    held = reset_peak(device)
    seed_all(cell.dataset, cell.seed, "init")  # never the method: all methods start from the same encoders
    method = build_method(cell.method, cell.options, task, cell.recipe)
    trained = _train(cell, method, datamodule, options, log)
    started = time.perf_counter()
    filling = choose_filling(method, datamodule, cell.conditions, device)
    swept = sweep(method, datamodule, cell.conditions, device, cell.split, filling)
    ended = time.perf_counter()
    summary = method.summary(*(Encodings(method, datamodule.ordered(split), device) for split in ("train", cell.split)))
    summary = summary | attention_scores(method, datamodule, cell.split, device)
    cost = {
        "parameters": float(sum(p.numel() for p in method.parameters())),
        "trainable_parameters": float(trainable(method.stages())),
        "train_seconds": trained.seconds,
        "sweep_seconds": ended - started,
        "devices": float(options.devices),
        "peak_memory_mb": max(peak(device) - held, trained.peak_mb),
        "held_memory_mb": held,
        **latency(method, datamodule.ordered(cell.split), device),
    }
    train, val, measured = (datamodule.splits[split] for split in ("train", "val", cell.split))
    # What a dataset found odd about the user's files, and what many devices could not keep equal.
    notes = [*datamodule.notes, *distributed.notes(method, options), *condition_notes(cell.conditions, datamodule.raw)]
    content = datamodule.content_hash if cell.split == "test" else ""  # a trial does not even hash test rows
    record = Record(
        cell=cell,
        status="ok",
        schema=SCHEMA,
        trivial=task.goal.trivial(train.target, measured.target, measured.gallery),
        trivial_validation=task.goal.trivial(train.target, val.target, val.gallery),
        rows=len(measured.target),
        conditions=swept.conditions,
        fill=None if filling is None else filling.chosen,
        summary=finite(summary),
        training=trained.stages,
        cost=finite(cost),
        provenance={**provenance(cell), "dataset_hash": content, "notes": notes},
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
    key = json.dumps([cell.dataset, cell.dataset_version, cell.dataset_options], sort_keys=True)
    if key not in _loaded:
        _loaded[key] = build_dataset(cell.dataset, cell.dataset_options)
        while len(_loaded) > 3:
            _loaded.popitem(last=False)
    _loaded.move_to_end(key)
    return _loaded[key]
