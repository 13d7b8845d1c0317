"""Sequences of any length as one vector of plain statistics, which tell apart what happened when."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

STATISTICS = 4  # mean, deviation, smallest, largest


def summarise(x: NDArray[Any], parts: int) -> NDArray[np.float64]:
    """`[parts, 4, C]` out of `[T, C]`: mean, deviation, minimum and maximum of each channel in equal parts of the time.

    Parts that a sequence is too short for repeat its last frame.
    """
    if len(x) == 0:
        raise ValueError("a sequence must have a frame to be summarised")
    x = x.astype(np.float64)
    pieces = [piece if len(piece) else x[-1:] for piece in np.array_split(x, parts)]
    return np.stack([np.stack([p.mean(axis=0), p.std(axis=0), p.min(axis=0), p.max(axis=0)]) for p in pieces])
