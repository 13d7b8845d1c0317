"""`polymodal tune`: the same number of trials for every method on every dataset, judged on validation rows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.arguments import add_execution, add_matrix, at_least, check_execution, plan_of

if TYPE_CHECKING:
    from benchmark.plan import Plan
    from benchmark.tune import Trials, Tuned
    from leaderboard.record import Record
    from leaderboard.store import Store

NAME = "tune"
HELP = "Choose each method's values by equally many trials on validation rows; `run --tuned` then runs the choice."
EXAMPLE = """examples:
  polymodal tune core --trials 8
  polymodal tune core --trials 8 --dry-run           how many trials there are and what they cost, without one
  polymodal tune --methods gated,concat --datasets digit_halves --trials 8 --workers 2
  polymodal run core --tuned results/tuned.toml --seeds 5

Trial 0 is the default. Trials are kept in RESULTS/trials: an interrupted `tune` goes on where it was. Choices of
other methods or datasets that RESULTS/tuned.toml has already, by as many trials, are kept.
Exit codes are those of `run`.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_matrix(parser)
    add_execution(parser)
    parser.add_argument("--trials", type=at_least(1), default=8, metavar="T", help="of every method (default: 8)")
    parser.add_argument("--budget-seeds", type=at_least(1), default=1, metavar="N", help="seeds per trial (default: 1)")
    parser.add_argument("--dry-run", action="store_true", help="say how many trials and minutes it takes, and stop")


def run(arguments: argparse.Namespace) -> int:
    from leaderboard.store import Store

    check_execution(arguments)
    store = Store(Path(arguments.results) / "trials")
    return carry_out(plan_of(arguments), store, arguments)


def carry_out(plan: Plan, store: Store, arguments: argparse.Namespace) -> int:
    """Run the trials of a plan and write down what they choose."""
    from benchmark.executors.foreground import execute, exit_code
    from benchmark.matrix import DEFAULT
    from benchmark.tune import choose, kept, plan_trials, write

    for fault in plan.faulty:
        print(f"failed to plan: {fault}", file=sys.stderr)
    trials = plan_trials(plan, arguments.trials, arguments.budget_seeds)
    path = Path(arguments.results) / "tuned.toml"
    others = kept(path, trials, arguments.trials, arguments.budget_seeds)
    cells = {cell.id: cell for one in trials for cells in one.cells for cell in cells}
    known = {cell: record for cell in cells if (record := store.done(cell)) is not None}
    if arguments.dry_run or not (arguments.quiet or arguments.json):
        timed = [*known.values(), *_runs(Path(arguments.results))] if arguments.dry_run else list(known.values())
        print(_announcement(trials, known, timed), file=sys.stdout if arguments.dry_run else sys.stderr)
    if arguments.dry_run:
        return 0
    store.prepare()
    outcome = execute([cell for cell in cells.values() if cell.id not in known], store, arguments)
    if outcome.left:
        return exit_code(outcome) or 1
    known |= {record.cell.id: record for record in outcome.records}
    tuned = choose(trials, known, arguments.trials, arguments.budget_seeds, others)
    write(tuned, path)
    if not arguments.json:
        _show(tuned)
        print(f"Choices: {path}. Next: polymodal run {arguments.matrix or DEFAULT} --tuned {path}")
    return exit_code(outcome) or int(bool(plan.faulty))


def _runs(folder: Path) -> list[Record]:
    """The cells that have been run, whose seconds say what a trial takes."""
    from leaderboard.store import Store

    return [record for path in folder.glob("*.json") if (record := Store(folder).done(path.stem)) is not None]


def _announcement(trials: Sequence[Trials], known: dict[str, Record], timed: Sequence[Record]) -> str:
    """What it costs, before it starts; an estimate only from cells of the same dataset."""
    seconds: dict[str, list[float]] = {}
    for record in timed:
        own = record.cost.get("train_seconds", 0.0) + record.cost.get("sweep_seconds", 0.0) / len(record.conditions)
        seconds.setdefault(record.cell.dataset, []).append(own)
    cells = {cell.id: cell for one in trials for tried in one.cells for cell in tried}
    todo = [cell for cell in cells.values() if cell.id not in known]
    unknown = sorted({cell.dataset for cell in todo} - set(seconds))
    guess = sum(sum(own) / len(own) for cell in todo if (own := seconds.get(cell.dataset)))
    about = f", about {guess / 60:.1f} minutes of one worker" if guess else ""
    without = f" (without {', '.join(unknown)}: never run here)" if unknown and guess else ""
    done = len(cells) - len(todo)
    return f"{len(trials)} entries, {len(cells)} trials, {done} of them done already{about}{without}"


def _show(tuned: Tuned) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("method", "dataset", "trial", "validation", "default", "chosen")
    for choice in tuned.choice:
        values = ", ".join(f"{k} = {v}" for k, v in {**choice.recipe, **choice.options}.items())
        scores = [f"{choice.scores[t]:.4f}" for t in (choice.trial, 0)]
        table.add_row(Text(choice.label), Text(choice.dataset), str(choice.trial), *scores, Text(values))
    Console().print(table)
