"""What rows add to the measures of many methods, read by as many processes as there are cores when there is much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from numpy.typing import NDArray

from leaderboard import outcomes
from leaderboard.pillars import Weights
from leaderboard.processes import cores, pool
from leaderboard.record import Record
from leaderboard.store import Store
from leaderboard.summary import Summary

_MANY = 2000  # files from which on it is worth starting processes


def by_row(
    methods: Mapping[str, Sequence[Record]],
    able: Mapping[str, Sequence[str]],
    weights: Mapping[str, Weights],
    stores: Mapping[str, Any],
    groups: NDArray[Any] | None,
) -> dict[str, dict[str, Summary]] | None:
    """Method -> measure -> summary.

    Args:
        methods: Their records on one dataset, one per seed.
        able: The measures each of them has.
        weights: Measure -> condition -> weight.
        stores: Cell id -> where its predictions are.
        groups: The source of each row; None: all are independent.

    Returns:
        None unless every cell has predictions of the same rows: what is known of some only cannot be compared.
    """
    wanted = {name: {m: weights[m] for m in able[name]} for name in methods}
    if sum(map(len, methods.values())) < _MANY or cores() == 1 or not _all_folders(methods, stores):
        done = [outcomes.summaries(own, wanted[name], stores, groups) for name, own in methods.items()]
    else:
        # Where the predictions are, not the records: those are slow to send.
        files = [[(stores[r.cell.id], r.cell.id) for r in own] for own in methods.values()]
        metrics = [own[0].cell.metric for own in methods.values()]
        size = max(1, min(50, len(files) // (4 * cores())))
        done = list(pool().map(outcomes.from_files, files, metrics, wanted.values(), repeat(groups), chunksize=size))
    found = {name: own for name, own in zip(methods, done, strict=True) if own is not None}
    sizes = {len(summary.rows) for own in found.values() for summary in own.values()}
    return found if len(found) == len(done) and len(sizes) == 1 else None


def _all_folders(methods: Mapping[str, Sequence[Record]], stores: Mapping[str, Any]) -> bool:
    return all(isinstance(stores[r.cell.id], Store) for own in methods.values() for r in own)
