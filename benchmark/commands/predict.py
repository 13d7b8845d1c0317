"""`polymodal predict`: score new rows with the checkpoint of a cell."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from benchmark.arguments import add_data, add_results, use_data

if TYPE_CHECKING:
    from torch import Tensor

    from datamodules.bases.user_views import NewRows, UserViews
    from methods.base import Method

NAME = "predict"
HELP = "Predict the rows of a new file with a trained cell; a table of predictions and probabilities is written."
EXAMPLE = """examples:
  polymodal predict concat-csv_views-0 new_patients.csv                     to new_patients_predictions.csv
  polymodal predict concat-csv_views-0 new.npz --output scored.csv --results results/try-mine
  polymodal predict concat-csv_views-0 new_patients.csv --output -          to the terminal

CELL is the id of a cell, or the start of it (`polymodal show` lists them). The new file needs the columns (or arrays)
of the modalities, not the target; a row may lack a modality. Categories, fillings and moments are those of training.
"""
_BATCH = 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cell", metavar="CELL", help="the id of a cell, or the start of it")
    parser.add_argument("file", type=Path, metavar="FILE", help="the new rows, in the layout of those trained on")
    parser.add_argument("--output", metavar="CSV", help="table to write; - is standard output (default: FILE's name "
                        "with _predictions.csv)")  # fmt: skip
    add_results(parser)
    add_data(parser)


def run(arguments: argparse.Namespace) -> int:
    from benchmark.trained import trained_on_own_rows

    use_data(arguments)
    if not arguments.file.exists():
        raise FileNotFoundError(f"there is nothing at {arguments.file}")
    method, data = trained_on_own_rows(arguments.results, arguments.cell)
    rows = data.new_rows(arguments.file)
    if arguments.output == "-":
        write(sys.stdout, method, data, rows)
        return 0
    output = Path(arguments.output or f"{arguments.file.name.partition('.')[0]}_predictions.csv")
    with output.open("w", newline="", encoding="utf-8") as file:
        write(file, method, data, rows)
    print(f"{output}: {len(rows.present):,} rows")
    return 0


def write(file: IO[str], method: Method, data: UserViews, rows: NewRows) -> None:
    """The table of `lines` as CSV."""
    csv.writer(file).writerows(lines(method, data, rows))


def lines(method: Method, data: UserViews, rows: NewRows) -> Iterator[list[Any]]:
    """The head, then a line for each row: its number, counted from 1, what is predicted, and how probable it is."""
    goal, names = data.task.goal, list(data.task.class_names)
    names = names or [str(i) for i in range(data.task.num_outputs)]
    if goal.numeric:
        head = ["prediction"] if len(names) == 1 else [f"prediction {name}" for name in names]
    else:
        head = [*(["prediction"] if goal.one_class else names), *(f"probability {name}" for name in names)]
    yield ["row", *head]
    number = 0
    for logits in logits_of(method, rows):
        for cells in _cells(logits, data, names):
            number += 1
            yield [number, *cells]


def logits_of(method: Method, rows: NewRows) -> Iterator[Tensor]:
    """What the method says of the rows, batch by batch."""
    import torch

    with torch.inference_mode():
        for start in range(0, len(rows.present), _BATCH):
            part = slice(start, start + _BATCH)
            inputs = {name: x[part] for name, x in rows.inputs.items()}
            yield method(inputs, rows.present[part]).logits.float()


def _cells(logits: Tensor, data: UserViews, names: list[str]) -> list[list[Any]]:
    goal = data.task.goal
    if goal.numeric:
        deviation, mean = data.target_moments()
        return [[float(f"{value:.6g}") for value in row] for row in (logits.double().numpy() * deviation + mean)]
    if goal.one_class:
        chance = logits.softmax(dim=-1)
        return [[names[int(row.argmax())], *_shares(row)] for row in chance]
    return [[*(int(p > 0.5) for p in row), *_shares(row)] for row in logits.sigmoid()]


def _shares(row: Tensor) -> list[float]:
    return [round(p, 6) for p in row.tolist()]
