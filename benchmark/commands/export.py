"""`polymodal export`: results in one small file that a board reads. Imports no torch."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmark.arguments import RESULTS, add_board, names

NAME = "export"
HELP = "write results into one small, typed file that boards and comparisons read"
EXAMPLE = """examples:
  polymodal export --output mine.parquet
  polymodal leaderboard mine.parquet
  polymodal export results other --output leaderboard/reference/reference.parquet --publish

Default and tuned results go into one file. Predictions, learning curves and checkpoints stay in the folder.
--publish writes a README beside the file: command lines, machine, date, what is in it, its SHA-256.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("results", nargs="*", type=Path, default=[Path(RESULTS)], help="results folders and exports")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the file to write (.parquet)")
    parser.add_argument("--datasets", type=names, metavar="A,B", help="only these; `name@version` asks for a version")
    parser.add_argument("--publish", action="store_true", help="also write README.md beside the file")
    parser.add_argument("--command", dest="commands", action="append", default=[], metavar="LINE",
                        help="a command line that made the results, for the README; repeatable")  # fmt: skip
    add_board(parser)


def run(args: argparse.Namespace) -> int:
    """Write the file."""
    from leaderboard.publish import publish

    if args.output.suffix != ".parquet":
        raise ValueError(f"--output must end in .parquet, got {args.output}")
    settings = None if args.setting is None else (args.setting,)
    done = publish(args.results, args.output, args.datasets, args.skip_invalid, settings, args.commands, args.publish)
    for note in done.notes:
        print(f"! {note}", file=sys.stderr)
    print(f"{args.output}: {done.cells} cells, {done.entries} with rows to compare, {done.size:,} bytes")
    print(f"sha256 {done.sha256}")
    return 0
