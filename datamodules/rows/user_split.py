"""Classes and splits of a user's own rows: read from the data where it says so, else fixed by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from datamodules.base import SPLITS, SplitName
from datamodules.rows.fixed_order import Integers, split_by_class

_WORDS: dict[SplitName, tuple[str, ...]] = {
    "train": ("train", "training"),
    "val": ("val", "validation", "valid", "dev"),
    "test": ("test", "testing"),
}
MEANT: dict[str, SplitName] = {word: split for split, words in _WORDS.items() for word in words}


def class_numbers(labels: NDArray[np.str_]) -> tuple[Integers, tuple[str, ...]]:
    """The number of each row's class and the names of the classes, in order: numerical if all are numbers."""
    names, numbers = np.unique(labels, return_inverse=True)
    try:
        order = np.argsort(names.astype(np.float64), kind="stable")
    except ValueError:
        order = np.arange(len(names))
    return np.argsort(order)[numbers].astype(np.int64), tuple(str(name) for name in names[order])


def split_by_shares(
    shares: Sequence[float], strata: Integers, name: str, group: Integers | None
) -> dict[SplitName, Integers]:
    """Train, val and test rows, stratified and fixed by `name`; rows of one group stay together."""
    if len(shares) != 3 or min(shares) <= 0 or not np.isclose(sum(shares), 1.0):
        raise ValueError(f"`split` must be three positive shares that sum to 1, or name a column, got {list(shares)}")
    parts = split_by_class(strata, tuple(shares), name, group)
    return _filled(dict(zip(SPLITS, parts, strict=True)))


def split_by_name(labels: NDArray[np.str_], group: Integers | None, where: str) -> dict[SplitName, Integers]:
    """Train, val and test rows as `labels` say; a group in two splits is an error, which names `where`."""
    meant = [MEANT.get(label.strip().lower()) for label in labels.tolist()]
    if None in meant:
        row = meant.index(None)
        raise ValueError(f"{where}, row {row + 1}: must be train, val or test, got {str(labels[row])!r}")
    side = np.array(meant)
    if group is not None:
        order = np.argsort(group, kind="stable")
        torn = (group[order][1:] == group[order][:-1]) & (side[order][1:] != side[order][:-1])
        if torn.any():
            a, b = sorted(order[np.flatnonzero(torn)[0] :][:2] + 1)
            raise ValueError(f"{where}: rows {a} and {b} share a group but are in two splits")
    return _filled({name: np.flatnonzero(side == name) for name in SPLITS})


def _filled(rows: dict[SplitName, Integers]) -> dict[SplitName, Integers]:
    for name, own in rows.items():
        if not len(own):
            raise ValueError(f"every split must have rows, {name} would have none: give more rows or another `split`")
    return rows
