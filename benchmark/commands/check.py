"""`polymodal check`: the conformance kit, for a method, a dataset or a corruption."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.arguments import add_data, add_json, use_data
from benchmark.chosen_dataset import add_dataset_options, chosen_dataset

if TYPE_CHECKING:
    from benchmark.conformance import Result

NAME = "check"
HELP = "Check that a method, dataset or corruption keeps the contract; what fails says how to mend it."
EXAMPLE = """examples:
  polymodal check my_fusion --plugin my_fusion.py
  polymodal check digit_halves
  polymodal check csv_views --matrix mine.toml                  a file of yours, as the matrix reads it
  polymodal check gaussian_noise

Exit code: 0 all checks pass, 1 otherwise.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="a registered method, dataset or corruption")
    add_dataset_options(parser)
    add_data(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from datamodules.corruptions.registry import corruptions
    from datamodules.registry import datasets, did_you_mean
    from methods.registry import methods

    use_data(arguments)
    name = arguments.name
    known = (*methods.names(), *datasets.names(), *corruptions.names())
    if name not in known:
        raise KeyError(f"nothing is registered as {name!r}. {_here(name) or did_you_mean(name, known)}")

    import torch

    from benchmark import conformance

    torch.set_num_threads(1)
    if name in methods.names():
        results = conformance.check_method(name)
    elif name in datasets.names():
        settings, matrix = arguments.settings, arguments.matrix
        results = conformance.check_dataset(name, lambda: chosen_dataset(name, matrix, settings))
    else:
        results = conformance.check_corruption(name)
    if arguments.json:
        print(json.dumps([vars(result) for result in results], indent=1))
    else:
        _show(name, results)
    return 0 if all(result.passed for result in results) else 1


def _here(name: str) -> str:
    """What to type when the name is that of a file, or the file itself."""
    path = Path(name if name.endswith(".py") else f"{name}.py")
    return f"For the plugin of this folder: polymodal check {path.stem} --plugin {path}" if path.is_file() else ""


def _show(name: str, results: list[Result]) -> None:
    """A line per check that passes, and one per thing that is to be known or to be mended."""
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    passed = {
        check: [r for r in results if r.check == check and r.passed]
        for check in dict.fromkeys(r.check for r in results)
    }
    for check, several in passed.items():
        if several:
            console.print(f"[green]pass[/green]  {check:<10} {_places(several)}", soft_wrap=True)
    said: set[str] = set()
    marks = {"fail": "[red]FAIL[/red]", "warning": "[yellow]warn[/yellow]", "note": "[dim]note[/dim]"}
    for result in sorted(results, key=lambda r: (not r.passed, r.warning)):
        if not result.detail or result.cause in said:
            continue
        said.add(result.cause)
        kind = "fail" if not result.passed else "warning" if result.warning else "note"
        place = " ".join(filter(None, (result.check, result.probe, result.variant)))
        console.print(f"{marks[kind]}  {escape(place)}: {escape(result.detail)}", soft_wrap=True)
    failed, warned = sum(not r.passed for r in results), sum(r.warning for r in results)
    notice = f" ({warned} with a warning)" if warned else ""
    console.print(f"{name}: {len(results) - failed} checks pass{notice}, {failed} fail")


def _places(results: list[Result]) -> str:
    """Where a check passed: the tasks it was tried on, and with how many sets of options besides the defaults."""
    probes = ", ".join(dict.fromkeys(r.probe for r in results if r.probe))
    options = len({r.variant for r in results if r.variant})
    return probes + (f" (and with {options} other sets of options)" if options > 1 else "")
