"""`polymodal study NAME`: reproduce the experiments behind a method or a table."""

import argparse
import ast
from importlib import import_module
from pathlib import Path

NAME = "study"
HELP = "Reproduce the experiments behind a method or a table."
EXAMPLE = """examples:
  polymodal study energy --out results/studies/energy          figures, numbers and a verdict
  polymodal study energy --help                                the options of one study
"""

_FOLDER = Path(__file__).parents[1] / "studies"


def studies() -> dict[str, str]:
    """Every study and the first line of its docstring, read without importing it: a study imports torch."""
    known = {}
    for path in sorted(_FOLDER.glob("[!_]*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        known[path.stem] = text.partition("\n")[0]
    return known


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the study's name; what follows it belongs to the study."""
    known = studies()
    listing = " ".join(f"{name}: {about}" for name, about in known.items())
    # argparse formats help with %.
    parser.add_argument("study", choices=tuple(known), help=listing.replace("%", "%%"))
    # Read by the study itself once it was chosen, again so that nothing is imported before.
    parser.add_argument("options", nargs=argparse.REMAINDER, help="its options: `polymodal study NAME --help`")


def run(args: argparse.Namespace) -> int:
    """Run the chosen study and return its exit code."""
    study = import_module(f"benchmark.studies.{args.study}")
    parser = argparse.ArgumentParser(prog=f"polymodal study {args.study}", description=studies()[args.study])
    study.add_arguments(parser)
    return study.run(parser.parse_args(args.options))
