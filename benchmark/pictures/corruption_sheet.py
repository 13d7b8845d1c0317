"""One sample of a dataset under every corruption and severity, on one picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from benchmark.pictures.drawing import draw_value, save
from datamodules.base import DataModule, SplitName
from datamodules.corruptions import applicable, levels
from datamodules.corruptions.registry import LEVELS
from datamodules.spec import Batch, Modality

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

_SPLIT: SplitName = "test"
_ACROSS = 2  # blocks side by side
_CELL = 0.9  # inches


def draw(datamodule: DataModule, output: Path) -> Path:
    """Write a PNG with a block per modality, a line per corruption and a column per severity, the clean input first.

    The noise is that of the sweep: the sheet shows what every method gets to see of this row of the test split.

    Args:
        output: The file to write; its folder is made.
    """
    from matplotlib.figure import Figure  # not pyplot: a figure of our own needs no display and leaves no global state

    modalities = datamodule.task.modalities
    lines = -(-len(modalities) // _ACROSS)
    # A line of blocks is as high as its longest catalogue.
    heights = [
        max(len(applicable(m, datamodule.task.name)) for m in modalities[i : i + _ACROSS]) + 0.8
        for i in range(0, len(modalities), _ACROSS)
    ]
    width = min(_ACROSS, len(modalities)) * (LEVELS + 2)
    figure = Figure(figsize=(_CELL * width, _CELL * sum(heights)), dpi=110)
    blocks = figure.subfigures(lines, min(_ACROSS, len(modalities)), squeeze=False, height_ratios=heights)
    row = _row(datamodule)
    for place, modality in enumerate(modalities):
        line, column = divmod(place, _ACROSS)
        _draw_block(blocks[line][column], datamodule, modality, row, heights[line])
    return save(figure, output)


def corrupted(datamodule: DataModule, modality: Modality, name: str, severity: int, rows: Tensor) -> Tensor:
    """Rows of the test split as the sweep corrupts them."""
    split = datamodule.splits[_SPLIT]
    inputs = {modality.name: split.inputs[modality.name][rows]}
    batch = Batch(inputs, split.target[rows], torch.ones(len(rows), 1, dtype=torch.bool), rows)
    return datamodule.corrupted(batch, _SPLIT, modality.name, name, severity)


def _row(datamodule: DataModule) -> int:
    """The first row whose pairing is broken at severity 5 in every modality, so that the sheet can show it."""
    rows = torch.arange(min(500, len(datamodule.splits[_SPLIT].target)))
    broken = torch.ones(len(rows), dtype=torch.bool)
    for modality in datamodule.task.modalities:
        clean = datamodule.splits[_SPLIT].inputs[modality.name][rows]
        changed = corrupted(datamodule, modality, "misaligned", LEVELS, rows) != clean
        broken &= changed.flatten(1).any(1)
    return int(broken.int().argmax())


def _draw_block(block: SubFigure, datamodule: DataModule, modality: Modality, row: int, height: float) -> None:
    names = applicable(modality, datamodule.task.name)
    shape = "×".join(map(str, modality.shape))
    block.suptitle(f"{datamodule.task.name}: {modality.name} ({modality.kind} {shape})", fontsize=9)
    axes = block.subplots(len(names), LEVELS + 1, squeeze=False)
    # Blocks beside a longer one leave the rest of their height empty: all cells are of one size.
    top = 1 - 0.7 / height
    block.subplots_adjust(0.16, top - len(names) * (1 / height) * 0.98, 0.99, top, wspace=0.06, hspace=0.3)
    rows = torch.tensor([row])
    clean = datamodule.splits[_SPLIT].inputs[modality.name][rows][0]
    for line, name in enumerate(names):
        for severity in range(LEVELS + 1):
            value = corrupted(datamodule, modality, name, severity, rows)[0]
            axis = axes[line][severity]
            draw_value(axis, modality, value, datamodule, clean, width=13, fontsize=5.2)
            title = "clean" if severity == 0 else f"{levels(name, modality, datamodule.task.name)[severity - 1]:g}"
            axis.set_title(title, fontsize=5, pad=1.5)
        label = axes[line][0].set_ylabel(name.replace("_", "\n"), fontsize=6, rotation=0, ha="right", va="center")
        label.set_parse_math(False)
