"""What people look at when the input of a method is a summary of it: the recording itself."""

from typing import Protocol, runtime_checkable

from torch import Tensor

from datamodules.base import Skeleton, SplitName

Original = str | Tensor | Skeleton
"""Words, curves `[T, channels]`, or a body in motion."""


@runtime_checkable
class AsRecorded(Protocol):
    """A dataset that still has what its inputs were made of."""

    def as_recorded(self, split: SplitName, row: int) -> dict[str, Original]:
        """Modality -> what was recorded; a modality that is left out is drawn as its input."""
        ...
