"""Samples of a dataset on one picture: what a method gets to see."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from benchmark.pictures.drawing import draw_value, save
from datamodules.base import DataModule, SplitName

COLUMNS = 10


def draw(datamodule: DataModule, path: Path, split: SplitName = "train") -> Path:
    """Write a PNG with a column per sample and a row per modality, one sample of each class first."""
    task, target = datamodule.task, datamodule.splits[split].target
    samples = _choose(target).tolist()
    titles = [task.goal.spell(target[sample]) for sample in samples]
    return draw_rows(datamodule, path, split, samples, titles, f"{task.name} (version {task.version}, {split})")


def draw_rows(
    datamodule: DataModule, path: Path, split: SplitName, samples: Sequence[int], titles: Sequence[str], title: str
) -> Path:
    """Write a PNG with a column per given row, under its title, and a line per modality."""
    from matplotlib.figure import Figure  # not pyplot: a figure of our own needs no display and leaves no global state

    task, rows = datamodule.task, datamodule.splits[split]
    heights = [0.7 if m.kind in ("text", "vector") else 1.2 for m in task.modalities]
    above = 0.12 * max(words.count("\n") for words in titles)
    figure = Figure(figsize=(1.3 * len(samples) + 0.6, sum(heights) + 0.9 + above), dpi=120, layout="constrained")
    figure.suptitle(title, fontsize=9, parse_math=False)
    axes = figure.subplots(len(task.modalities), len(samples), squeeze=False, height_ratios=heights)
    for line, modality in enumerate(task.modalities):
        values = rows.inputs[modality.name][torch.tensor(list(samples))]
        for column, value in enumerate(values):
            draw_value(axes[line][column], modality, value, datamodule)
            if line == 0:
                axes[line][column].set_title(titles[column], fontsize=7, parse_math=False)
        axes[line][0].set_ylabel(modality.name, fontsize=7)
    return save(figure, path)


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
