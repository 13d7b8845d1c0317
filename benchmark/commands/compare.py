"""`polymodal compare A B`: two methods, line by line. Imports no torch."""

from __future__ import annotations

import argparse
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.arguments import RESULTS, add_board, add_json, add_published, console_of, sources_of

if TYPE_CHECKING:
    from rich.console import Console

    from leaderboard.comparison import Comparison

NAME = "compare"
HELP = "Compare two methods: paired differences with intervals, and the rows where they differ."
EXAMPLE = """examples:
  polymodal compare gated concat                               every dataset both have
  polymodal compare gated concat --dataset digit_halves --all  every condition of one dataset
  polymodal compare mine concat --with reference               yours and a published one
  polymodal compare 'unimodal[upper]' concat --json            for a script"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("a", metavar="A", help="a method as the board shows it, e.g. 'unimodal[image]'")
    parser.add_argument("b", metavar="B", help="the method it is compared with")
    parser.add_argument("--dataset", action="append", metavar="D", help="only this dataset (may be given again)")
    parser.add_argument(
        "--results", action="append", type=Path, metavar="DIR", help="results folders (default: results)"
    )
    parser.add_argument("--all", action="store_true", help="also every single condition")
    parser.add_argument("--rows", type=int, default=10, help="rows that differ most, per dataset (default: 10)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder of the picture [results/leaderboard]")
    add_json(parser, "print JSON and draw nothing")
    add_board(parser)
    add_published(parser)


def run(args: argparse.Namespace) -> int:
    """Compare and print."""
    from leaderboard.comparison import compare
    from leaderboard.merge import gather

    sources, beside = sources_of(args, args.results or [Path(RESULTS)])
    evidence = gather(sources, args.dataset, args.skip_invalid, args.setting, beside)
    found = compare(evidence, args.a, args.b, args.all, args.rows)
    if args.json:
        print(json.dumps(_plain(found), indent=1))
        return 0
    _show(found)
    folder = args.output or (sources[0] / "leaderboard" if sources[0].is_dir() else None)
    if folder is not None:
        print(_draw(found, folder))
    return 0


def _plain(found: Comparison) -> dict[str, object]:
    from leaderboard.csv_and_json import plain

    return plain(found)


def _draw(found: Comparison, folder: Path) -> str:
    from leaderboard.plots import save_comparison

    name = re.sub(r"[^A-Za-z0-9_.=-]+", "_", f"compare-{found.a}-{found.b}")
    return "Picture: " + ", ".join(str(p) for p in save_comparison(found, folder / name))


def _show(found: Comparison) -> None:
    console = console_of(width=200)
    console.print(f"{found.a} against {found.b}; positive: {found.a} is better.\n", markup=False)
    _show_differences(console, found)
    _show_rows(console, found)
    for note in found.notes:
        console.print(f"! {note}.", style="yellow", markup=False)


def _show_differences(console: Console, found: Comparison) -> None:
    from rich.table import Table
    from rich.text import Text

    # Datasets are rows and conditions may wrap, so that every number is whole in a terminal of 80 columns.
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    table.add_column("Condition")
    for header, least, most in ((Text(found.a), 6, 12), (Text(found.b), 6, 12), ("Difference", 10, 10)):
        table.add_column(header, justify="right", overflow="fold", min_width=least, max_width=most)
    table.add_column("95 % interval", justify="right", min_width=16)
    table.add_column("", min_width=4)
    last = ""
    for d in found.differences:
        if d.dataset != last:
            table.add_section()
            table.add_row(Text(f"{d.dataset} ({d.metric})", style="bold"))
        last = d.dataset
        colour = {"win": "green", "loss": "red", "tie": "dim"}[d.verdict]
        span = f"[{d.low:+.3f}, {d.high:+.3f}]" if math.isfinite(d.high) else "unknown"
        numbers = (f"{d.a:.3f}", f"{d.b:.3f}", f"{d.difference:+.3f}", span)
        table.add_row(Text(d.what), *(Text(n, no_wrap=True) for n in numbers), Text(d.verdict, style=colour))
    console.print(table)
    console.print(
        f"Interval: of its line alone, over seeds and rows. Verdict: adjusted for all {len(found.differences)} lines "
        "(Holm, 5 %).",
        style="dim",
    )
    words = {"clean": "clean, over datasets", "robust": "robust, over datasets", "curve": "severity curves"}
    words |= {"missing": "absent subsets", "condition": "single conditions"}
    for kind, word in words.items():
        tally = found.tally(kind)
        if sum(tally.values()):
            console.print(f"{word}: {tally['win']} won, {tally['tie']} tied, {tally['loss']} lost", markup=False)


def _show_rows(console: Console, found: Comparison) -> None:
    from rich.table import Table
    from rich.text import Text

    if not found.rows:
        return
    console.print("\nRows that differ most: what a row adds to the score, mean over seeds and conditions", style="bold")
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    for header in ("Dataset", "Row", "Target", Text(found.a), Text(found.b), "Difference"):
        table.add_column(header, justify="left" if header == "Dataset" else "right", no_wrap=True)
    for r in found.rows:
        numbers = (f"{r.a:.3f}", f"{r.b:.3f}", f"{r.a - r.b:+.3f}")
        table.add_row(Text(r.dataset), str(r.row), Text(r.target), *(Text(n) for n in numbers))
    console.print(table)
