"""Orders and splits that are the same for everybody, for ever.

A published split must not depend on the random generator of a library, so rows are ordered by the SHA-256 of
`"<name>/<row>"`: anyone can recompute it in any language.
"""

import hashlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def fixed_order(rows: Sequence[int] | Integers, name: str) -> Integers:
    """`rows` in the order of the SHA-256 of `"<name>/<row>"`."""
    return np.array(sorted(map(int, rows), key=lambda row: _digest(name, row)), dtype=np.int64)


def split_by_class(
    target: Integers, fractions: tuple[float, ...], name: str, group: Integers | None = None
) -> tuple[Integers, ...]:
    """Rows of each part of a stratified split, each part in fixed order.

    Args:
        target: `[N]` class of each row.
        fractions: Share of each part; they sum to 1.
        name: Of the dataset: another name gives another split.
        group: `[N]` source of each row. Rows of one source stay in one part, so that a part may be a few rows larger
            or smaller than its share of a class.
    """
    if not np.isclose(sum(fractions), 1.0):
        raise ValueError(f"`fractions` must sum to 1, got {fractions}")
    group = np.arange(len(target)) if group is None else group
    rank = {source: i for i, source in enumerate(fixed_order(np.unique(group), name).tolist())}
    parts: list[list[int]] = [[] for _ in fractions]
    for stratum in _strata(target, group):
        # The place of a row is that of its source: rows of one source are neighbours.
        rows = sorted(stratum, key=lambda row: (rank[int(group[row])], row))
        for part, (start, stop) in zip(parts, pairwise(_cuts(group[rows], fractions)), strict=True):
            part += rows[start:stop]
    return tuple(fixed_order(part, f"{name}/rows") for part in parts)


def pair_by_class(first: Integers, second: Integers, name: str) -> tuple[Integers, Integers]:
    """Rows of `first` and `second` that share a class, each row used at most once.

    Within a class the k-th of `first` in fixed order `"<name>/first"` meets the k-th of `second` in `"<name>/second"`,
    as long as both last: within its class the pairing is arbitrary, so the pair has nothing in common but the class.
    """
    pairs: tuple[list[Integers], list[Integers]] = ([], [])
    for label in np.intersect1d(first, second):
        rows_first = fixed_order(np.flatnonzero(first == label), f"{name}/first")
        rows_second = fixed_order(np.flatnonzero(second == label), f"{name}/second")
        both = min(len(rows_first), len(rows_second))
        pairs[0].append(rows_first[:both])
        pairs[1].append(rows_second[:both])
    return np.concatenate(pairs[0]), np.concatenate(pairs[1])


def _strata(target: Integers, group: Integers) -> list[list[int]]:
    """Rows by the classes of their source: a source of two classes counts for neither alone."""
    classes: dict[int, set[int]] = {}
    for source, label in zip(group.tolist(), target.tolist(), strict=True):
        classes.setdefault(source, set()).add(label)
    strata: dict[tuple[int, ...], list[int]] = {}
    for row, source in enumerate(group.tolist()):
        strata.setdefault(tuple(sorted(classes[source])), []).append(row)
    return [strata[key] for key in sorted(strata)]


def _cuts(group: Integers, fractions: tuple[float, ...]) -> list[int]:
    """Positions that cut sorted rows into shares, never inside a source."""
    cuts = [0]
    for share in np.cumsum(fractions):
        cut = round(float(share) * len(group))
        while 0 < cut < len(group) and group[cut] == group[cut - 1]:
            cut += 1
        cuts.append(cut)
    return cuts


def _digest(name: str, row: int) -> bytes:
    return hashlib.sha256(f"{name}/{row}".encode()).digest()
