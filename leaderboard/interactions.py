"""Do two summaries interact? Least squares with a product term, and honest intervals (docs/mathematics/fusion.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]


class Fit(NamedTuple):
    """Weights of least squares, `[weights]` each: standard errors, ends of the intervals, two-sided p values."""

    w: Floats
    se: Floats
    ci_low: Floats
    ci_high: Floats
    p: Floats
    residual: float  # sum of squares
    freedom: int  # rows less weights


def least_squares(columns: Sequence[Floats], y: Floats, level: float = 0.95) -> Fit:
    """y on a constant and the columns, with t intervals.

    Raises:
        ValueError: If there are no more rows than weights, or the columns are linearly dependent.
    """
    design = np.column_stack([np.ones(len(y)), *columns])
    rows, count = design.shape
    if rows <= count:
        raise ValueError(f"Expected more than {count} rows to estimate {count} weights, got {rows}")
    if np.linalg.matrix_rank(design) < count:
        raise ValueError("Expected columns that are linearly independent: one is constant, or a combination of others")
    q, r = np.linalg.qr(design)
    w = np.asarray(np.linalg.solve(r, q.T @ y), dtype=np.float64)
    error, freedom = y - design @ w, rows - count
    residual = float(error @ error)
    se = np.sqrt(residual / freedom * (np.linalg.inv(r) ** 2).sum(axis=1))
    half = stats.t.ppf(0.5 + level / 2, freedom) * se
    p = 2 * stats.t.sf(np.abs(w) / np.maximum(se, np.finfo(float).tiny), freedom)
    return Fit(w, se, w - half, w + half, p, residual, freedom)


def interaction_regression(
    xa: Sequence[float], xb: Sequence[float], y: Sequence[float], level: float = 0.95
) -> dict[str, Floats]:
    """Fit y = w0 + w1 xa + w2 xb + w3 xa xb.

    The interval of w3 says whether the effect of one depends on the other, on the scale of y: a product on the
    identity scale is a sum on the log scale.

    Returns:
        Arrays of four (1, xa, xb, xa xb): `w`, standard errors `se`, `ci_low`, `ci_high` and two-sided `p`.

    Raises:
        ValueError: As `least_squares` does.
    """
    a, b, response = (np.asarray(v, dtype=np.float64) for v in (xa, xb, y))
    if not a.shape == b.shape == response.shape or a.ndim != 1:
        raise ValueError(f"Expected three sequences of one length, got {a.shape}, {b.shape}, {response.shape}")
    found = least_squares((a, b, a * b), response, level)
    return {name: getattr(found, name) for name in ("w", "se", "ci_low", "ci_high", "p")}
