"""`polymodal export-model`: a trained cell as one file that `torch.export.load` loads, without this package."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.arguments import add_data, add_results, use_data

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from datamodules.base import DataModule
    from methods.base import Method

NAME = "export-model"
HELP = "Write a trained cell as a file that torch.export.load loads, with what prepares its inputs."
EXAMPLE = """examples:
  polymodal export-model concat-csv_views-0 --output model.pt2 --results results/try-patients

In Python, without this package:
  about = {"polymodal.json": ""}
  model = torch.export.load("model.pt2", extra_files=about).module()
  logits = model({"blood": x, "person": y}, present)     # present [B, M] bool: which rows have which modality
  json.loads(about["polymodal.json"])                    # classes, shapes, categories, moments

The number of rows is free from two on: repeat a single one.
"""
ABOUT = "polymodal.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cell", metavar="CELL", help="the id of a cell, or the start of it")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="file to write (.pt2)")
    add_results(parser)
    add_data(parser)


def run(arguments: argparse.Namespace) -> int:
    import torch

    from benchmark.trained import trained

    use_data(arguments)
    if arguments.output.suffix != ".pt2":
        raise ValueError(f"--output must end in .pt2, as files of torch.export do, got {arguments.output}")
    record, method, data = trained(arguments.results, arguments.cell)
    program = export(method, data)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"cell": record.cell.id, "method": record.cell.label, **about(data)})
    torch.export.save(program, arguments.output, extra_files={ABOUT: text})
    print(f"{arguments.output}: {record.cell.label}, {arguments.output.stat().st_size:,} bytes")
    return 0


def export(method: Method, data: DataModule) -> ExportedProgram:
    """The method as a graph from inputs and what is present to logits, for any number of rows from two on.

    Raises:
        ValueError: If the method does something that cannot be written as a graph.
    """
    import torch
    from torch import Tensor, nn

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.method = method

        def forward(self, inputs: dict[str, Tensor], present: Tensor) -> Tensor:
            return self.method(inputs, present).logits

    batch = data.ordered("train").take(torch.arange(min(4, len(data.splits["train"].target))))
    rows = torch.export.Dim("rows", min=2)
    dynamic = {"inputs": {name: {0: rows} for name in batch.inputs}, "present": {0: rows}}
    try:
        with torch.no_grad():
            return torch.export.export(Logits().eval(), (dict(batch.inputs), batch.present), dynamic_shapes=dynamic)
    except Exception as error:  # torch's tracer raises errors of a dozen private classes
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{type(method).__name__} cannot be written as a graph by torch.export: {reason}") from error


def about(data: DataModule) -> dict[str, Any]:
    """What somebody needs besides the graph: shapes, classes, and how rows become inputs."""
    from datamodules.bases.user_views import UserViews
    from datamodules.rows.incomplete import Incomplete

    task = data.task
    own = data.base if isinstance(data, Incomplete) else data
    return {
        "target": task.target,
        "classes": list(task.class_names),
        "modalities": {m.name: {"kind": m.kind, "shape": list(m.shape)} for m in task.modalities},
        "preparation": own.preparation if isinstance(own, UserViews) else {},
    }
