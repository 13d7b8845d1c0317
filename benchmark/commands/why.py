"""`polymodal why A B`: where two methods differ, on which rows, and how they learnt; in words and on a page."""

from __future__ import annotations

import argparse
import base64
import html
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.arguments import (
    RESULTS,
    add_board,
    add_data,
    add_folders,
    add_published,
    at_least,
    folders_of,
    sources_of,
    use_data,
)
from benchmark.errors import printable

if TYPE_CHECKING:
    from datamodules.base import DataModule
    from leaderboard.merge import Evidence

NAME = "why"
HELP = "Say why one method beats another: where they differ, the rows drawn, how they learnt."
EXAMPLE = """examples:
  polymodal why gated concat
  polymodal why my_fusion concat --dataset digit_halves --rows 12
  polymodal why my_fusion concat --with reference     yours and a published one
"""
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<style>:root{{color-scheme:light dark}}
body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}
img{{max-width:100%;background:#fff}}</style>
<h1>{title}</h1>{body}</html>
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a method as the board shows it")
    parser.add_argument("b", metavar="B", help="the method it is compared with")
    add_folders(parser)
    parser.add_argument("--dataset", action="append", metavar="D", help="only this dataset (may be given again)")
    parser.add_argument("--rows", type=at_least(1), default=8, metavar="N", help="rows drawn for each (default: 8)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder of page and pictures [results/why]")
    add_data(parser)
    add_board(parser)
    add_published(parser)


def run(args: argparse.Namespace) -> int:
    """Print the sentences; write pictures and a page that holds them."""
    from leaderboard.comparison import compare
    from leaderboard.merge import gather
    from leaderboard.reasons import sentences

    use_data(args)
    sources, beside = sources_of(args, folders_of(args))
    evidence = gather(sources, args.dataset, args.skip_invalid, args.setting, beside)
    found = compare(evidence, args.a, args.b)
    said = [*sentences(found, evidence), *(f"Note: {note}." for note in found.notes)]
    folder = args.output or (sources[0] if sources[0].is_dir() else Path(RESULTS)) / "why"
    pictures: list[Path] = []
    for dataset in dict.fromkeys(d.dataset for d in found.differences):
        more, drawn = _look(evidence, args, dataset, folder)
        said += [*more, *_profile(sources, dataset)]
        pictures += drawn
    print(*map(printable, said), sep="\n")
    print(f"Page: {_write_page(f'{args.a} against {args.b}', said, pictures, folder)}")
    return 0


def _look(evidence: Evidence, args: argparse.Namespace, dataset: str, folder: Path) -> tuple[list[str], list[Path]]:
    """The rows of a dataset on which only one is right, and the learning curves: sentences and pictures."""
    from benchmark.pictures.differences import draw_answers, draw_learning
    from leaderboard.reasons import differing, records_of

    labels = (args.a, args.b)
    stem = _plain(f"{args.a}-{args.b}-{dataset}")
    records = {label: records_of(evidence, label, dataset) for label in labels}
    learning = draw_learning(records, folder / f"{stem}-learning.png")
    pictures, said = [learning] if learning else [], []
    answers = differing(evidence, *labels, dataset, args.rows)
    if not any(answers):
        return [f"No clean answer of a row differs on {dataset}, or answers are not kept by row."], pictures
    try:
        datamodule = _dataset(records[args.a][0].cell.dataset, records[args.a][0].cell.dataset_options)
    except (OSError, ValueError, KeyError, ImportError) as error:
        return [f"The rows of {dataset} cannot be drawn here: {error}."], pictures
    for winner, loser, own in ((*labels, answers[0]), (*reversed(labels), answers[1])):
        if own:
            title = f"{dataset}: {winner} is right more often than {loser}"
            picture = folder / f"{stem}-{_plain(winner)}.png"
            pictures.append(draw_answers(datamodule, own, labels, title, picture))
            rows = ", ".join(str(answer.row) for answer in own)
            said.append(f"Rows of {dataset} that {winner} answers better than {loser}: {rows}.")
    return said, pictures


def _dataset(name: str, options: dict[str, object]) -> DataModule:
    """The dataset as people see it: what a frozen encoder makes of its rows is not drawn."""
    from benchmark.build import build_dataset
    from datamodules.encoders.features import Features

    found = build_dataset(name, options)
    return found.base if isinstance(found, Features) else found


def _profile(folders: list[Path], dataset: str) -> list[str]:
    """What `polymodal study interactions` found of the dataset, if it was run."""
    for folder in folders:
        path = folder / "studies" / "interactions" / f"{dataset}.json"
        if path.is_file():
            known = json.loads(path.read_text(encoding="utf-8"))
            bits, (first, second) = known["estimate"], known["modalities"]
            return [
                f"{dataset} tells {bits['I12']:.2f} bits: {bits['R']:.2f} in both modalities, {bits['U1']:.2f} in "
                f"{first} alone, {bits['U2']:.2f} in {second} alone, {bits['S']:.2f} only together."
            ]
    name, _, own = dataset.partition("[")
    matrix = " --matrix FILE (the matrix you ran)" if own else ""
    return [f"What the modalities of {dataset} tell alone and together: polymodal study interactions {name}{matrix}"]


def _write_page(title: str, said: list[str], pictures: list[Path], folder: Path) -> Path:
    """One file: sentences, then the pictures themselves."""
    parts = [f"<p>{html.escape(sentence)}</p>" for sentence in said]
    for picture in pictures:
        data = base64.b64encode(picture.read_bytes()).decode()
        parts.append(f'<p><img alt="{html.escape(picture.stem)}" src="data:image/png;base64,{data}"></p>')
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_plain(title)}.html"
    path.write_text(_PAGE.format(title=html.escape(title), body="\n".join(parts)), encoding="utf-8")
    return path


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.=-]+", "_", name)
