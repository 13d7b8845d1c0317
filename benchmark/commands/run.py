"""`polymodal run`: every cell of a matrix that has no valid record yet."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmark.executors.local import Stop
    from benchmark.plan import Cell, Plan
    from leaderboard.record import Record
    from leaderboard.store import Store

NAME = "run"
HELP = "Train and test every cell of a matrix that has no valid record yet."
EXAMPLE = """examples:
  polymodal run                                                      the default matrix (quick)
  polymodal run core --workers 8 --results /data/results
  polymodal run --methods concat,low_rank --datasets digit_halves --seeds 5 --set low_rank.rank=8
  polymodal run --plugin my_fusion.py --methods my_fusion,concat --datasets interactions_xor --seeds 2

A cell that is done is skipped, a failed one runs again. Exit code: 0 all done, 1 a cell failed, 2 wrong usage.
"""


def add_matrix_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` and `plan` share: which cells."""
    parser.add_argument("matrix", nargs="?", default=None, help="a TOML file or a shipped matrix (default: quick)")
    parser.add_argument("--methods", metavar="A,B", help="only these methods")
    parser.add_argument("--datasets", metavar="A,B", help="only these datasets")
    parser.add_argument("--seeds", type=int, metavar="N", help="seeds 0..N-1")
    parser.add_argument("--conditions", metavar="SET", help="standard, full, none, or a list of corruptions and groups")
    parser.add_argument("--set", action="append", default=[], metavar="NAME.KEY=VALUE", dest="settings",
                        help="an option of a method, a dataset, the recipe or the trainer; repeatable")  # fmt: skip
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE",
                        help="a Python file with @register-ed methods or datasets; its code is run")  # fmt: skip
    parser.add_argument("--data", metavar="DIR", help="folder with your data (default: $POLYMODAL_DATA)")
    parser.add_argument("--results", default="results", metavar="DIR", help="folder of the records (default: results)")
    parser.add_argument("--no-baselines", action="store_true", help="do not add concat and unimodal")
    parser.add_argument("--devices", type=int, metavar="N", help="devices per cell (DDP when more than one)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_matrix_arguments(parser)
    parser.add_argument("--workers", type=int, metavar="N",
                        help="worker processes; 0 runs in this process (default: one per GPU or CPU core)")  # fmt: skip
    parser.add_argument("--workers-per-gpu", type=int, default=1, metavar="K", help="small cells sharing one GPU")
    parser.add_argument("--no-checkpoints", action="store_true", help="do not keep the trained weights")
    parser.add_argument("--rerun", action="store_true", help="run every cell again, even those with a valid record")
    parser.add_argument("--quiet", action="store_true", help="no progress display, only failures and the last line")
    parser.add_argument("--json", action="store_true", help="one JSON object per finished cell on standard output")


def run(arguments: argparse.Namespace) -> int:
    from benchmark.executors.local import Settings, Stop, execute
    from leaderboard.store import Store

    store = Store(arguments.results)
    store.prepare()
    plan = plan_of(arguments)
    if arguments.rerun:
        for cell in plan.cells:
            store.path(cell.id).unlink(missing_ok=True)
    todo = [cell for cell in plan.cells if store.done(cell.id) is None]
    settings = Settings(
        results=arguments.results,
        plugins=tuple(arguments.plugin),
        workers=arguments.workers,
        per_gpu=arguments.workers_per_gpu,
        checkpoint=not arguments.no_checkpoints,
    )
    stop = Stop()
    _stop_on_signals(stop)
    if not arguments.quiet and not arguments.json:
        _announce(plan, len(plan.cells) - len(todo))
    show: Any = _Lines(arguments.json) if arguments.quiet or arguments.json else _Progress(todo)
    started, records = time.perf_counter(), []
    with show:
        for record in execute(todo, settings, stop):
            records.append(record)
            show.update(record)
    return _conclude(plan, todo, records, store, stop, time.perf_counter() - started, arguments)


def plan_of(arguments: argparse.Namespace) -> Plan:
    """The plan that the command line describes."""
    import os

    from benchmark.matrix import DEFAULT, Matrix, read, with_arguments
    from datamodules.registry import load_plugin

    if arguments.data:
        os.environ["POLYMODAL_DATA"] = str(arguments.data)
    for plugin in arguments.plugin:
        load_plugin(plugin)
    explicit = arguments.matrix is None and arguments.methods and arguments.datasets
    matrix = read(arguments.matrix or DEFAULT)
    if explicit:  # nothing of the default matrix is meant but its recipes
        matrix = Matrix("command line", (), (), recipe=matrix.recipe, recipes=matrix.recipes)
    matrix = with_arguments(
        matrix,
        method_names=arguments.methods.split(",") if arguments.methods else None,
        dataset_names=arguments.datasets.split(",") if arguments.datasets else None,
        seeds=arguments.seeds,
        settings=arguments.settings,
        conditions=arguments.conditions,
        trainer={"devices": arguments.devices} if arguments.devices else None,
        baselines=False if arguments.no_baselines else None,
    )
    from benchmark.plan import make_plan  # imports torch: only once every name is known to be right

    return make_plan(matrix)


def _stop_on_signals(stop: Stop) -> None:
    """First Ctrl-C or SIGTERM: running cells end. Second: they are cut off, and run again next time."""

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        print("\nstopping: running cells end, then we stop (again: cut them off)", file=sys.stderr)

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)


def _announce(plan: Plan, cached: int) -> None:
    from rich.console import Console

    console = Console(stderr=True)
    for name in plan.added:
        console.print(f"[dim]added {name}: gains and mCE are relative to it (--no-baselines leaves it out)[/dim]")
    for skipped in plan.not_applicable:
        console.print(f"[yellow]not applicable:[/yellow] {skipped.label} on {skipped.dataset}: {skipped.reason}")
    for note in plan.notes:
        console.print(f"[yellow]note:[/yellow] {note}")
    console.print(f"{len(plan.cells)} cells, {cached} of them done already")


def _conclude(
    plan: Plan,
    todo: list[Cell],
    records: list[Record],
    store: Store,
    stop: Stop,
    seconds: float,
    arguments: argparse.Namespace,
) -> int:
    failed = [record for record in records if record.status == "failed"]
    for record in failed:
        message = (record.error or {}).get("message", "")
        print(f"failed: {record.label} on {record.dataset}, seed {record.seed}: {message}", file=sys.stderr)
        print(f"        polymodal show {record.cell} --results {store.folder}", file=sys.stderr)
    if not arguments.json:
        left = len(todo) - len(records)
        print(
            f"{len(plan.cells)} cells: {len(records) - len(failed)} run, {len(plan.cells) - len(todo)} cached, "
            f"{len(failed)} failed, {left} left, {seconds:.0f} s. Records: {store.folder}/"
        )
    if stop.is_set():
        return 130
    return 1 if failed else 0


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
            score = record.clean if record.status == "ok" else None
            line = {"cell": record.cell, "status": record.status, "label": record.label, "dataset": record.dataset,
                    "seed": record.seed, "metric": record.metric, "score": score}  # fmt: skip
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
            sign = 1 if record.higher_is_better else -1
            here = (sign * record.clean, record.label)
            best = self.best[record.dataset] = max(here, self.best.get(record.dataset, here))
            note = escape(f"{record.dataset}: best {best[1]} {sign * best[0]:.3f}")
        failed = f"{self.failed} failed" if self.failed else ""
        self.progress.update(self.task, advance=1, failed=failed, note=note)
