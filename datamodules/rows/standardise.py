"""Standardisation whose result is bit-equal on every machine."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Sums differ in their last bits between processors; rounding hides that, and no data needs more digits.
_DIGITS = 6

Floats = NDArray[np.floating]
Doubles = NDArray[np.float64]


def moments(train: Floats) -> tuple[Doubles, Doubles]:
    """Mean and standard deviation of each feature over the first axis of training rows; a constant feature has 1."""
    return merged_moments([train])


def merged_moments(blocks: Iterable[Floats]) -> tuple[Doubles, Doubles]:
    """`moments` of rows that come in blocks, each `[rows, ...]` and read once (Chan, Golub and LeVeque, 1979)."""
    count, mean, squares = 0, np.zeros(()), np.zeros(())
    for block in filter(len, blocks):
        block = block.astype(np.float64)
        size, own = len(block), block.mean(axis=0)
        step = own - mean
        squares = squares + np.square(block - own).sum(axis=0) + step**2 * (count * size / (count + size))
        mean = mean + step * (size / (count + size))
        count += size
    deviation = np.sqrt(squares / max(1, count))
    deviation = _significant(np.where(deviation > 1e-12, deviation, 1.0))
    # In units of the deviation: a mean far from zero would lose what matters.
    return np.round(mean / deviation, _DIGITS) * deviation, deviation


def standardise(x: Floats, mean: Floats, deviation: Floats) -> NDArray[np.float32]:
    """`x` in units of training deviations."""
    return ((x.astype(np.float64) - mean) / deviation).astype(np.float32)


def standardise_by(train: NDArray[Any], x: Floats) -> NDArray[np.float32]:
    """`x` in units of the deviations of its rows `train`."""
    return standardise(x, *moments(x[train]))


def _significant(x: Doubles) -> Doubles:
    scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.maximum(np.abs(x), 1e-30))))
    return np.round(x * scale) / scale
