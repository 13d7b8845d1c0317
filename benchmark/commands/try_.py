"""`polymodal try FILE`: your own data, or your own method, from a file to an answer in minutes."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.arguments import add_execution, add_plugins, at_least
from benchmark.errors import printable

if TYPE_CHECKING:
    from benchmark.executors.foreground import Outcome
    from benchmark.matrix import Matrix
    from benchmark.own_data.guess import Guess
    from leaderboard.merge import Evidence

NAME = "try"
HELP = "Try your own data (a CSV, parquet, a folder of images with captions) or your own method (a .py file)."
EXAMPLE = """examples:
  polymodal try patients.csv --target outcome                               groups and task are guessed, and said
  polymodal try patients.csv --target outcome --groups blood=hb,crp person=age,sex
  polymodal try photos/ --target shape                                      images with captions (captions.jsonl)
  polymodal try photos/                                                     a text beside each image (a.png, a.txt)
  polymodal try patients.csv --target outcome --look                        only what would be assumed
  polymodal try my_fusion.py                                                a method of yours: check, run, place

Words become categories, empty cells are filled in and flagged, both by training rows. What was assumed is written as a
matrix file: edit it and go on with `polymodal run`.
"""
SEEDS = 3
_TABLES = (".csv", ".tsv", ".txt", ".parquet", ".gz", ".zip", ".xz", ".bz2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="a table, a folder (or .jsonl) of images, or a .py file"
    )
    parser.add_argument("--target", metavar="COLUMN", help="what is to be predicted")
    parser.add_argument("--groups", nargs="+", type=group, metavar="NAME=A,B", help="columns that belong together; "
                        "A..B is a range")  # fmt: skip
    parser.add_argument("--metric", metavar="NAME", default="", help="accuracy, f1, auroc, .. (default: one that sees "
                        "small classes)")  # fmt: skip
    parser.add_argument("--seeds", type=at_least(1), metavar="N",
                        help=f"runs of each method (default: {SEEDS}; for a method of yours 2)")  # fmt: skip
    parser.add_argument("--matrix", type=Path, metavar="FILE", help="where to write the options (default: STEM.toml)")
    parser.add_argument("--results", metavar="DIR", help="folder of the records (default: results/try-STEM)")
    parser.add_argument("--look", action="store_true", help="say what would be assumed, write the matrix, run nothing")
    add_plugins(parser)
    add_execution(parser)


def group(text: str) -> tuple[str, list[str]]:
    """`blood=hb,crp` as a name and its columns."""
    name, equals, columns = text.partition("=")
    found = [column.strip() for column in columns.split(",") if column.strip()]
    if not name.strip() or not equals or not found:
        raise argparse.ArgumentTypeError(f"must be NAME=COLUMN,COLUMN, got {text!r}")
    return name.strip(), found


def run(arguments: argparse.Namespace) -> int:
    if arguments.file.suffix == ".py":
        from benchmark.commands.try_method import run as try_method

        return try_method(arguments)
    if not arguments.file.exists():
        raise FileNotFoundError(f"there is nothing at {arguments.file}")
    guess = guessed(arguments)
    print(*map(printable, guess.said), sep="\n")
    trial = prepared(arguments, guess)
    print(*map(printable, trial.said), sep="\n")
    return 0 if arguments.look else _answer(arguments, trial)


def guessed(arguments: argparse.Namespace) -> Guess:
    """What the file seems to be.

    Raises:
        ValueError: If nothing can be made of it.
    """
    path: Path = arguments.file
    if path.is_dir() or path.suffix in (".jsonl", ".json"):
        from benchmark.own_data.guess_images import guess_images
        from benchmark.own_data.text_files import as_table

        if arguments.groups:
            raise ValueError("--groups is for the columns of a table; a folder of images has an image and a text")
        table = Path(f"{_stem(path)}_captions.csv")
        said = as_table(path, table)
        guess = guess_images(table if said else path, arguments.target)
        return replace(guess, said=(said, *guess.said)) if said else guess
    if path.suffix not in _TABLES:
        known = ", ".join((*_TABLES, ".jsonl", ".py"))
        raise ValueError(f"{path}: a folder, or a file that ends in {known}, was expected")
    if arguments.target is None:
        raise ValueError("--target COLUMN must say what is to be predicted")
    from benchmark.own_data.guess_table import guess_table

    groups = dict(arguments.groups) if arguments.groups else None
    if groups is not None and len(groups) < 2:
        raise ValueError("--groups must name two groups or more: --groups blood=hb,crp person=age,sex")
    return guess_table(path, arguments.target, groups)


def _stem(path: Path) -> str:
    return path.absolute().name.partition(".")[0] or "mine"


@dataclass(frozen=True)
class Trial:
    """What is going to be run, where its records go, and what is to be said of it first."""

    matrix: Matrix
    results: str
    said: tuple[str, ...]


def prepared(arguments: argparse.Namespace, guess: Guess) -> Trial:
    """Read the rows as guessed, and write the matrix that is to be run."""
    import tomli_w

    from benchmark.build import resolve_dataset
    from benchmark.matrix import parse
    from benchmark.own_data.small_board import matrix_of

    stem = _stem(arguments.file)
    metric: dict[str, Any] = {"metric": arguments.metric} if arguments.metric else {}
    data = resolve_dataset(guess.dataset, {**guess.options, **metric}, str(arguments.file))[0]
    raw = matrix_of(guess, data.task, len(data.splits["train"].target), arguments.seeds or SEEDS)
    raw["datasets"][0] |= metric
    recipe, results = raw["recipe"], arguments.results or f"results/try-{stem}"
    path = arguments.matrix or Path(f"{stem}.toml")
    path.write_text(tomli_w.dumps(raw), encoding="utf-8")
    said = [note.partition(": ")[2] for note in data.notes]
    said.append(
        f"split: {', '.join(f'{name} {len(part.target):,}' for name, part in data.splits.items())} rows, fixed; "
        f"scored by {data.task.metric}; batches of {recipe['batch_size']}, {recipe['epochs']} epochs at most"
    )
    said.append(f"matrix: {path} (edit it, then: polymodal run {path} --results {results})")
    return Trial(parse(raw, path.name), results, tuple(said))


def _answer(arguments: argparse.Namespace, trial: Trial) -> int:
    from benchmark.executors.foreground import exit_code
    from benchmark.own_data.verdict import advised_cell, sentences, table

    outcome, evidence = carry_out(arguments, trial)
    if outcome.left or not evidence.records:
        return exit_code(outcome) or 1
    print("", *table(evidence), "", *sentences(evidence), "", sep="\n")
    print(f"Next: polymodal leaderboard --results {trial.results}")
    if evidence.records[0].cell.dataset.startswith("csv_views") and (cell := advised_cell(evidence)):
        print(f"      polymodal predict {cell} NEW_ROWS.csv --results {trial.results}")
    return exit_code(outcome)


def carry_out(arguments: argparse.Namespace, trial: Trial) -> tuple[Outcome, Evidence]:
    """Run what has no record yet, and gather these cells alone: the folder may hold others of the same rows."""
    from benchmark.executors.foreground import execute
    from benchmark.plan import make_plan
    from leaderboard.merge import Evidence
    from leaderboard.not_applicable import remember
    from leaderboard.store import Store

    plan, store = make_plan(trial.matrix), Store(trial.results)
    store.prepare()
    remember(store.folder, {(n.label, n.dataset): n.reason for n in plan.not_applicable})
    todo = [cell for cell in plan.cells if store.done(cell.id) is None]
    if not arguments.quiet:
        print(f"{len(plan.cells)} cells, {len(plan.cells) - len(todo)} of them done already", file=sys.stderr)
    outcome = execute(todo, store, arguments)
    records = [record for c in plan.cells if (record := store.read(c.id)) is not None]
    good, bad = (tuple(r for r in records if r.status == status) for status in ("ok", "failed"))
    return outcome, Evidence(good, bad, {r.cell.id: store for r in records}, (), {})
