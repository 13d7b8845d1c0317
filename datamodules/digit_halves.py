"""scikit-learn's handwritten digits, cut in two: the upper and the lower half as two images of one shape."""

from __future__ import annotations

import numpy as np
import torch

from datamodules.base import DataModule, Split, SplitName
from datamodules.registry import register
from datamodules.spec import Modality, Task


@register("digit_halves")
class DigitHalves(DataModule):
    """Upper and lower half of 1,797 handwritten digits (8x8), 10 classes."""

    version = "1"
    licence = "CC BY 4.0"
    citation = "E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI (1998)."
    source = "scikit-learn (sklearn.datasets.load_digits)"
    sha256 = "aba4664d2a3d67876b79b842cdd7c1a4f83062878f998f56c92117d26ecdf387"

    def describe(self) -> Task:
        halves = (Modality("upper", "image", (1, 4, 8)), Modality("lower", "image", (1, 4, 8)))
        return Task("digit_halves", self.version, halves, "multiclass", 10, class_names=tuple("0123456789"))

    def load(self) -> dict[SplitName, Split]:
        from sklearn.datasets import load_digits

        pixels, digits = load_digits(return_X_y=True)
        images = torch.from_numpy(np.asarray(pixels, dtype=np.float32) / 16).view(-1, 1, 8, 8)
        target = torch.from_numpy(np.asarray(digits, dtype=np.int64))
        order = np.random.default_rng(20240).permutation(len(target))
        parts: dict[SplitName, np.ndarray] = {"train": order[:1197], "val": order[1197:1497], "test": order[1497:]}
        return {
            name: Split({"upper": images[rows, :, :4], "lower": images[rows, :, 4:]}, target[rows])
            for name, rows in parts.items()
        }
