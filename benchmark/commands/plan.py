"""`polymodal plan`: what `run` would do, without doing it."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.arguments import add_matrix, at_least, plan_of

if TYPE_CHECKING:
    from rich.table import Table

    from benchmark.plan import Plan
    from leaderboard.record import Cell, Record

NAME = "plan"
HELP = "Show the cells of a matrix, which are done, what does not apply, and how long the rest will take."
EXAMPLE = """examples:
  polymodal plan
  polymodal plan core --json
  polymodal plan --methods concat,late --datasets digit_halves --seeds 5
  polymodal plan core --format slurm-array --per-task 8 --output job.sh && sbatch job.sh

Exit code: 0 all can be run, 1 a method or dataset failed of its own and is left out, 2 wrong usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_matrix(parser)
    parser.add_argument("--format", choices=("table", "json", "slurm-array"), default="table",
                        help="a table, JSON, or a Slurm script that runs the plan as a job array")  # fmt: skip
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="short for --format json")
    parser.add_argument("--per-task", type=at_least(1), default=1, metavar="K", help="cells of a task of the job array")
    parser.add_argument("--output", metavar="FILE", help="write there instead of to the terminal (JSON and Slurm)")


def run(arguments: argparse.Namespace) -> int:
    from leaderboard.store import Store

    plan = plan_of(arguments)
    if arguments.format == "slurm-array":
        from benchmark.executors.slurm import script

        devices = max((int(cell.trainer.get("devices", 1)) for cell in plan.cells), default=1)
        _write(script(arguments, len(plan.cells), arguments.per_task, devices), arguments.output)
        return 0
    store = Store(arguments.results)
    settled = sorted(store.settled([cell.id for cell in plan.cells]))
    done = {cell: record for cell in settled if (record := store.read(cell)) is not None}
    if arguments.format == "json":
        _write(json.dumps(_as_json(plan, done), indent=1) + "\n", arguments.output)
    else:
        _show(plan, done)
    return int(bool(plan.faulty))


def _write(text: str, path: str | None) -> None:
    if path:
        Path(path).write_text(text, encoding="utf-8")
    else:
        print(text, end="")


def _as_json(plan: Plan, done: dict[str, Record]) -> dict[str, object]:
    cells = [
        {"cell": c.id, "method": c.label, "dataset": c.dataset, "seed": c.seed, "parameters": c.parameters,
         "trainable_parameters": plan.trainable[c.label, c.dataset],
         "conditions": len(c.conditions), "done": c.id in done}
        for c in plan.cells
    ]  # fmt: skip
    return {
        "cells": cells,
        "not_applicable": [vars(n) for n in plan.not_applicable],
        "faulty": [vars(f) for f in plan.faulty],
        "added": list(plan.added),
    }


def _show(plan: Plan, done: dict[str, Record]) -> None:
    """What is wanted first: how much is left; then what is left, and what does not apply."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    left = len(plan.cells) - len(done)
    console.print(f"{len(plan.cells)} cells, {len(done)} done, {left} to run. {_estimate(plan, done)}".rstrip())
    for fault in plan.faulty:
        console.print(f"[red]failed to plan:[/red] {escape(str(fault))}", soft_wrap=True)
    for note in plan.notes:
        console.print(f"[yellow]note:[/yellow] {escape(note)}", soft_wrap=True)
    if not left:
        refused = f"; {len(plan.not_applicable)} pairs do not apply" if plan.not_applicable else ""
        console.print(f"Nothing is left to do{refused}. `polymodal plan --json` lists every cell.")
        return
    console.print(_table(plan, done))
    refusals: dict[tuple[str, str], list[str]] = {}
    for skipped in plan.not_applicable:
        refusals.setdefault((skipped.label, skipped.reason), []).append(skipped.dataset)
    for (label, reason), datasets in refusals.items():
        where = escape(f"{label} on {', '.join(datasets)}: {reason}")
        console.print(f"[yellow]not applicable:[/yellow] {where}", soft_wrap=True)


def _table(plan: Plan, done: dict[str, Record]) -> Table:
    """The methods with a cell that is not done; `params` are those of the board, which some stage fits by gradient."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("method", no_wrap=True)
    for name in ("dataset", "done", "params", "conditions"):
        table.add_column(name)
    entries: dict[str, list[Cell]] = {}
    for cell in plan.cells:
        entries.setdefault(cell.label, []).append(cell)
    for label, cells in entries.items():
        ready = sum(cell.id in done for cell in cells)
        if ready < len(cells):
            where = list(dict.fromkeys(cell.dataset for cell in cells))
            sizes = _between([plan.trainable[label, dataset] for dataset in where])
            conditions = _between([len(cell.conditions) for cell in cells])
            named = where[0] if len(where) == 1 else f"{len(where)} datasets"
            table.add_row(escape(label), escape(named), f"{ready} of {len(cells)}", sizes, conditions)
    return table


def _between(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def _estimate(plan: Plan, done: dict[str, Record]) -> str:
    """From the cells of this results folder; a guess is not made without any."""
    seconds: dict[str, list[float]] = {}
    for record in done.values():
        spent = record.cost.get("train_seconds", 0.0) + record.cost.get("sweep_seconds", 0.0)
        seconds.setdefault(record.cell.dataset, []).append(spent)
    todo = [cell for cell in plan.cells if cell.id not in done]
    unknown = {cell.dataset for cell in todo} - set(seconds)
    total = sum(statistics.fmean(seconds[cell.dataset]) for cell in todo if cell.dataset in seconds)
    if not todo:
        return ""
    if len(unknown) == len({cell.dataset for cell in todo}):
        return "No time estimate: no cell of these datasets is done."
    note = f" (without {', '.join(sorted(unknown))}: never run here)" if unknown else ""
    return f"About {total / 60:.1f} minutes of one worker{note}."
