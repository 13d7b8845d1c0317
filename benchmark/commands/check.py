"""`polymodal check`: the conformance kit, for a method, a dataset or a corruption."""

from __future__ import annotations

import argparse
import json

from benchmark.arguments import add_data, add_json, use_data

NAME = "check"
HELP = "Check that a method, dataset or corruption keeps the contract; what fails says how to mend it."
EXAMPLE = """examples:
  polymodal check my_fusion --plugin my_fusion.py
  polymodal check digit_halves
  polymodal check gaussian_noise

Exit code: 0 all checks pass, 1 otherwise.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="a registered method, dataset or corruption")
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
        raise KeyError(f"nothing is registered as {name!r}. {did_you_mean(name, known)}")

    import torch

    from benchmark import conformance

    torch.set_num_threads(1)
    if name in methods.names():
        results = conformance.check_method(name)
    elif name in datasets.names():
        results = conformance.check_dataset(name, datasets.get(name))
    else:
        results = conformance.check_corruption(name)
    if arguments.json:
        print(json.dumps([vars(result) for result in results], indent=1))
    else:
        _show(name, results)
    return 0 if all(result.passed for result in results) else 1


def _show(name: str, results: list) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    marks = {"pass": "[green]pass[/green]", "warn": "[yellow]warn[/yellow]", "fail": "[red]FAIL[/red]"}
    counts = dict.fromkeys(marks, 0)
    for result in results:
        verdict = "fail" if not result.passed else "warn" if result.warning else "pass"
        counts[verdict] += 1
        said = escape("  ".join(filter(None, (result.variant, result.detail))))
        console.print(f"{marks[verdict]}  {result.check:<10} {result.probe:<16}  {said}".rstrip(), soft_wrap=True)
    passed = counts["pass"] + counts["warn"]
    warned = f" ({counts['warn']} with a warning)" if counts["warn"] else ""
    console.print(f"{name}: {passed} checks pass{warned}, {counts['fail']} fail")
