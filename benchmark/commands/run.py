"""`polymodal run`: every cell of a matrix that has no valid record yet."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from contextlib import closing
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from benchmark.arguments import add_json, add_matrix, at_least, cells, plan_of, seconds

if TYPE_CHECKING:
    from benchmark.executors.pool import Settings, Stop
    from benchmark.plan import Plan
    from leaderboard.record import Cell, Record
    from leaderboard.store import Store

NAME = "run"
HELP = "Train and test every cell of a matrix that has no valid record yet."
EXAMPLE = """examples:
  polymodal run                                                      the default matrix (quick)
  polymodal run core --workers 8 --results /data/results
  polymodal run --methods concat,low_rank --datasets digit_halves --seeds 5 --set low_rank.rank=8
  polymodal run --plugin my_fusion.py --methods my_fusion,concat --datasets interactions_xor --seeds 2
  polymodal run core --executor ray --ray-address auto --results /shared/results

A cell that is done is skipped, a failed one runs again. Ctrl-C or SIGTERM: running cells end, no more are started.
Exit code: 0 all done, 1 a cell failed, 2 wrong usage, 128 + the signal when stopped with cells left.
"""
_GRACE = 25.0  # seconds: Slurm and Kubernetes kill 30 s after their SIGTERM


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_matrix(parser)
    parser.add_argument("--workers", type=at_least(0), metavar="N",
                        help="worker processes; 0 runs in this process (default: one per GPU or CPU core)")  # fmt: skip
    parser.add_argument("--workers-per-gpu", type=at_least(1), default=1, metavar="K", help="cells sharing one GPU")
    parser.add_argument("--executor", choices=("local", "ray"), default="local", help="this machine, or a Ray cluster")
    parser.add_argument("--ray-address", metavar="ADDRESS",
                        help="`auto` or the address of a running cluster (default: start one here)")  # fmt: skip
    parser.add_argument("--tries", type=at_least(1), metavar="N",
                        help="runs of a cell whose worker dies (default: 1, with ray 3)")  # fmt: skip
    parser.add_argument("--cell-timeout", type=seconds, metavar="SECONDS",
                        help="end a cell that runs longer and record it as failed")  # fmt: skip
    parser.add_argument("--grace", type=seconds, default=_GRACE, metavar="SECONDS",
                        help=f"after SIGTERM, time for running cells to end (default: {_GRACE:g}); then they are cut "
                             "off and run again next time")  # fmt: skip
    parser.add_argument("--cells", type=cells, metavar="I:J", help="only these cells of the plan, counted from 0")
    parser.add_argument("--only-missing", action="store_true", help="skip cells that are done (this is the default)")
    parser.add_argument("--logger", metavar="NAME", help="write training curves: csv, tensorboard, wandb or mlflow")
    parser.add_argument("--no-checkpoints", action="store_true", help="do not keep the trained weights")
    parser.add_argument("--rerun", action="store_true", help="run every cell again, even those with a valid record")
    parser.add_argument("--quiet", action="store_true", help="no progress display, only failures and the last line")
    add_json(parser, "one JSON object per finished cell on standard output")


def run(arguments: argparse.Namespace) -> int:
    from benchmark.loggers import check_logger
    from leaderboard.not_applicable import remember
    from leaderboard.store import Store

    if arguments.rerun and arguments.only_missing:
        raise ValueError("--rerun runs every cell again, --only-missing those without a record: choose one")
    if arguments.executor == "ray":
        _check_ray(arguments)
    check_logger(arguments.logger)
    store = Store(arguments.results)
    store.prepare()
    plan = plan_of(arguments)
    remember(store.folder, {(n.label, n.dataset): n.reason for n in plan.not_applicable})
    if arguments.cells is not None:
        plan = replace(plan, cells=plan.cells[arguments.cells])
    if arguments.rerun:
        for cell in plan.cells:
            store.path(cell.id).unlink(missing_ok=True)
    todo = [cell for cell in plan.cells if store.done(cell.id) is None]
    loud = not arguments.quiet and not arguments.json
    if loud:
        _announce(plan, len(plan.cells) - len(todo))
    _make_features(todo, loud)
    return _execute(plan, todo, store, arguments)


def _make_features(todo: list[Cell], loud: bool) -> None:
    """Before the first cell, and before signals are ours: what is interrupted here goes on where it was next time."""
    from benchmark.executors.features_ahead import make_ahead

    made = make_ahead(todo)
    if made is not None and loud:
        print(made, file=sys.stderr)


def _execute(plan: Plan, todo: list[Cell], store: Store, arguments: argparse.Namespace) -> int:
    from benchmark.executors.pool import ResultsLost, Stop, WorkerDied

    stop, received = Stop(), []
    _stop_on_signals(stop, received, arguments.grace)
    show: Any = _Lines(arguments.json) if arguments.quiet or arguments.json else _Progress(todo)
    started, records, broken = time.perf_counter(), [], ""
    try:
        with show, closing(_executor(arguments)(todo, _settings(arguments), stop)) as results:
            for record in results:
                records.append(record)
                show.update(record)
    except KeyboardInterrupt:
        broken = "running cells were cut off; they run again next time"
        stop.set()
    except (ResultsLost, WorkerDied) as error:
        broken = str(error)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if broken:
        print(f"polymodal run: {broken}", file=sys.stderr)
    code = _conclude(plan, todo, records, store, time.perf_counter() - started, arguments)
    if len(records) < len(todo) and received:
        return 128 + received[0]
    return code or int(bool(broken))


def _executor(arguments: argparse.Namespace) -> Any:
    """The generator function that runs cells."""
    if arguments.executor == "ray":
        from benchmark.executors.ray import execute
    else:
        from benchmark.executors.local import execute
    return execute


def _settings(arguments: argparse.Namespace) -> Settings:
    from benchmark.executors.pool import Settings

    return Settings(
        results=arguments.results,
        plugins=tuple(arguments.plugin),
        workers=arguments.workers,
        per_gpu=arguments.workers_per_gpu,
        checkpoint=not arguments.no_checkpoints,
        logger=arguments.logger,
        timeout=arguments.cell_timeout,
        tries=arguments.tries,
        ray_address=arguments.ray_address,
    )


def _check_ray(arguments: argparse.Namespace) -> None:
    from importlib.util import find_spec

    if find_spec("ray") is None:
        raise ImportError("--executor ray needs Ray, which is not installed: pip install 'polymodal[ray]'")
    if arguments.workers == 0:
        raise ValueError("--workers 0 runs in this process, so not on a Ray cluster")


def _stop_on_signals(stop: Stop, received: list[int], grace: float) -> None:
    """First Ctrl-C or SIGTERM: running cells end. Second, or when the grace time is over: they are cut off."""

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        limit = ""
        if number == signal.SIGTERM:
            # Not 0, which would disarm the timer.
            signal.setitimer(signal.ITIMER_REAL, max(grace, 1e-3))
            limit = f" within {grace:g} s"
        print(f"\nstopping: running cells end{limit}, then we stop (again: cut them off)", file=sys.stderr)

    def late(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGALRM, late)


def _announce(plan: Plan, cached: int) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    for name in plan.added:
        console.print(f"[dim]added {name}: gains and mCE are relative to it (--no-baselines leaves it out)[/dim]")
    for skipped in plan.not_applicable:
        where = escape(f"{skipped.label} on {skipped.dataset}: {skipped.reason}")
        console.print(f"[yellow]not applicable:[/yellow] {where}")
    for note in plan.notes:
        console.print(f"[yellow]note:[/yellow] {escape(note)}")
    console.print(f"{len(plan.cells)} cells, {cached} of them done already")


def _conclude(
    plan: Plan,
    todo: list[Cell],
    records: list[Record],
    store: Store,
    seconds: float,
    arguments: argparse.Namespace,
) -> int:
    failed = [record for record in records if record.status == "failed"]
    vanished = [record for record in records if not store.path(record.cell.id).exists()]
    for record in failed:
        cell, message = record.cell, record.error.message if record.error else ""
        print(f"failed: {cell.label} on {cell.dataset}, seed {cell.seed}: {message}", file=sys.stderr)
        print(f"        polymodal show {cell.id} --results {store.folder}", file=sys.stderr)
    if vanished:
        print(
            f"{len(vanished)} records of this run are no longer in {store.folder}: who deleted them?", file=sys.stderr
        )
    if not arguments.json:
        left = len(todo) - len(records)
        print(
            f"{len(plan.cells)} cells: {len(records) - len(failed)} run, {len(plan.cells) - len(todo)} cached, "
            f"{len(failed)} failed, {left} left, {seconds:.0f} s. Records: {store.folder}/"
        )
    return 1 if failed or vanished else 0


class _Lines:
    """No display: JSON lines, or silence."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def update(self, record: Record) -> None:
        if self.as_json:
            cell, score = record.cell, record.clean if record.status == "ok" else None
            line = {"cell": cell.id, "status": record.status, "label": cell.label, "dataset": cell.dataset,
                    "seed": cell.seed, "metric": cell.metric, "score": score}  # fmt: skip
            print(json.dumps(line), flush=True)


class _Progress:
    """Cells done, failed and left, time to go, and the best so far on the dataset of the last cell."""

    def __init__(self, todo: list[Cell]) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.progress = Progress(
            TextColumn("cells"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("[red]{task.fields[failed]}[/red]"),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self.task = self.progress.add_task("cells", total=len(todo), failed="", note="starting workers")
        self.failed = 0
        self.best: dict[str, tuple[float, str]] = {}

    def __enter__(self) -> _Progress:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def update(self, record: Record) -> None:
        from rich.markup import escape

        note = ""
        if record.status == "failed":
            self.failed += 1
        else:
            cell = record.cell
            sign = 1 if cell.higher_is_better else -1
            here = (sign * record.clean, cell.label)
            best = self.best[cell.dataset] = max(here, self.best.get(cell.dataset, here))
            note = escape(f"{cell.dataset}: best {best[1]} {sign * best[0]:.3f}")
        failed = f"{self.failed} failed" if self.failed else ""
        self.progress.update(self.task, advance=1, failed=failed, note=note)
