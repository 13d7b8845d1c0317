"""A board that answers within minutes: a few methods, a recipe that fits the rows, each group missing and noisy."""

from __future__ import annotations

import math
from typing import Any

from benchmark.own_data.guess import Guess
from datamodules.corruptions import catalogue
from datamodules.spec import Task
from methods.registry import methods

# From the simplest on: among those that cannot be told apart the first is advised.
SIMPLEST_FIRST = ("linear", "concat", "late", "boosting", "gated", "low_rank")
_STEPS = {False: 2000, True: 1000}  # at most, of a method; images are dear
_IMAGES = ("concat", "late", "gated")


def matrix_of(guess: Guess, task: Task, train_rows: int, seeds: int) -> dict[str, Any]:
    """The tables of a matrix file: what is run now, and a beginning to go on with."""
    chosen = _IMAGES if guess.heavy else SIMPLEST_FIRST
    if not task.goal.labelled or task.goal.ranked:
        chosen = ("contrastive", "cosine")
    names = [name for name in chosen if name in methods.names()]
    noise = {catalogue(m.kind)[0] for m in task.modalities}
    return {
        "seeds": seeds,
        "conditions": ["missing", *sorted(noise)],
        "methods": names,
        "baselines": task.goal.classifies or task.goal.numeric,
        "recipe": recipe_for(train_rows, guess.heavy),
        "datasets": [{"name": guess.dataset, **guess.options}],
    }


def recipe_for(rows: int, heavy: bool) -> dict[str, Any]:
    """Batches that give sixteen steps an epoch at least, and epochs for as many steps as there is time for."""
    batch = min(128, max(8, 2 ** int(math.log2(max(1, rows / 16)))))
    steps = max(1, rows // batch)
    epochs = min(100, max(10, _STEPS[heavy] // steps))
    return {"width": 32, "batch_size": batch, "epochs": epochs, "patience": max(10, epochs // 4)}
