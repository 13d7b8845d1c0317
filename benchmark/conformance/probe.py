"""Tiny datasets of every shape a method may meet: what the conformance kit trains on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from datamodules.base import DataModule, Split, SplitName
from datamodules.spec import Modality, Task

_MODALITIES = {
    "vectors": (Modality("a", "vector", (5,)), Modality("b", "vector", (7,))),
    "three": (Modality("a", "vector", (5,)), Modality("b", "vector", (7,)), Modality("c", "vector", (5,))),
    "images": (Modality("left", "image", (1, 8, 8)), Modality("right", "image", (1, 8, 8))),
    "image_text": (Modality("image", "image", (3, 16, 16)), Modality("question", "text", (6,), vocabulary=11)),
    "zero_shot": (Modality("a", "vector", (6,)), Modality("b", "vector", (6,))),
    "sequence_vector": (Modality("audio", "sequence", (12, 4)), Modality("facts", "vector", (5,))),
}


def _answers(rng: np.random.Generator, y: np.ndarray) -> torch.Tensor:
    second = torch.from_numpy(rng.integers(0, 4, len(y)))
    ids = torch.stack([torch.from_numpy(y), second], dim=1)
    return torch.stack([ids.float(), torch.tensor([0.6, 0.3]).expand(len(y), 2)], dim=1)


# The target of a probe: its number of outputs, and the targets of rows with the labels y.
_TARGETS: dict[str, tuple[int, Callable[[np.random.Generator, np.ndarray], torch.Tensor]]] = {
    "regression": (1, lambda rng, y: torch.from_numpy(y + 0.1 * rng.standard_normal(len(y))).float().unsqueeze(1)),
    "multilabel": (4, lambda rng, y: torch.from_numpy(y[:, None] == np.arange(4)).float()),
    "answers": (4, _answers),
    "retrieval": (4, lambda rng, y: torch.from_numpy(y)),
    "pairs": (0, lambda rng, y: torch.arange(len(y))),
    "zero_shot": (0, lambda rng, y: torch.from_numpy(y)),
}
_CLASSES = (3, _TARGETS["retrieval"][1])
PROBES = tuple(dict.fromkeys((*_MODALITIES, *_TARGETS)))
ROWS: dict[SplitName, int] = {"train": 160, "val": 64, "test": 64}


class Probe(DataModule):
    """Random rows with a little signal.

    Args:
        shape: A set of modalities (three classes), or a target (two vectors), or both.
    """

    def __init__(self, *, shape: str = "vectors") -> None:
        super().__init__()
        self.shape = shape

    def describe(self) -> Task:
        views = _MODALITIES.get(self.shape, _MODALITIES["vectors"])
        target = self.shape if self.shape in _TARGETS else "multiclass"
        return Task(f"probe_{self.shape}", "1", views, target, _TARGETS.get(target, _CLASSES)[0])

    def load(self) -> dict[SplitName, Split]:
        return {name: self._split(np.random.default_rng([7, i]), n) for i, (name, n) in enumerate(ROWS.items())}

    def _split(self, rng: np.random.Generator, n: int) -> Split:
        label = rng.integers(0, 3, n)
        inputs = {}
        for m in self.task.modalities:
            if m.kind == "text":
                words = rng.integers(1, m.vocabulary, (n, *m.shape))
                words[:, 0] = 1 + label
                words[:, -2:] = 0  # padding
                inputs[m.name] = torch.from_numpy(words)
                continue
            x = rng.standard_normal((n, *m.shape))
            x[..., 0] += label.reshape(-1, *[1] * (len(m.shape) - 1))
            inputs[m.name] = torch.from_numpy(x.astype(np.float32))
        return Split(inputs, _TARGETS.get(self.shape, _CLASSES)[1](rng, label))
