"""A dataset whose features of sound are made of recordings that are at hand: the sound itself can be corrupted."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from datamodules.base import DataModule, SplitName
from datamodules.corruptions import apply, catalogue, corruption_key, levels
from datamodules.spec import Batch, Modality

SOUNDS = tuple(name for name in catalogue("sound") if name != "misaligned")
_KEPT = 40  # tables of features: all severities of a sweep, so that every method of a worker finds them made
_made: dict[tuple[str, str, str, float], Tensor] = {}


class Recorded(DataModule):
    """Corruptions of sound befall the recording, and the features are made of what is left of it.

    A subclass says which modality it is and gives recordings and features of rows. All rows of a split are made at once
    and kept: the noise is the same for every method.
    """

    sound: str

    @abstractmethod
    def recordings(self, split: SplitName) -> Tensor:
        """`[N, samples]` in [-1, 1], silence behind the shorter ones, in the order of the split's rows."""

    @abstractmethod
    def features(self, recordings: Tensor) -> Tensor:
        """What methods see of recordings."""

    def corrupted(self, batch: Batch, split: SplitName, modality: str, corruption: str, severity: int) -> Tensor:
        if modality != self.sound or corruption not in SOUNDS or severity == 0:
            return super().corrupted(batch, split, modality, corruption, severity)
        parameter = levels(corruption, self._modality, self.task.name)[severity - 1]
        assert isinstance(parameter, float | int)
        key = (self.content_hash, split, corruption, float(parameter))
        if key not in _made:
            while len(_made) >= _KEPT:
                _made.pop(next(iter(_made)))
            _made[key] = self.heard(split, corruption, parameter, torch.arange(len(self.splits[split].target)))
        x = batch.inputs[modality]
        return _made[key][batch.row.cpu()].to(x.device, x.dtype)

    def heard(self, split: SplitName, corruption: str, parameter: float, rows: Tensor) -> Tensor:
        """The features of rows of a split whose recordings are corrupted."""
        x = self.recordings(split)[rows].unsqueeze(-1)
        spoken = Modality(self.sound, "sequence", tuple(x.shape[1:]))
        noise = corruption_key(self.task.name, self.task.version, split, self.sound, corruption)
        out = apply(x, rows, name=corruption, parameter=parameter, key=noise, modality=spoken)
        return self.features(out.squeeze(-1))

    @property
    def _modality(self) -> Modality:
        return self.task.modalities[self.task.names.index(self.sound)]
