"""Which score tells whether something was learnt of classes that are not equally frequent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

UNEVEN = 2.0  # times the rows of the smallest class that the largest may have while accuracy still sees it


def metric_for(target: NDArray[np.int64], names: Sequence[str]) -> tuple[str, str]:
    """The metric of a task of classes whose user named none, and why: "" where it is the usual one, accuracy."""
    counts = np.bincount(target, minlength=len(names))
    large, small = int(counts.argmax()), int(counts.argmin())
    if counts[large] < UNEVEN * max(1, counts[small]):
        return "accuracy", ""
    most, least = counts[large] / counts.sum(), counts[small] / counts.sum()
    also = "f1, auroc, average_precision" if len(names) == 2 else "macro_f1"
    return "balanced_accuracy", (
        f"scored by balanced accuracy, because {most:.0%} of the rows are {names[large]!r} and {least:.0%} "
        f"{names[small]!r}: always saying {names[large]!r} would have accuracy {most:.2f} having learnt nothing, and "
        f"has balanced accuracy {1 / len(names):.2f} (metric = accuracy, {also} if you prefer)"
    )
