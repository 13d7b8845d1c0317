"""`polymodal study NAME`: reproduce the experiments behind a method."""

import argparse
from importlib import import_module

NAME = "study"
HELP = "reproduce the experiments behind a method (energy, centers, interactions)"

STUDIES = {
    "energy": "EMMA's potentials: four 2-D manifolds, noisy and unseen digits",
    "centers": "class centres: regularisers and skewed means",
    "interactions": "which interactions between modalities a method can learn",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the study's name; what follows it belongs to the study."""
    listing = "; ".join(f"{name}: {about}" for name, about in STUDIES.items())
    parser.add_argument("study", choices=sorted(STUDIES), help=listing)
    # A study imports torch and this file must not, so its own options are only read once it was chosen.
    parser.add_argument("options", nargs=argparse.REMAINDER, help="its options: `polymodal study NAME --help`")


def run(args: argparse.Namespace) -> int:
    """Run the chosen study and return its exit code."""
    study = import_module(f"benchmark.studies.{args.study}")
    parser = argparse.ArgumentParser(prog=f"polymodal study {args.study}", description=STUDIES[args.study])
    study.add_arguments(parser)
    return study.run(parser.parse_args(args.options))
