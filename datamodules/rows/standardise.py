"""Standardisation whose result is bit-equal on every machine."""

import numpy as np
from numpy.typing import NDArray

# Sums differ in their last bits between processors; rounding hides that, and no data needs more digits.
_DIGITS = 6

Floats = NDArray[np.floating]


def moments(train: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each feature over the first axis of training rows; a constant feature has 1."""
    train = train.astype(np.float64)
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    deviation = _significant(np.where(deviation > 1e-12, deviation, 1.0))
    # In units of the deviation: a mean far from zero would lose what matters.
    return np.round(mean / deviation, _DIGITS) * deviation, deviation


def standardise(x: Floats, mean: Floats, deviation: Floats) -> NDArray[np.float32]:
    """`x` in units of training deviations."""
    return ((x.astype(np.float64) - mean) / deviation).astype(np.float32)


def _significant(x: Floats) -> Floats:
    scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.maximum(np.abs(x), 1e-30))))
    return np.round(x * scale) / scale
