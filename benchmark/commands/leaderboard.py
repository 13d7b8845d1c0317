"""`polymodal leaderboard`: tables, page and plots from results folders. Imports no torch."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.arguments import add_board, add_folders, add_published, console_of, folders_of, names, sources_of

if TYPE_CHECKING:
    from leaderboard.board import Board

NAME = "leaderboard"
HELP = "Rank methods from results folders, exports or a table of scores: table, files, page and plots."

FORMATS = ("terminal", "markdown", "csv", "latex", "html", "json")
LEAGUES = ("vectors", "tokens", "same-shaped images", "retrieval", "interactions")
VIEWS = ("overview", "clean", "robust", "missing", "audit", "cost")
EXAMPLE = """examples:
  polymodal leaderboard                              the table, and leaderboard.{md,csv,html} in results/leaderboard
  polymodal leaderboard mine theirs --slice robust   two results folders merged, the robust columns
  polymodal leaderboard --format latex --datasets digit_halves > table.tex
  polymodal leaderboard --league tokens              where attention methods live: images, sequences, texts
  polymodal leaderboard --plots figures              PNG and SVG files for a paper
  polymodal leaderboard --reference                  the published results that come with Polymodal
  polymodal leaderboard --with reference             your results beside them
  polymodal leaderboard scores.csv                   method, dataset, seed, score: results of other code"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_folders(parser)
    parser.add_argument("--format", choices=FORMATS, help="print only this; default: table and files")
    parser.add_argument("--slice", choices=VIEWS, default="overview", help="which columns (default: overview)")
    parser.add_argument("--league", choices=LEAGUES, help="only datasets of this shape, and who is complete on them")
    parser.add_argument("--track", choices=("plain", "augmented"), help="only this track (never in one table)")
    parser.add_argument("--datasets", type=names, metavar="A,B", help="only these; `name@version` asks for a version")
    parser.add_argument("--output", type=Path, help="folder of leaderboard.{md,csv,html} [results/leaderboard]")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="also write plots as PNG and SVG")
    add_board(parser)
    add_published(parser)
    parser.add_argument("--quiet", action="store_true", help="write the files, print no table")


def run(args: argparse.Namespace) -> int:
    """Print or write the board."""
    from leaderboard.store import no_garbage

    with no_garbage():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from leaderboard.board import build_all, of_league
    from leaderboard.merge import BoardError, gather

    sources, beside = sources_of(args, folders_of(args))
    evidence = gather(sources, args.datasets, args.skip_invalid, args.setting, beside, light=True)
    boards = tuple(b for b in build_all(evidence) if args.track in (None, b.track))
    if not boards:
        raise BoardError(f"no records of the {args.track} track in {', '.join(map(str, sources))}")
    if args.league:
        boards = tuple(
            of_league(b, args.league) for b in boards if args.league in [league.name for league in b.leagues]
        )
        if not boards:
            raise BoardError(f"no league {args.league!r} here: no dataset is of this shape, or all of them are")
    if args.plots:
        from leaderboard.plots import save_plots

        written = save_plots(boards, args.plots)
        print(f"{len(written)} plots in {args.plots}", file=sys.stderr)
    if args.format and args.format != "terminal":
        return _print_or_save(render(boards, args.format, args.slice, args.league), args)
    if not args.quiet:
        _show(boards, args.slice, args.league)
    folder = args.output or (sources[0] / "leaderboard" if sources[0].is_dir() else None)
    if not args.format and folder is not None:
        _write_files(boards, folder, args)
    return 0


def render(boards: tuple[Board, ...], format: str, view: str, league: str | None = None) -> str:
    """The boards in one of the text formats."""
    from leaderboard.store import no_garbage

    with no_garbage():
        return _rendered(boards, format, view, league)


def _rendered(boards: tuple[Board, ...], format: str, view: str, league: str | None) -> str:
    from leaderboard import csv_and_json, renderings
    from leaderboard.tables import table

    match format:
        case "markdown":
            return "\n".join(renderings.markdown(table(b, view, league)) for b in boards)
        case "latex":
            return "\n".join(renderings.latex(table(b, view, league)) for b in boards)
        case "csv":
            return csv_and_json.comma_separated(boards, None if view == "overview" else view)
        case "json":
            return csv_and_json.to_json(boards)
        case "html":
            from leaderboard.page import page
            from methods.registry import methods

            return page(boards, {entry.name: entry.summary for entry in methods.entries()})
    raise ValueError(f"no format named {format!r}")


def _print_or_save(text: str, args: argparse.Namespace) -> int:
    if args.output is None:
        sys.stdout.write(text)
        return 0
    suffix = {"markdown": "md", "latex": "tex"}.get(args.format, args.format)
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / f"leaderboard.{suffix}"
    path.write_text(text, encoding="utf-8")
    print(path, file=sys.stderr)
    return 0


def _show(boards: tuple[Board, ...], view: str, league: str | None) -> None:
    from leaderboard.renderings import terminal
    from leaderboard.tables import table

    console = console_of(width=400)
    for board in boards:
        console.print(terminal(table(board, view, league), console.width))


def _write_files(boards: tuple[Board, ...], folder: Path, args: argparse.Namespace) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, format in (("md", "markdown"), ("csv", "csv"), ("html", "html")):
        text = render(boards, format, args.slice, args.league)
        (folder / f"leaderboard.{suffix}").write_text(text, encoding="utf-8")
    if not args.quiet:
        print(f"Written: {folder}/leaderboard.md, leaderboard.csv, leaderboard.html (open it in a browser)")
