"""One builder for the tests of methods: a task, a batch of random rows, a method with fixed weights."""

from typing import Any

import torch

from datamodules.spec import Batch, Modality, Task
from methods import Recipe, methods

RECIPE = Recipe(width=8)


def vectors(count: int = 2) -> tuple[Modality, ...]:
    """Modalities m0, m1, .. of widths 4, 5, .."""
    return tuple(Modality(f"m{i}", "vector", (4 + i,)) for i in range(count))


def images(count: int = 2) -> tuple[Modality, ...]:
    """Modalities m0, m1, .. of one shape."""
    return tuple(Modality(f"m{i}", "image", (1, 8, 8)) for i in range(count))


def task(modalities: tuple[Modality, ...], target: Any = "multiclass", outputs: int = 3) -> Task:
    return Task("toy", "1", modalities, target, outputs)


def build(name: str, on: Task, *, recipe: Recipe = RECIPE, **options: Any) -> Any:
    torch.manual_seed(0)
    return methods.get(name)(on, recipe, **options)


def batch_of(on: Task, rows: int = 6, seed: int = 1) -> Batch:
    """Random rows that have everything, classes in turn; the last third of a text is padding."""
    generator = torch.Generator().manual_seed(seed)
    inputs = {}
    for m in on.modalities:
        if m.kind == "text":
            inputs[m.name] = torch.randint(1, m.vocabulary, (rows, *m.shape), generator=generator)
            inputs[m.name][:, m.shape[0] - m.shape[0] // 3 :] = 0
        else:
            inputs[m.name] = torch.randn(rows, *m.shape, generator=generator)
    present = torch.ones(rows, len(on.modalities), dtype=torch.bool)
    return Batch(inputs, torch.arange(rows) % max(1, on.num_outputs), present, torch.arange(rows))
