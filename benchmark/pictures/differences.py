"""Two methods side by side on one picture: the rows that only one of them gets right, and how they learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.pictures.contact_sheet import draw_rows
from benchmark.pictures.drawing import save
from datamodules.base import DataModule

if TYPE_CHECKING:
    from leaderboard.reasons import Answer
    from leaderboard.record import Record

COLOURS = ("#33608c", "#c8553d")


def draw_answers(
    datamodule: DataModule, answers: Sequence[Answer], labels: tuple[str, str], title: str, path: Path
) -> Path:
    """The test rows, with the target and what each method said of it."""
    target = datamodule.splits["test"].target
    titles = []
    for answer in answers:
        said = ""
        if answer.said is not None:
            said = "".join(f"\n{label[:14]}: {value:.4g}" for label, value in zip(labels, answer.said, strict=True))
        titles.append(f"row {answer.row}\nis {datamodule.task.goal.spell(target[answer.row])}{said}")
    return draw_rows(datamodule, path, "test", [answer.row for answer in answers], titles, title)


def draw_learning(records: Mapping[str, Sequence[Record]], path: Path) -> Path | None:
    """The validation score after each epoch, a line per seed, stages after one another; None without a history."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 3), dpi=120, layout="constrained")
    axis = figure.subplots()
    drawn = False
    for (label, several), colour in zip(records.items(), COLOURS, strict=True):
        for i, record in enumerate(several):
            key = f"val/{record.cell.metric}"
            scores = [epoch.get(key) for stage in record.training for epoch in stage.history]
            known = [(e, s) for e, s in enumerate(scores, start=1) if s is not None]
            if known:
                drawn = True
                axis.plot(*zip(*known, strict=True), color=colour, lw=1, alpha=0.8, label=label if i == 0 else None)
    if not drawn:
        return None
    cell = next(iter(records.values()))[0].cell
    axis.set_xlabel("epoch, over all stages")
    axis.set_ylabel(f"validation {cell.metric}")
    axis.set_title(cell.dataset, fontsize=9)
    axis.legend(fontsize=8, frameon=False)
    return save(figure, path)
