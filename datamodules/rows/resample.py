"""Sequences of any length as sequences of one length."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def resample(x: NDArray[Any], length: int) -> NDArray[np.float64]:
    """`[length, C]` out of `[T, C]`: straight lines between the frames; first and last frame are kept."""
    if len(x) == 0:
        raise ValueError("a sequence must have a frame to be resampled")
    place = np.linspace(0, len(x) - 1, length)
    before = np.floor(place).astype(np.int64)
    after = np.minimum(before + 1, len(x) - 1)
    share = (place - before)[:, None]
    x = x.astype(np.float64)
    return x[before] * (1 - share) + x[after] * share
