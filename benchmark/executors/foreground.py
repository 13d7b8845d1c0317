"""Cells run in the foreground: with a display, until all are done or a signal says that it is enough."""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from benchmark.errors import printable
from benchmark.executors.features_ahead import make_ahead
from benchmark.executors.pool import ResultsLost, Settings, Stop, WorkerDied
from leaderboard.record import Cell, Record
from leaderboard.store import Store

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Outcome:
    """What came of some cells.

    Attributes:
        left: Cells that did not run.
        broken: Why not, if nobody stopped us.
        signal: Who stopped us.
    """

    records: tuple[Record, ...]
    left: int
    seconds: float
    broken: str = ""
    signal: int | None = None

    @property
    def failed(self) -> tuple[Record, ...]:
        """The records of cells that failed."""
        return tuple(record for record in self.records if record.status == "failed")


def execute(todo: Sequence[Cell], store: Store, arguments: argparse.Namespace) -> Outcome:
    """Run cells as the command line says, and say what fails."""
    quiet = arguments.quiet or arguments.json
    # Before the first cell, and before signals are ours: what is interrupted here goes on where it was next time.
    made = make_ahead(todo)
    if made is not None and not quiet:
        print(made, file=sys.stderr)
    stop, received = Stop(), []
    before = _stop_on_signals(stop, received, arguments.grace)
    show: Any = _Lines(arguments.json) if quiet else _progress(todo)
    started, records, broken = time.perf_counter(), [], ""
    try:
        with show, closing(_executor(arguments)(todo, _settings(store, arguments), stop)) as results:
            for record in results:
                records.append(record)
                show.update(record)
    except KeyboardInterrupt:
        broken = "running cells were cut off; they run again next time"
        stop.set()
    except (ResultsLost, WorkerDied) as error:
        broken = str(error)
    finally:
        _restore(before)
    if broken:
        print(f"polymodal {arguments.command}: {broken}", file=sys.stderr)
    left, seconds = len(todo) - len(records), time.perf_counter() - started
    outcome = Outcome(tuple(records), left, seconds, broken, received[0] if received and left else None)
    _say_failures(outcome, store)
    return outcome


def exit_code(outcome: Outcome) -> int:
    """0 all done, 1 a cell failed or could not run, 128 + the signal when stopped with cells left."""
    if outcome.signal is not None:
        return 128 + outcome.signal
    return int(bool(outcome.failed or outcome.broken))


def _say_failures(outcome: Outcome, store: Store) -> None:
    for record in outcome.failed:
        cell, message = record.cell, record.error.message if record.error else ""
        where = f"{cell.label} on {cell.dataset}, seed {cell.seed}"
        print(f"failed: {where}: {printable(message, limit=1000)}", file=sys.stderr)
        print(f"        polymodal show {cell.id} --results {store.folder}", file=sys.stderr)


def _executor(arguments: argparse.Namespace) -> Any:
    """The generator function that runs cells."""
    if arguments.executor == "ray":
        from benchmark.executors.ray import execute
    else:
        from benchmark.executors.local import execute
    return execute


def _settings(store: Store, arguments: argparse.Namespace) -> Settings:
    return Settings(
        results=str(store.folder),
        plugins=tuple(arguments.plugin),
        workers=arguments.workers,
        per_gpu=arguments.workers_per_gpu,
        checkpoint=not arguments.no_checkpoints,
        logger=arguments.logger,
        timeout=arguments.cell_timeout,
        tries=arguments.tries,
        ray_address=arguments.ray_address,
    )


def _stop_on_signals(stop: Stop, received: list[int], grace: float) -> dict[int, Any]:
    """First Ctrl-C, SIGTERM or lost terminal: running cells end. Second, or after the grace time: they are cut off.

    Returns:
        What was done on these signals before; empty where they are not ours to handle (a thread of a notebook).
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    shown = [stream for stream in (1, 2) if os.isatty(stream)]

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if number == signal.SIGHUP:  # nobody reads the terminal any more, and writing to it is an error
            for stream in shown:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        limit = ""
        if number != signal.SIGINT:
            # Not 0, which would disarm the timer.
            signal.setitimer(signal.ITIMER_REAL, max(grace, 1e-3))
            limit = f" within {grace:g} s"
        print(f"\nstopping: running cells end{limit}, then we stop (again: cut them off)", file=sys.stderr)

    def late(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    handlers = {signal.SIGINT: handle, signal.SIGTERM: handle, signal.SIGALRM: late}
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as `nohup` wants it
        handlers[signal.SIGHUP] = handle
    return {number: signal.signal(number, handler) for number, handler in handlers.items()}


def _restore(before: dict[int, Any]) -> None:
    """Leave signals to whoever had them: a notebook goes on after its cells have run."""
    if before:
        signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


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


def _progress(todo: Sequence[Cell]) -> _Progress:
    from rich.console import Console

    return _NotebookProgress(todo) if Console().is_jupyter else _Progress(todo)


class _Progress:
    """Cells done, failed and left, time to go, and the best so far on the dataset of the last cell."""

    def __init__(self, todo: Sequence[Cell], console: Console | None = None) -> None:
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
            console=console,
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


class _NotebookProgress(_Progress):
    """The same as a text below a notebook's cell, which each cell that ends replaces; rich would need ipywidgets."""

    def __init__(self, todo: Sequence[Cell]) -> None:
        from rich.console import Console

        super().__init__(todo, Console(file=io.StringIO(), force_jupyter=False, force_terminal=False, width=100))
        self.shown: Any = None

    def __enter__(self) -> _NotebookProgress:
        from IPython.display import display

        self.shown = display(self._bundle(), raw=True, display_id=True)
        return self

    def __exit__(self, *error: object) -> None:
        self.shown.update(self._bundle(), raw=True)

    def update(self, record: Record) -> None:
        super().update(record)
        self.shown.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
        with self.progress.console.capture() as text:
            self.progress.console.print(self.progress.get_renderable())
        return {"text/plain": text.get().rstrip()}
