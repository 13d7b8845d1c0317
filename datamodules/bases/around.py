"""A dataset around another, which says what it does not change."""

from __future__ import annotations

from torch import Tensor

from datamodules.base import DataModule, SplitName
from datamodules.spec import Task


class Around(DataModule):
    """Rows of another dataset, changed."""

    def __init__(self, base: DataModule) -> None:
        super().__init__()
        self.base = base

    def suffix_with(self, *shown: str) -> str:
        """What tells this dataset from others of the base's name on a board."""
        inner = [self.base.suffix.strip("[]")] if self.base.suffix else []
        return f"[{';'.join([*inner, *shown])}]"

    @property
    def raw(self) -> Task:
        return self.base.raw

    @property
    def notes(self) -> tuple[str, ...]:
        return self.base.notes

    def places(self, split: SplitName) -> dict[str, Tensor]:
        return self.base.places(split)

    def words(self, modality: str) -> tuple[str, ...]:
        return self.base.words(modality)

    def spell(self, modality: str, value: Tensor) -> str:
        return self.base.spell(modality, value)
