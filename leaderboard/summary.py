"""What comparisons need of a method on a dataset: its mean, its spread over seeds, and what its rows add.

Processes that read predictions make these; they need no SciPy for it, which takes a second to import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Summary:
    """One method on one dataset, as far as comparisons need it.

    Attributes:
        mean: Of the score over seeds.
        seeds: How many.
        variance: Of the score over seeds; not a number with one seed.
        interaction: The part of `variance` that comes from rows going another way with each seed, which a mean over
            rows and seeds shows among its rows too; not a number with one seed.
        rows: What each group of rows adds to the mean, less its share of it, `[groups]`; a single 0 when only scores
            are known.
    """

    mean: float
    seeds: int
    variance: float
    interaction: float
    rows: Floats


def summarise(values: NDArray[Any], groups: NDArray[Any] | None = None) -> Summary:
    """Reduce what rows add to a score to what comparisons need.

    Args:
        values: `[seeds, rows]` with the score of each seed as the mean over rows; `[seeds, 1]` when only scores are
            known.
        groups: `[rows]`, equal where rows are not independent (questions about one image); None: all are.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"Expected `values` to be [seeds, rows], but got shape {x.shape}")
    seeds = len(x)
    scores = x.mean(axis=1)
    centred = _sums(x - scores[:, None], groups) / x.shape[1]  # [seeds, groups]
    rows = centred.mean(axis=0)
    variance, interaction = np.nan, np.nan
    if seeds > 1:
        variance = float(scores.var(ddof=1))
        interaction = float(spread(centred - rows).sum() / (seeds - 1))
    return Summary(float(scores.mean()), seeds, variance, interaction, rows)


def of_scores(values: Mapping[str, Sequence[float]]) -> dict[str, Summary]:
    """`summarise` of each method's scores, one per seed, of which nothing is known about rows."""
    by_number: dict[int, list[str]] = {}
    for name, own in values.items():
        by_number.setdefault(len(own), []).append(name)
    found: dict[str, Summary] = {}
    for seeds, names in by_number.items():  # all of as many seeds at once: a board asks for thousands
        x = np.array([values[name] for name in names], dtype=np.float64)
        variances = x.var(axis=1, ddof=1).tolist() if seeds > 1 else [np.nan] * len(x)
        interaction = 0.0 if seeds > 1 else np.nan
        for name, mean, variance in zip(names, x.mean(axis=1).tolist(), variances, strict=True):
            found[name] = Summary(mean, seeds, variance, interaction, np.zeros(1))
    return {name: found[name] for name in values}


def _sums(x: Floats, groups: NDArray[Any] | None) -> Floats:
    """Sums over groups of the last axis."""
    if groups is None:
        return x
    if len(groups) != x.shape[-1]:
        raise ValueError(f"Expected `groups` to have {x.shape[-1]} rows, but got {len(groups)}")
    if (groups[1:] < groups[:-1]).any():
        order = np.argsort(groups, kind="stable")
        x, groups = x[..., order], groups[order]
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
    return np.add.reduceat(x, starts, axis=-1)


def spread(rows: NDArray[Any]) -> Floats:
    """Variance, over draws of groups, of the sum of what groups add `[..., groups]`, which are centred."""
    groups = rows.shape[-1]
    return (rows**2).sum(axis=-1) * (groups / (groups - 1) if groups > 1 else 1.0)
