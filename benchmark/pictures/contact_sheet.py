"""Samples of a dataset on one picture: what a method gets to see."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from benchmark.pictures.drawing import bare, draw_recorded, draw_value, save
from datamodules.base import DataModule, SplitName
from datamodules.rows.as_recorded import AsRecorded
from datamodules.spec import Modality

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 10
ROWS = 12
LETTERS, FONT = 40, 7.5  # of a line of words, where rows are large


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


def draw_one_by_one(datamodule: DataModule, path: Path, split: SplitName = "train", count: int = ROWS) -> Path:
    """Write a PNG with a line per sample and a column per modality, large enough to be looked at one by one.

    A dataset that still has what was recorded shows that; its inputs may be summaries that nobody can read.
    """
    from matplotlib.figure import Figure

    task, rows = datamodule.task, datamodule.splits[split]
    samples = _choose(rows.target, count)
    batch = datamodule.ordered(split).take(samples)
    size = (2.9 * len(task.modalities) + 1.2, 1.25 * len(samples) + 0.6)
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    figure.suptitle(f"{task.name} (version {task.version}): rows of {split}", fontsize=10, parse_math=False)
    axes = figure.subplots(len(samples), len(task.modalities), squeeze=False)
    for line, row in enumerate(samples.tolist()):
        recorded = datamodule.as_recorded(split, row) if isinstance(datamodule, AsRecorded) else {}
        for column, modality in enumerate(task.modalities):
            axis = axes[line][column]
            if line == 0:
                axis.set_title(modality.name, fontsize=9, parse_math=False)
            if batch.present[line, column] and modality.name in recorded:
                draw_recorded(axis, recorded[modality.name], LETTERS, FONT)
            elif batch.present[line, column]:
                _draw_row(axis, modality, batch.inputs[modality.name][line], datamodule)
            else:
                axis.text(0.5, 0.5, "absent", ha="center", va="center", fontsize=8, color="#777777")
                bare(axis)
        truth = textwrap.fill(f"row {row}: {task.goal.spell(rows.target[row])}", 18)
        label = axes[line][0].set_ylabel(truth, fontsize=8, rotation=0, ha="right", va="center")
        label.set_parse_math(False)
    return save(figure, path)


def _draw_row(axis: Axes, modality: Modality, value: Tensor, datamodule: DataModule) -> None:
    """A value as people know it: what is said in words is written, whatever its kind."""
    draw_value(axis, modality, value, datamodule, width=LETTERS, fontsize=FONT)
    if modality.kind == "vector" and (said := datamodule.spell(modality.name, value)):
        axis.set_xlabel(textwrap.fill(said, 52)[:300], fontsize=6).set_parse_math(False)


def _choose(target: Tensor, count: int = COLUMNS) -> Tensor:
    """The first row of each class, then further rows, up to `count`; in order of the class."""
    if target.is_floating_point() or target.dim() > 1:
        return torch.arange(min(count, len(target)))
    first: dict[int, int] = {}
    for row, label in enumerate(target.tolist()):
        first.setdefault(label, row)
    chosen = [first[label] for label in sorted(first)][:count]
    others = (row for row in range(len(target)) if row not in set(chosen))
    while len(chosen) < min(count, len(target)):
        chosen.append(next(others))
    return torch.tensor(chosen)
