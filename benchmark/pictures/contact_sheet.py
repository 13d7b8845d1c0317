"""Samples of a dataset on one picture: what a method gets to see."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from benchmark.pictures.draw_image import draw_image
from datamodules.base import DataModule, SplitName
from datamodules.spec import Modality

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 10


def draw(datamodule: DataModule, path: Path, split: SplitName = "train") -> Path:
    """Write a PNG with a column per sample and a row per modality, one sample of each class first."""
    # Not pyplot: a figure of our own needs no display and leaves no global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    task, rows = datamodule.task, datamodule.splits[split]
    samples = _choose(rows.target)
    height = sum(0.7 if m.kind in ("text", "vector") else 1.2 for m in task.modalities)
    figure = Figure(figsize=(1.3 * len(samples) + 0.6, height + 0.9), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{task.name} (version {task.version}, {split})", fontsize=9)
    ratios = [0.7 if m.kind in ("text", "vector") else 1.2 for m in task.modalities]
    axes = figure.subplots(len(task.modalities), len(samples), squeeze=False, height_ratios=ratios)
    for line, modality in enumerate(task.modalities):
        values = rows.inputs[modality.name][samples]
        for column, value in enumerate(values):
            axis = axes[line][column]
            axis.set_xticks([])
            axis.set_yticks([])
            _draw_value(axis, modality, value, datamodule)
            if line == 0:
                axis.set_title(task.goal.spell(rows.target[samples[column]]), fontsize=7)
        axes[line][0].set_ylabel(modality.name, fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")
    return path


def _choose(target: Tensor) -> Tensor:
    """The first row of each class, then further rows, up to COLUMNS; in order of the class."""
    if target.is_floating_point() or target.dim() > 1:
        return torch.arange(min(COLUMNS, len(target)))
    first: dict[int, int] = {}
    for row, label in enumerate(target.tolist()):
        first.setdefault(label, row)
    chosen = [first[label] for label in sorted(first)][:COLUMNS]
    others = (row for row in range(len(target)) if row not in set(chosen))
    while len(chosen) < min(COLUMNS, len(target)):
        chosen.append(next(others))
    return torch.tensor(chosen)


def _draw_value(axis: Axes, modality: Modality, value: Tensor, datamodule: DataModule) -> None:
    match modality.kind:
        case "image":
            draw_image(axis, modality, value)
        case "sequence":
            # Time runs to the right, the lowest band or coefficient is at the bottom: a spectrogram as usual.
            axis.imshow(value.T.numpy(), aspect="auto", origin="lower", cmap="magma", interpolation="nearest")
        case "vector":
            axis.bar(range(len(value)), value.numpy(), width=1.0, color="#33608c")
        case "text":
            for side in axis.spines.values():
                side.set_visible(False)
            words = textwrap.fill(datamodule.spell(modality.name, value), 16)
            axis.text(0.5, 0.5, words, ha="center", va="center", fontsize=6, transform=axis.transAxes, parse_math=False)
