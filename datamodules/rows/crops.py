"""Crops of stored photos: the centre, or for training one at random, mirrored or not, as metric learning has it."""

from __future__ import annotations

import torch
from torch import Tensor

from datamodules.base import Batches, Gathered, Split
from datamodules.rows.per_class import per_class_order
from datamodules.spec import Batch


class Crops(Gathered):
    """A modality of bytes `[N, C, side, side]`, seen as squares of `size` pixels, 0 to 1: the centre of each."""

    def __init__(self, values: Tensor, index: Tensor, size: int) -> None:
        super().__init__(values, index, 1 / 255)
        self.size = size

    @property
    def room(self) -> int:
        """How far a crop can be moved, in pixels."""
        return self.values.shape[-1] - self.size

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.index), self.values.shape[1], self.size, self.size))

    def prepare(self, x: Tensor) -> Tensor:
        start = self.room // 2
        return super().prepare(x[..., start : start + self.size, start : start + self.size].contiguous())

    def at(self, rows: Tensor, corner: Tensor, mirrored: Tensor) -> Tensor:
        """Crops with their upper left `corner` `[B, 2]` (row, column), `mirrored` `[B]` left to right."""
        found = []
        for i, (y, x), flip in zip(self.index[rows].tolist(), corner.tolist(), mirrored.tolist(), strict=True):
            crop = self.values[i, :, y : y + self.size, x : x + self.size]
            found.append(crop.flip(-1) if flip else crop)
        return super().prepare(torch.stack(found).float())

    def fingerprint(self) -> str:
        return f"{super().fingerprint()}/{self.size}"


class PhotoBatches(Batches):
    """Shuffled training batches of `Crops`; a crop is drawn for its row and epoch, whatever device sees it.

    Args:
        augment: Draw crops and mirror images at random, both modalities of a row alike; else take the centre.
        per_class: Rows of a class that are neighbours; 0 shuffles rows.
    """

    def __init__(
        self, split: Split, names: tuple[str, ...], batch_size: int, seed: int, augment: bool, per_class: int
    ) -> None:
        if per_class and batch_size % per_class:
            raise ValueError(f"`per_class` must divide the batch of {batch_size} rows, got {per_class}")
        super().__init__(split, names, batch_size, shuffle=True, seed=seed)
        self.augment = augment
        self.per_class = per_class
        self._drawn: tuple[Tensor, Tensor] | None = None

    def order(self, generator: torch.Generator) -> Tensor:
        if self.augment:
            corner = torch.rand(self.rows, 2, generator=generator)
            self._drawn = corner, torch.rand(self.rows, generator=generator) < 0.5
        if not self.per_class:
            return super().order(generator)
        order = per_class_order(self.split.target, self.per_class, generator)
        return order.repeat(-(-self.rows // len(order)))  # an epoch has as many batches as without

    def take(self, index: Tensor | slice) -> Batch:
        if self._drawn is None or isinstance(index, slice):
            return super().take(index)
        corner, mirrored = (drawn[index] for drawn in self._drawn)
        inputs = {}
        for name in self.names:
            photos = self.split.inputs[name]
            assert isinstance(photos, Crops)
            inputs[name] = photos.at(index, (corner * (photos.room + 1)).long(), mirrored)
        return Batch(inputs, self.split.target[index], self.present[index], index)
