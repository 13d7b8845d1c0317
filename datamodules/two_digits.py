"""Two-digit numbers out of two images of digits: metric learning on numbers never seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from datamodules.base import DataModule, Split, SplitName
from datamodules.registry import register
from datamodules.rows.fixed_order import Integers, fixed_order, split_by_class
from datamodules.spec import Modality, Task

# Half of the hundred classes, those with a large tens digit, are unseen. Of the other half ten choose the epoch: each
# tens digit lends two of its numbers, and each ones digit one (00, 01, 12, 13, ..., 48, 49).
TEST = tuple(range(50, 100))
VALIDATION = tuple(10 * tens + ones for tens in range(5) for ones in (2 * tens, 2 * tens + 1))
TRAINING = tuple(number for number in range(50) if number not in VALIDATION)
NUMBERS: dict[SplitName, tuple[int, ...]] = {"train": TRAINING, "val": VALIDATION, "test": TEST}


@register("two_digits")
class TwoDigits(DataModule):
    """Numbers as a tens and a ones image of scikit-learn's digits: 40 classes train, 10 validate, 50 are unseen.

    The 1,797 images are shared out among the splits first (50, 20 and 30 % of each digit), so that no image is in two
    splits; then numbers are composed. Within a class no image occurs twice: another row of the class never shares an
    image with the query, while rows of other classes do.
    """

    version = "1"
    licence = "CC BY 4.0"
    citation = "E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI (1998)."
    source = "scikit-learn (sklearn.datasets.load_digits)"
    sha256 = "14cc1b4ce06958a5e93c155296f4fe1d4bbd409a5785872463b2da0bfffeaad9"

    def describe(self) -> Task:
        images = (Modality("tens", "image", (1, 8, 8)), Modality("ones", "image", (1, 8, 8)))
        names = tuple(f"{number:02d}" for number in TRAINING)
        return Task("two_digits", self.version, images, "retrieval", len(names), class_names=names)

    def load(self) -> dict[SplitName, Split]:
        from sklearn.datasets import load_digits
        from sklearn.utils import Bunch

        digits = cast(Bunch, load_digits())
        images = torch.from_numpy(np.asarray(digits.images, dtype=np.float32) / 16).unsqueeze(1)
        digit = np.asarray(digits.target, dtype=np.int64)
        pools = split_by_class(digit, (0.5, 0.2, 0.3), "two_digits")
        splits: dict[SplitName, Split] = {}
        order = {number: i for i, number in enumerate((*TRAINING, *VALIDATION, *TEST))}
        for (name, numbers), pool in zip(NUMBERS.items(), pools, strict=True):
            tens, ones, number = compose(digit, pool, numbers)
            target = torch.tensor([order[n] for n in number.tolist()])
            splits[name] = Split({"tens": images[tens], "ones": images[ones]}, target, group=torch.from_numpy(tens))
        return splits


def compose(digit: Integers, pool: Integers, numbers: Sequence[int]) -> tuple[Integers, Integers, Integers]:
    """Rows of every number in `numbers`, out of the images in `pool`.

    Returns:
        Row of the tens image, row of the ones image, and the number, each `[N]`.
    """
    parts: list[tuple[Integers, Integers, Integers]] = []
    for number in numbers:
        a, b = divmod(number, 10)
        # A name of its own per class and place: every class pairs the images anew.
        tens = fixed_order(pool[digit[pool] == a], f"two_digits/{number:02d}/tens")
        ones = fixed_order(pool[digit[pool] == b], f"two_digits/{number:02d}/ones")
        if a == b:  # no image stands next to itself, nor twice in a class
            half = len(tens) // 2
            tens, ones = tens[:half], fixed_order(tens[half : 2 * half], f"two_digits/{number:02d}/ones")
        both = min(len(tens), len(ones))
        parts.append((tens[:both], ones[:both], np.full(both, number, dtype=np.int64)))
    tens, ones, number = (np.concatenate(part) for part in zip(*parts, strict=True))
    return tens, ones, number
