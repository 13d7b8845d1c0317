"""`polymodal submit`: a method's results and code in one folder, to be published."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmark.arguments import RESULTS, add_plugins, names

NAME = "submit"
HELP = "Collect records, predictions and code of a method into a folder that others can verify."
EXAMPLE = """examples:
  polymodal submit results --name my-fusion --plugin my_fusion.py --licence MIT --output my-fusion
  polymodal verify my-fusion --rerun 2
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("results", nargs="?", type=Path, default=Path(RESULTS), help="results folder")
    parser.add_argument("--name", required=True, help="of the submission: letters, digits, - and _")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="folder to make")
    parser.add_argument("--licence", required=True, metavar="TEXT",
                        help="under which code and results may be published, e.g. MIT")  # fmt: skip
    parser.add_argument("--methods", type=names, metavar="A,B", help="only these (default: all of the folder)")
    add_plugins(parser)


def run(args: argparse.Namespace) -> int:
    """Make the folder."""
    from benchmark.submission import EXPORT, submit

    plugins = [Path(plugin) for plugin in args.plugin]
    made = submit(args.results, args.name, args.output, plugins, args.licence, args.methods)
    print(f"{args.output}: {', '.join(made.methods)}, {len(made.files)} files, manifest and {EXPORT} among them")
    print(f"Next: polymodal verify {args.output} --rerun 2")
    return 0
