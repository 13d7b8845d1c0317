"""`polymodal run`: every cell of a matrix that has no valid record yet."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmark.arguments import RESULTS, add_execution, add_matrix, cells, check_execution, plan_of

if TYPE_CHECKING:
    from benchmark.plan import Plan
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_matrix(parser)
    add_execution(parser)
    parser.add_argument("--tuned", metavar="FILE", help="the choices of `polymodal tune`: every method at its best")
    parser.add_argument("--cells", type=cells, metavar="I:J", help="only these cells of the plan, counted from 0")
    parser.add_argument("--only-missing", action="store_true", help="skip cells that are done (this is the default)")
    parser.add_argument("--rerun", action="store_true", help="run every cell again, even those with a valid record")


def run(arguments: argparse.Namespace) -> int:
    from leaderboard.store import Store

    if arguments.rerun and arguments.only_missing:
        raise ValueError("--rerun runs every cell again, --only-missing those without a record: choose one")
    check_execution(arguments)
    store = Store(arguments.results)
    store.prepare()
    return carry_out(plan_of(arguments), store, arguments)


def carry_out(plan: Plan, store: Store, arguments: argparse.Namespace) -> int:
    """Run what is left of a plan and say what came of it."""
    from leaderboard.convergence import training_warnings
    from leaderboard.not_applicable import remember

    remember(store.folder, {(n.label, n.dataset): n.reason for n in plan.not_applicable})
    if arguments.tuned:
        from pathlib import Path

        from benchmark.tune import apply, read

        plan = apply(plan, read(Path(arguments.tuned)))
    if arguments.cells is not None:
        plan = replace(plan, cells=plan.cells[arguments.cells])
    if arguments.rerun:
        for cell in plan.cells:
            store.path(cell.id).unlink(missing_ok=True)
    settled = store.settled([cell.id for cell in plan.cells])
    todo = [cell for cell in plan.cells if cell.id not in settled]
    for fault in plan.faulty:
        print(f"failed to plan: {fault}", file=sys.stderr)
    if not arguments.quiet and not arguments.json:
        _announce(plan, len(plan.cells) - len(todo))
    from benchmark.executors.foreground import execute, exit_code

    outcome = execute(todo, store, arguments)
    vanished = [record for record in outcome.records if not store.path(record.cell.id).exists()]
    if vanished:
        print(
            f"{len(vanished)} records of this run are no longer in {store.folder}: who deleted them?", file=sys.stderr
        )
    if not arguments.json:
        failed = len(outcome.failed)
        print(
            f"{len(plan.cells)} cells: {len(outcome.records) - failed} run, {len(plan.cells) - len(todo)} cached, "
            f"{failed} failed, {outcome.left} left, {outcome.seconds:.0f} s. Records: {store.folder}/"
        )
        for warning in training_warnings(outcome.records):
            print(warning, file=sys.stderr)
        if plan.faulty:
            print(f"{len(plan.faulty)} entries of the plan failed before there was a cell of them (see above)")
        if not arguments.quiet and len(plan.cells) > failed + outcome.left:
            folder = "" if arguments.results == RESULTS else f" {arguments.results}"
            print(f"next: polymodal leaderboard{folder}")
    return exit_code(outcome) or int(bool(vanished or plan.faulty))


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
