"""The arguments that commands share, and what they do: said once, they mean the same everywhere."""

from __future__ import annotations

import argparse
import math
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark import start

if TYPE_CHECKING:
    from rich.console import Console

    from benchmark.plan import Plan

ArgumentParser = argparse.ArgumentParser
RESULTS = "results"
_GRACE = 25.0  # seconds: Slurm and Kubernetes kill 30 s after their SIGTERM


def add_results(parser: ArgumentParser) -> None:
    """Where the records are."""
    parser.add_argument("--results", default=RESULTS, metavar="DIR", help="folder of the records (default: results)")


def add_folders(parser: ArgumentParser) -> None:
    """Which results folders, for commands that read several: by position, or by the option all commands have."""
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR",
                        help="results folders, exports (.parquet), scores (.csv) (default: results)")  # fmt: skip
    parser.add_argument("--results", action="append", default=[], type=Path, metavar="DIR", help="the same, as an "
                        "option; repeatable")  # fmt: skip


def folders_of(arguments: argparse.Namespace) -> list[Path]:
    """What `add_folders` was given."""
    return [*arguments.folders, *arguments.results] or [Path(RESULTS)]


def add_json(parser: ArgumentParser, what: str = "as JSON") -> None:
    """For scripts."""
    parser.add_argument("--json", action="store_true", help=what)


def add_plugins(parser: ArgumentParser) -> None:
    """What is not ours but the user's own."""
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE",
                        help="a Python file with @register-ed methods or datasets; its code is run")  # fmt: skip


def add_data(parser: ArgumentParser) -> None:
    """Where the user's data is, and the plugins that read it."""
    parser.add_argument("--data", metavar="DIR", help="folder with your data (default: $POLYMODAL_DATA)")
    add_plugins(parser)


def add_board(parser: ArgumentParser) -> None:
    """How records are compared."""
    parser.add_argument("--setting", choices=("default", "tuned"), help="methods at their defaults, or as tuned")
    parser.add_argument("--skip-invalid", action="store_true", help="go on without files that cannot be trusted")


def add_published(parser: ArgumentParser) -> None:
    """What others have measured."""
    parser.add_argument("--with", dest="beside", action="append", default=[], metavar="FILE",
                        help="published results to stand beside: `reference`, those that come with Polymodal, or an "
                             "export; repeatable")  # fmt: skip
    parser.add_argument("--reference", action="store_true", help="only the published results that come with Polymodal")


def sources_of(arguments: argparse.Namespace, results: list[Path]) -> tuple[list[Path], list[Path]]:
    """Where results are, and the published ones they are to stand beside.

    Raises:
        ValueError: If --reference is asked for together with others.
    """
    from leaderboard.reference import REFERENCE

    if arguments.reference:
        if arguments.beside or results != [Path(RESULTS)]:
            raise ValueError("--reference shows the published results alone; `--with reference` puts yours beside them")
        return [REFERENCE], []
    return results, [REFERENCE if name == "reference" else Path(name) for name in arguments.beside]


def add_matrix(parser: ArgumentParser) -> None:
    """Which cells."""
    parser.add_argument("matrix", nargs="?", default=None, help="a TOML file or a shipped matrix (default: quick)")
    parser.add_argument("--methods", type=names, metavar="A,B", help="only these methods; all: every one")
    parser.add_argument("--datasets", type=names, metavar="A,B", help="only these datasets")
    parser.add_argument("--seeds", type=at_least(1), metavar="N", help="seeds 0..N-1")
    parser.add_argument("--conditions", metavar="SET", help="standard, full, none, or a list of corruptions and groups")
    parser.add_argument("--set", action="append", default=[], metavar="NAME.KEY=VALUE", dest="settings",
                        help="an option of a method, a dataset, the recipe or the trainer; repeatable")  # fmt: skip
    add_data(parser)
    parser.add_argument("--weights", metavar="PATH", help="folder (or safetensors file) with the weights of encoders "
                        "(default: $POLYMODAL_WEIGHTS, then the hub)")  # fmt: skip
    add_results(parser)
    parser.add_argument("--no-baselines", action="store_true", help="do not add concat and unimodal")
    parser.add_argument("--devices", type=at_least(1), metavar="N", help="devices per cell (DDP when more than one)")


def add_execution(parser: ArgumentParser) -> None:
    """How cells are run."""
    parser.add_argument("--workers", type=at_least(0), metavar="N",
                        help="worker processes; 0 runs in this process (default: one per GPU or CPU core)")  # fmt: skip
    parser.add_argument("--workers-per-gpu", type=at_least(1), default=1, metavar="K", help="cells sharing one GPU")
    parser.add_argument("--executor", choices=("local", "ray"), default="local", help="this machine, or a Ray cluster")
    parser.add_argument("--ray-address", metavar="ADDRESS",
                        help="`auto` or the address of a running cluster (default: start one here)")  # fmt: skip
    parser.add_argument("--tries", type=at_least(1), metavar="N",
                        help="runs of a cell whose worker dies (default: 1, with ray 3)")  # fmt: skip
    parser.add_argument("--cell-timeout", type=seconds, metavar="SECONDS",
                        help="end a cell that runs longer and record it as failed")  # fmt: skip
    parser.add_argument("--grace", type=seconds, default=_GRACE, metavar="SECONDS",
                        help=f"after SIGTERM, time for running cells to end (default: {_GRACE:g}); then they are cut "
                             "off and run again next time")  # fmt: skip
    parser.add_argument("--logger", metavar="NAME", help="write training curves: csv, tensorboard, wandb or mlflow")
    parser.add_argument("--no-checkpoints", action="store_true", help="do not keep the trained weights")
    parser.add_argument("--quiet", action="store_true", help="no progress display, only failures and the last line")
    add_json(parser, "one JSON object per finished cell on standard output")


def check_execution(arguments: argparse.Namespace) -> None:
    """Say before anything is planned that what was asked for is not installed.

    Raises:
        ImportError: Ray is missing.
        UsageError: The logger is unknown, or its package missing.
    """
    from importlib.util import find_spec

    from benchmark.loggers import check_logger

    if arguments.executor == "ray" and find_spec("ray") is None:
        raise ImportError("--executor ray needs Ray, which is not installed: pip install 'polymodal[ray]'")
    if arguments.executor == "ray" and arguments.workers == 0:
        raise ValueError("--workers 0 runs in this process, so not on a Ray cluster")
    check_logger(arguments.logger)


def names(text: str) -> list[str]:
    """`a,b` as a list."""
    given = [name.strip() for name in text.split(",")]
    if not all(given):
        raise argparse.ArgumentTypeError(f"must be names with commas between them, got {text!r}")
    return given


def at_least(least: int) -> Any:
    """The type of a whole number that must not be smaller."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"must be a whole number >= {least}, got {text!r}")
        return value

    return number


def seconds(text: str) -> float:
    """A length of time."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, got {text!r}")
    return value


def cells(text: str) -> slice:
    """`I:J`, a part of a plan."""
    first, _, last = text.partition(":")
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise argparse.ArgumentTypeError(f"must be I:J with I <= J, got {text!r}")
    return slice(int(first), int(last))


def console_of(width: int) -> Console:
    """A console for tables; a pipe has no width, and no table is wrapped or cut for it."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=width)


def use_data(arguments: argparse.Namespace) -> None:
    """Make the user's folders and plugins known."""
    from datamodules.registry import load_plugin

    for name in ("data", "weights"):
        if getattr(arguments, name, None):
            os.environ[f"POLYMODAL_{name.upper()}"] = str(getattr(arguments, name))
    for plugin in arguments.plugin:
        load_plugin(plugin)


def plan_of(arguments: argparse.Namespace) -> Plan:
    """The plan that the command line describes."""
    from benchmark.matrix import DEFAULT, read, with_arguments

    use_data(arguments)
    matrix = with_arguments(
        read(arguments.matrix or DEFAULT),
        method_names=arguments.methods,
        dataset_names=arguments.datasets,
        seeds=arguments.seeds,
        settings=arguments.settings,
        conditions=arguments.conditions,
        trainer={"devices": arguments.devices} if arguments.devices else None,
        baselines=False if arguments.no_baselines else None,
    )
    first = start.ours and "benchmark.plan" not in sys.modules
    with start.importing() if first else nullcontext():
        from benchmark.plan import make_plan  # imports torch: only once every name is known to be right

        return make_plan(matrix)
