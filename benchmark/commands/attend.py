"""`polymodal attend`: draw what attention methods looked at, side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.arguments import add_results

if TYPE_CHECKING:
    from leaderboard.record import Record
    from leaderboard.store import Store

NAME = "attend"
HELP = "Draw the attention maps of trained cells, a column per cell."
EXAMPLE = """examples:
  polymodal attend 3f9c2a                                the first test rows of a cell (its id or the start of it)
  polymodal attend 3f9c2a 81d0e4 b77c10 --rows 0,12,40   three methods side by side
  polymodal attend --dataset shapes_count                every attention method trained on a dataset, first seed
"""
ROWS = "0,1,2,3"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cells", nargs="*", metavar="CELL", help="cell ids, or the start of them")
    parser.add_argument("--dataset", metavar="NAME", help="all attention cells of this dataset, first seed")
    parser.add_argument("--rows", default=ROWS, metavar="I,J", help=f"rows of the test split (default: {ROWS})")
    add_results(parser)
    parser.add_argument("--output", type=Path, default=Path("attention.png"), metavar="PNG", help="picture to write")


def run(args: argparse.Namespace) -> int:
    """Draw the sheet; exit code 0, or 2 by an error that says what to change."""
    from leaderboard.store import Store

    rows = parse_rows(args.rows)
    store = Store(args.results)
    records = choose(store, args.cells, args.dataset)
    if len({record.cell.dataset for record in records}) > 1:
        raise ValueError(
            f"cells of several datasets: {', '.join(sorted({r.cell.dataset for r in records}))}; draw one at a time"
        )
    path = draw(records, store, rows, args.output)
    for line in told(records):
        print(line)
    print(path)
    return 0


def told(records: list[Record]) -> list[str]:
    """The scores of each cell's attention, where the dataset knows the place of what is asked about."""
    lines = []
    for record in records:
        scores = {k.removeprefix("attention/"): v for k, v in record.summary.items() if k.startswith("attention/")}
        for name in dict.fromkeys(key.rpartition("/")[0] for key in scores):
            asked, uniform, entropy, support = (
                scores[f"{name}/{key}"] for key in ("asked", "uniform", "entropy", "support")
            )
            lines.append(
                f"{record.cell.label}, {name}: {asked:.0%} of the attention on what is asked about (uniform: "
                f"{uniform:.0%}), entropy {entropy:.2f} of 1, {support:.0%} of the cells seen"
            )
    return lines


def parse_rows(text: str) -> list[int]:
    """`0,3,17` as numbers.

    Raises:
        ValueError: If it is anything else.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdigit() for part in parts):
        raise ValueError(f"Expected `--rows` to be row numbers such as 0,3,17, but got {text!r}")
    return [int(part) for part in parts]


def choose(store: Store, cells: list[str], dataset: str | None) -> list[Record]:
    """The records asked for, in the order they were asked for.

    Raises:
        ValueError: If a name fits no record or several, or nothing was asked for.
    """
    done = [record for record in store.scan().records if record.status == "ok"]
    if dataset is not None:
        matching = [r for r in done if r.cell.dataset == dataset and r.cell.family == "attention"]
        if not matching:
            raise ValueError(f"no trained attention method on {dataset!r} in {store.folder}")
        first = min(r.cell.seed for r in matching)
        return sorted((r for r in matching if r.cell.seed == first), key=lambda r: r.cell.label)
    if not cells:
        raise ValueError("name a CELL or a --dataset")
    return [_only(done, cell, store) for cell in cells]


def draw(records: list[Record], store: Store, rows: list[int], output: Path) -> Path:
    """Load every cell's checkpoint and draw the rows."""
    import torch

    from benchmark.pictures.attention_maps import draw_sheet, look
    from benchmark.runner import load_method

    seen, datamodule = [], None
    for record in records:
        method, datamodule = load_method(record, store)
        batches = datamodule.ordered("test")
        if max(rows) >= batches.rows:
            raise ValueError(f"row {max(rows)} is not in the test split of {record.cell.dataset} ({batches.rows} rows)")
        seen.append(look(method, batches.take(torch.tensor(rows)), record.cell.label))
    assert datamodule is not None
    return draw_sheet(datamodule, rows, seen, output)


def _only(records: list[Record], start: str, store: Store) -> Record:
    matching = [record for record in records if record.cell.id.startswith(start)]
    if len(matching) != 1:
        what = "no successful cell" if not matching else f"{len(matching)} cells"
        raise ValueError(f"{what} in {store.folder} with an id that starts with {start!r}")
    return matching[0]
