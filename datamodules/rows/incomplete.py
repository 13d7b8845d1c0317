"""Rows that lack modalities, in any dataset: what was not recorded for everybody, to be learnt from all the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import torch
from torch import Tensor

from datamodules.base import DataModule, Split, SplitName
from datamodules.bases.around import Around
from datamodules.corruptions.every import missing
from datamodules.options import Fraction
from datamodules.registry import did_you_mean
from datamodules.spec import Task


class Incomplete(Around):
    """A dataset whose training and validation rows lack modalities at random; the test rows are as they were.

    Validation is what a run can select by, so it is as incomplete as the rows that are learnt from. What goes is fixed
    by the dataset, its version and the row: all methods and seeds learn from the same rows, and what goes at some rates
    goes at any multiple of them. The dataset's own preprocessing has seen the complete rows.

    Args:
        base: The dataset.
        absent: Modality -> the probability that a row lacks it. At least one modality of a row stays: with all rates at
            1 each row has exactly one.
    """

    def __init__(self, base: DataModule, *, absent: Mapping[str, Fraction]) -> None:
        super().__init__(base)
        for name in absent:
            if name not in base.task.names:
                raise ValueError(f"`absent`: no modality {name!r}. {did_you_mean(name, base.task.names)}")
        self.absent = {name: float(absent[name]) for name in base.task.names if absent.get(name)}

    @property
    def suffix(self) -> str:
        rates = ",".join(f"{name}:{rate:g}" for name, rate in self.absent.items())
        return self.suffix_with(f"absent={rates}")

    def describe(self) -> Task:
        return self.base.task  # the same task, and the same noise on its test rows

    def load(self) -> dict[SplitName, Split]:
        splits = dict(self.base.splits)
        for name in ("train", "val"):
            splits[name] = splits[name]._replace(present=self._present(name, splits[name]))
        return splits

    def _present(self, name: SplitName, split: Split) -> Tensor:
        rows, task = len(split.target), self.task
        there = torch.ones(rows, len(task.names), dtype=torch.bool) if split.present is None else split.present.bool()
        rates = torch.tensor([self.absent.get(modality, 0.0) for modality in task.names])
        identity = json.dumps([task.name, task.version, name, "absent"])
        key = int.from_bytes(hashlib.blake2b(identity.encode(), digest_size=8).digest(), "big")
        return missing(there, torch.arange(rows), rates, key)
