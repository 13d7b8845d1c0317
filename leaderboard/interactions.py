"""Do two summaries interact? Least squares with a product term, and honest intervals (docs/mathematics/fusion.md)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats


def interaction_regression(
    xa: Sequence[float], xb: Sequence[float], y: Sequence[float], level: float = 0.95
) -> dict[str, NDArray[np.float64]]:
    """Fit y = w0 + w1 xa + w2 xb + w3 xa xb.

    The interval of w3 says whether the effect of one depends on the other, on the scale of y: a product on the
    identity scale is a sum on the log scale.

    Returns:
        Arrays of four (1, xa, xb, xa xb): `w`, standard errors `se`, `ci_low`, `ci_high` and two-sided `p`.

    Raises:
        ValueError: With fewer than five rows, or when the columns are linearly dependent.
    """
    a, b, response = (np.asarray(v, dtype=np.float64) for v in (xa, xb, y))
    if not a.shape == b.shape == response.shape or a.ndim != 1:
        raise ValueError(f"Expected three sequences of one length, got {a.shape}, {b.shape}, {response.shape}")
    rows = len(a)
    if rows <= 4:
        raise ValueError(f"Expected more than 4 rows to estimate 4 weights, got {rows}")
    design = np.stack([np.ones(rows), a, b, a * b], axis=1)
    if np.linalg.matrix_rank(design) < 4:
        raise ValueError("Expected 1, xa, xb and their product to be linearly independent: one of them is constant")
    q, r = np.linalg.qr(design)
    w = np.linalg.solve(r, q.T @ response)
    residual = response - design @ w
    freedom = rows - 4
    inverse = np.linalg.inv(r)
    se = np.sqrt(residual @ residual / freedom * (inverse**2).sum(axis=1))
    half = stats.t.ppf(0.5 + level / 2, freedom) * se
    with np.errstate(divide="ignore"):
        p = 2 * stats.t.sf(np.abs(w / se), freedom)
    found = {"w": w, "se": se, "ci_low": w - half, "ci_high": w + half, "p": p}
    return {name: np.asarray(value, dtype=np.float64) for name, value in found.items()}
