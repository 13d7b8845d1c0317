"""What rows add to the measures of many methods, read by as many processes as there are cores when there is much."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leaderboard import rows
from leaderboard.moderated import Summary, summarise
from leaderboard.pillars import Weights
from leaderboard.record import Record
from leaderboard.store import Store

_MANY = 2000  # files from which on it is worth starting processes


@dataclass(frozen=True)
class _Job:
    """A method: where the predictions of its seeds are, and what is made of them; nothing that is slow to send."""

    files: tuple[tuple[Store, str], ...]
    metric: str
    weightings: tuple[Weights, ...]
    groups: NDArray[Any] | None


def by_row(
    methods: Mapping[str, Sequence[Record]],
    able: Mapping[str, Sequence[str]],
    weights: Mapping[str, Weights],
    stores: Mapping[str, Store],
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
    jobs = [
        _Job(
            tuple((stores[r.cell.id], r.cell.id) for r in own),
            own[0].cell.metric,
            tuple(weights[m] for m in able[name]),
            groups,
        )
        for name, own in methods.items()
    ]
    files = sum(len(job.files) for job in jobs)
    if files < _MANY or _cores() == 1:
        done = list(map(_summaries, jobs))
    else:
        done = list(_pool().map(_summaries, jobs, chunksize=max(1, min(50, len(jobs) // (4 * _cores())))))
    if any(own is None for own in done) or len({len(s.rows) for own in done for s in own or ()}) > 1:
        return None
    return {name: dict(zip(able[name], own or (), strict=True)) for name, own in zip(methods, done, strict=True)}


def _summaries(job: _Job) -> list[Summary] | None:
    stacks = [rows.several(store, cell, job.metric, job.weightings) for store, cell in job.files]
    whole = [s for s in stacks if s is not None]
    sizes = {s.shape[1] for s in whole} | (set() if job.groups is None else {len(job.groups)})
    if len(whole) < len(stacks) or len(sizes) > 1:
        return None
    return [summarise(np.stack([s[i] for s in whole]), job.groups) for i in range(len(job.weightings))]


def _cores() -> int:
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)


@cache
def _pool() -> ProcessPoolExecutor:
    """One for all datasets of a board; it ends with the program."""
    return ProcessPoolExecutor(_cores(), multiprocessing.get_context("spawn"))
