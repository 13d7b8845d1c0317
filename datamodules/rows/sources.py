"""Values relative to their source: how somebody said something, apart from whose voice it is."""

import math

import numpy as np
from numpy.typing import NDArray

from datamodules.rows.fixed_order import Integers


def relative_to_source(x: NDArray[np.float64], source: Integers) -> NDArray[np.float64]:
    """`x` `[N, F]` without the mean of the rows of the same source, which needs no label."""
    relative = np.empty_like(x)
    for one in np.unique(source):
        own = source == one
        # Summed exactly: sums of floats differ in their last bits between processors.
        mean = [math.fsum(column) / len(column) for column in x[own].T.tolist()]
        relative[own] = x[own] - np.array(mean)
    return relative
