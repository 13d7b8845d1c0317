"""Views of handwritten digits: metric learning on digits never seen."""

from __future__ import annotations

import numpy as np
import torch

from datamodules.base import Split, SplitName
from datamodules.multi_digits import MultiDigits
from datamodules.registry import register
from datamodules.rows.standardise import standardise_by
from datamodules.sources.multiple_features import multiple_features
from datamodules.spec import Task

# The first half of the classes trains, less the two that choose the epoch: with one alone every neighbour is right.
CLASSES: dict[SplitName, range] = {"train": range(3), "val": range(3, 5), "test": range(5, 10)}


@register("multi_digits_zero_shot")
class MultiDigitsZeroShot(MultiDigits):
    """UCI Multiple Features as retrieval: digits 0-2 in training, 3-4 in validation, 5-9 unseen.

    Args:
        views: At least two of the views of `multi_digits`.
    """

    title = "multi_digits_zero_shot"
    version = "1"
    sha256 = "852961bfe75bc565990f2d77fdea608378c8b2444fe45f0edcc9c627927192e8"

    def describe(self) -> Task:
        names = tuple(str(digit) for digit in CLASSES["train"])
        modalities = super().describe().modalities
        return Task(self.title, self.version, modalities, "retrieval", len(names), class_names=names)

    def load(self) -> dict[SplitName, Split]:
        features, digit = multiple_features(self.title)
        train = np.isin(digit, CLASSES["train"])
        views = {view: torch.from_numpy(standardise_by(train, features[view])) for view in self.views}
        splits: dict[SplitName, Split] = {}
        for name, classes in CLASSES.items():
            rows = np.flatnonzero(np.isin(digit, classes))
            splits[name] = Split({view: x[rows] for view, x in views.items()}, torch.from_numpy(digit[rows]))
        return splits
