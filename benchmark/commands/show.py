"""`polymodal show`: one cell's record, for people."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from benchmark.arguments import add_json, add_results
from benchmark.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from leaderboard.record import Record
    from leaderboard.store import Store

NAME = "show"
HELP = "Show one cell: its scores under every condition, its training, cost and provenance, or its error."
EXAMPLE = """examples:
  polymodal show concat-digit_halves-0-4be0d2f3a1c9
  polymodal show concat-digit_halves     the beginning of an id: the cell, or a table of those that begin so
  polymodal show                         a table of all
  polymodal show concat-digit_halves-0-4be0d2f3a1c9 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cell", nargs="?", default="", help="the cell's id, or a beginning of it (default: all cells)")
    add_results(parser)
    add_json(parser, "the record as it is stored")


def run(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from leaderboard.store import Store

    records = find(arguments.cell, Store(arguments.results))
    if arguments.json:
        shown = [record.to_json() for record in records]
        print(shown[0] if len(shown) == 1 else f"[{','.join(shown)}]")
    elif len(records) == 1:
        _show(records[0], Console())
    else:
        _show_several(records)
    return 0


def find(cell: str, store: Store) -> list[Record]:
    """The records whose ids begin so, or the one whose id it is.

    Raises:
        ValueError: If there is none.
    """
    ids = sorted(path.stem for path in store.folder.glob("*.json"))
    matching = [i for i in ids if i == cell] or [i for i in ids if i.startswith(cell)]
    if not matching:
        some = ", ".join(ids[:5]) or "none"
        more = " ..." if len(ids) > 5 else ""
        raise ValueError(f"no cell in {store.folder} begins with {cell!r}; there are {some}{more}")
    return [record for i in matching if (record := store.read(i)) is not None]


def _show_several(records: list[Record]) -> None:
    """A line per cell. The id comes last and whole: it is what is typed or pasted next, and ids differ at their end."""
    for record in sorted(records, key=lambda r: (r.cell.dataset, r.cell.label, r.cell.seed)):
        cell = record.cell
        score = "failed" if record.error is not None else f"{record.clean:.4f}"
        print(f"{score:>8}  {cell.metric:<10} seed {cell.seed:<4} {cell.id}")
    print(f"{len(records)} cells: polymodal show ID shows one of them")


def _show(record: Record, console: Console) -> None:
    from rich.markup import escape

    cell, error = record.cell, record.error
    console.print(f"[bold]{escape(cell.label)}[/bold] on {escape(cell.dataset)}, seed {cell.seed} ({cell.track})")
    console.print(f"cell {cell.id}, finished {escape(printable(record.provenance.get('finished'), 100))}")
    if cell.options:
        console.print(escape(printable(f"options {cell.options}")))
    if error is not None:
        console.print(f"[red]failed:[/red] {escape(error.type)}: {escape(printable(error.message))}")
        console.print(escape(printable(error.traceback, limit=100_000)))
        return
    known = {"trivial": record.trivial, "best possible": cell.bayes}
    limits = ", ".join(f"{name} {value:.4f}" for name, value in known.items() if value is not None)
    console.print(f"{escape(cell.metric)} {record.clean:.4f} on {record.rows:,} rows ({limits})")
    console.print(_conditions(record))
    for stage in record.training:
        console.print(
            f"stage {escape(stage.name)}: {stage.epochs} epochs, {stage.steps} steps, best epoch "
            f"{'-' if stage.best_epoch is None else stage.best_epoch}, {stage.seconds:.1f} s"
            f"{'' if stage.converged else ' [yellow](not converged: best in the last tenth of its epochs)[/yellow]'}"
        )
    for line in _trials(record):
        console.print(escape(line), highlight=False)
    for title, values in (("summary", record.summary), ("cost", record.cost)):
        if values:
            console.print(escape(f"{title}: {_numbers(values)}"))


def _trials(record: Record, width: int = 30) -> Iterator[str]:
    """The validation score of each trial as a bar, longer is better, and the values that were chosen."""
    tuning, cell = record.cell.tuning, record.cell
    if tuning is None:
        return
    known = [score for score in tuning.scores if score is not None]
    worst, best = (min(known), max(known))[:: 1 if cell.higher_is_better else -1]
    yield f"tuned by {len(tuning.scores)} trials on validation rows (0 is the default), {cell.metric}:"
    for trial, score in enumerate(tuning.scores):
        share = 1.0 if score is None or best == worst else (score - worst) / (best - worst)
        bar = "failed" if score is None else f"{score:.4f} " + "#" * (1 + round(share * (width - 1)))
        yield f"  {trial:>2} {bar}{' <- chosen' if trial == tuning.trial else ''}"
    recipe = ", ".join(f"{key} {value}" for key, value in cell.recipe.items())
    yield f"  chosen recipe: {recipe}"


def _conditions(record: Record) -> Table:
    """A line per condition; columns that no condition fills are left out."""
    from rich.markup import escape
    from rich.table import Table

    extras = {
        "calibration": [_numbers(c.calibration) for c in record.conditions],
        "weights": [" ".join(f"{w:.2f}" for w in c.weights or ()) for c in record.conditions],
        "diagnostics": [_numbers(c.diagnostics) for c in record.conditions],
    }
    shown = {name: column for name, column in extras.items() if any(column)}
    table = Table()
    table.add_column("condition", overflow="fold")  # names that are cut off look alike
    for name in (record.cell.metric, *shown):
        table.add_column(escape(name))
    for c, *rest in zip(record.conditions, *shown.values(), strict=True):
        table.add_row(escape(c.id), f"{c.score:.4f}", *map(escape, rest))
    return table


def _numbers(values: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items() if value is not None)
