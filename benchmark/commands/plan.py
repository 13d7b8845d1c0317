"""`polymodal plan`: what `run` would do, without doing it."""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.arguments import add_matrix, at_least, plan_of

if TYPE_CHECKING:
    from benchmark.plan import Plan
    from leaderboard.record import Record

NAME = "plan"
HELP = "Show the cells of a matrix, which are done, what does not apply, and how long the rest will take."
EXAMPLE = """examples:
  polymodal plan
  polymodal plan core --json
  polymodal plan --methods concat,late --datasets digit_halves --seeds 5
  polymodal plan core --format slurm-array --per-task 8 --output job.sh && sbatch job.sh
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
    done = {cell.id: record for cell in plan.cells if (record := store.done(cell.id)) is not None}
    if arguments.format == "json":
        _write(json.dumps(_as_json(plan, done), indent=1) + "\n", arguments.output)
    else:
        _show(plan, done)
    return 0


def _write(text: str, path: str | None) -> None:
    if path:
        Path(path).write_text(text, encoding="utf-8")
    else:
        print(text, end="")


def _as_json(plan: Plan, done: dict[str, Record]) -> dict[str, object]:
    cells = [
        {"cell": c.id, "method": c.label, "dataset": c.dataset, "seed": c.seed, "parameters": c.parameters,
         "conditions": len(c.conditions), "done": c.id in done}
        for c in plan.cells
    ]  # fmt: skip
    return {"cells": cells, "not_applicable": [vars(n) for n in plan.not_applicable], "added": list(plan.added)}


def _show(plan: Plan, done: dict[str, Record]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("method", "dataset", "seeds", "done", "parameters", "conditions")
    rows: dict[tuple[str, str], list[str]] = {}
    facts: dict[tuple[str, str], tuple[int, int]] = {}
    for cell in plan.cells:
        rows.setdefault((cell.label, cell.dataset), []).append(cell.id)
        facts[cell.label, cell.dataset] = (cell.parameters, len(cell.conditions))
    for (label, dataset), ids in rows.items():
        ready = sum(i in done for i in ids)
        size, conditions = facts[label, dataset]
        table.add_row(escape(label), escape(dataset), str(len(ids)), str(ready), f"{size:,}", str(conditions))
    console = Console()
    console.print(table)
    for skipped in plan.not_applicable:
        where = escape(f"{skipped.label} on {skipped.dataset}: {skipped.reason}")
        console.print(f"[yellow]not applicable:[/yellow] {where}")
    for note in plan.notes:
        console.print(f"[yellow]note:[/yellow] {escape(note)}")
    left = len(plan.cells) - len(done)
    console.print(f"{len(plan.cells)} cells, {len(done)} done, {left} to run. {_estimate(plan, done)}")


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
        return "No time estimate: nothing has run here yet."
    note = f" (without {', '.join(sorted(unknown))}: never run here)" if unknown else ""
    return f"About {total / 60:.1f} minutes of one worker{note}."
