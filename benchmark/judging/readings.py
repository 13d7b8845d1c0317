"""Numbers of one record that rules are about."""

from __future__ import annotations

import math

import numpy as np

from benchmark.judging.estimates import Reading
from leaderboard import robustness
from leaderboard.record import Record


def summary(key: str) -> Reading:
    """A number measured once per cell."""
    return lambda record: record.summary.get(key)


def log_cost(key: str) -> Reading:
    """The logarithm of a cost, so that a difference is a ratio."""
    return lambda record: math.log(record.cost[key]) if record.cost.get(key) else None


def clean(record: Record) -> float:
    """The clean score."""
    return record.clean


def normalised(record: Record) -> float:
    """The clean score, 0 for the trivial predictor and 1 for a perfect one."""
    return robustness.normalise(record.clean, record.trivial, record.cell.higher_is_better)


def gap_to_optimum(record: Record) -> float | None:
    """How far the clean score is below the known optimum."""
    return None if record.cell.bayes is None else record.cell.bayes - record.clean


def audit(record: Record) -> float | None:
    """Rank correlation of a modality's weight with the severity of its corruption, mean over modalities."""
    found = robustness.audits([record])[0]
    return float(np.mean(list(found.values()))) if found else None
