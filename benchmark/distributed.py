"""One cell on many devices: a process per device trains by DDP; the cell's own process measures what they trained.

The processes are ours, not Lightning's: a worker may have no children by `multiprocessing`, and Lightning would run the
command line once more. They die with the cell's process, and with each other: one that fails takes the cell with it,
with its own error as the cause. The first writes the trained weights; none of them writes a record.

    python -m benchmark.distributed FOLDER        one rank (RANK of WORLD_SIZE) of the job that FOLDER describes
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm

from benchmark.as_planned import check_code
from benchmark.build import build_dataset, build_method
from benchmark.cost import peak, reset_peak
from benchmark.errors import UsageError
from benchmark.executors.lifeline import die_with
from benchmark.loggers import Log
from benchmark.seeds import seed_all
from benchmark.trainer import TrainerOptions, fit, own_signals, root_device
from datamodules.registry import load_plugin, loaded_plugins
from leaderboard.record import Cell, Fitted
from methods.base import Method

_POLL = 0.05  # seconds
_PATIENCE = timedelta(hours=2)  # of a collective: rank 0 may be loading, the others wait; the dead are seen at once


class RankFailed(RuntimeError):
    """One of the processes that train a cell together failed; the others were ended."""


class Trained(msgspec.Struct, frozen=True):
    """What is known of a training: a report per stage, its seconds, the largest memory its processes took."""

    stages: tuple[Fitted, ...]
    seconds: float
    peak_mb: float = 0.0


class Job(msgspec.Struct, frozen=True):
    """What a rank has to know: the cell, and where and how to train it."""

    cell: Cell
    parent: int
    plugins: tuple[str, ...]
    threads: int
    log: tuple[str, str, dict[str, Any]] | None


def train(cell: Cell, method: Method, options: TrainerOptions, log: Log | None = None) -> Trained:
    """Train a cell's method on many devices; its weights are then those that were trained.

    Raises:
        UsageError: If the devices are not there or cannot share the batch.
        RankFailed: If one of the processes failed.
    """
    _check(options, cell)
    with tempfile.TemporaryDirectory(prefix="polymodal-") as name:
        folder = Path(name)
        job = Job(
            cell=cell,
            parent=os.getpid(),
            plugins=loaded_plugins(),
            threads=torch.get_num_threads(),
            log=None if log is None else (log.name, str(log.folder.resolve()), log.config),
        )
        (folder / "job.json").write_bytes(msgspec.json.encode(job))
        with _ranks(folder, options) as ranks:
            _wait(ranks, folder)
        report = msgspec.json.decode((folder / "report.json").read_bytes(), type=Trained)
        weights = torch.load(folder / "weights.pt", weights_only=True, map_location="cpu")
    method.to(dtype=torch.float64 if options.precision == "64-true" else torch.float32)
    method.load_state_dict(weights)
    return report


def notes(method: Method, options: TrainerOptions) -> list[str]:
    """What differs from one device; nothing, for the methods that come with the package."""
    if options.devices == 1 or options.device == "cuda":  # there, batch norms are synchronised
        return []
    norms = [name for name, part in method.named_modules() if isinstance(part, _BatchNorm)]
    return [f"statistics of {name} are those of one device's rows" for name in norms]


def _check(options: TrainerOptions, cell: Cell) -> None:
    there = {"cuda": torch.cuda.device_count(), "mps": 1}.get(options.device, options.devices)
    if options.devices > there:
        raise UsageError(
            f"trainer: `devices` = {options.devices}, but this machine shows {there} of kind {options.device}"
        )
    try:
        options.share(cell.recipe["batch_size"])
    except ValueError as error:
        raise UsageError(str(error)) from None


@contextmanager
def _ranks(folder: Path, options: TrainerOptions) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes, ended when the block is left, however it is left."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(options.devices):
            environment = {**os.environ, **_visible(options), "RANK": str(rank), "LOCAL_RANK": str(rank)}
            environment["WORLD_SIZE"] = str(options.devices)
            environment["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
            with _output(folder, rank).open("wb") as output:
                # A session of its own: Ctrl-C is for the process that started us, which lets running cells end.
                started.append(
                    subprocess.Popen(
                        [sys.executable, "-P", "-m", "benchmark.distributed", str(folder)],
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        yield started
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def _visible(options: TrainerOptions) -> dict[str, str]:
    """Let the ranks see the GPUs from this worker's own on, and no others."""
    if options.device != "cuda":
        return {}
    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
    names, first = named.split(","), torch.cuda.current_device()
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[(first + i) % count] for i in range(options.devices))}


def _wait(ranks: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    """Until all have ended well, or one has not."""
    while True:
        codes = [process.poll() for process in ranks]
        if any(codes):
            raise _failure(codes, folder)
        if all(code == 0 for code in codes):
            return
        time.sleep(_POLL)


def _failure(codes: Sequence[int | None], folder: Path) -> RankFailed:
    """The first cause: a kill, or the earliest error. The other ranks' errors only say that their peer has gone."""
    killed = [rank for rank, code in enumerate(codes) if code is not None and code < 0]
    errors = [json.loads(path.read_text()) for path in folder.glob("error-*.json")]
    first = min(errors, key=lambda error: error["time"], default=None)
    if killed or first is None:
        rank = killed[0] if killed else next(rank for rank, code in enumerate(codes) if code)
        code = codes[rank] or 0
        cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        failure = RankFailed(f"rank {rank} of {len(codes)} died: {cause}")
    else:
        rank = first["rank"]
        failure = RankFailed(f"rank {rank} of {len(codes)}: {first['type']}: {first['message']}")
        failure.add_note(first["traceback"])
    said = _output(folder, rank).read_text(errors="replace").splitlines()[-20:]
    if said:
        failure.add_note("\n".join(["its last output:", *said]))
    return failure


def _output(folder: Path, rank: int) -> Path:
    return folder / f"output-{rank}.txt"


# ---- in a rank ------------------------------------------------------------------------------------------------------


def main(folder: Path) -> None:
    """The life of a rank."""
    job = msgspec.json.decode((folder / "job.json").read_bytes(), type=Job)
    die_with(job.parent)
    for number in (signal.SIGINT, signal.SIGTERM):  # are for the cell's process, which ends us if it ends
        signal.signal(number, signal.SIG_IGN)
    rank = int(os.environ["RANK"])
    try:
        _work(folder, job, rank)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the cell has to say so
        said = {"rank": rank, "time": time.monotonic(), "type": type(error).__name__, "message": str(error)}
        said["traceback"] = "".join(traceback.format_exception(error))
        partial = folder / f"error-{rank}.partial"
        partial.write_text(json.dumps(said))
        partial.rename(folder / f"error-{rank}.json")
        os._exit(1)  # now: a peer that waits for us must not keep us from ending


def _work(folder: Path, job: Job, rank: int) -> None:
    cell = job.cell
    options = TrainerOptions(**cell.trainer)
    if options.device == "cuda":
        torch.cuda.set_device(rank)
    torch.set_num_threads(job.threads)
    for plugin in job.plugins:
        load_plugin(plugin)
    backend = "nccl" if options.device == "cuda" else "gloo"
    # A file, not a port that another process may take meanwhile.
    dist.init_process_group(
        backend, init_method=(folder / "meet").as_uri(), rank=rank, world_size=options.devices, timeout=_PATIENCE
    )
    datamodule = build_dataset(cell.dataset, cell.dataset_options)
    check_code(cell, datamodule)  # this process has imported and read for itself
    seed_all(cell.dataset, cell.seed, "init")  # as for one device
    method = build_method(cell.method, cell.options, datamodule.task, cell.recipe)
    log = None if job.log is None else Log(job.log[0], Path(job.log[1]), job.log[2])
    device = root_device(options)
    held = reset_peak(device)
    started = time.perf_counter()
    with own_signals():
        stages = fit(method, datamodule, seed=cell.seed, options=options, log=log)
    seconds = time.perf_counter() - started
    peaks = torch.tensor(peak(device) - held, device=device)
    dist.all_reduce(peaks, dist.ReduceOp.MAX)
    if rank == 0:
        torch.save({name: value.cpu() for name, value in method.state_dict().items()}, folder / "weights.pt")
        report = Trained(stages, seconds, float(peaks))
        (folder / "report.json").write_bytes(msgspec.json.encode(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
