"""Canonical correlations: of a batch, as the deep CCA loss, and streamed over any number of batches and workers.

All moments are float64 and never computed under autocast.
"""

# Not every function of torch says what it returns.
# pyright: reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Sequence
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from methods.functional.rows import as_doubles, check_paired, no_autocast


def _covariances(x: Tensor, y: Tensor, ridge: float) -> tuple[Tensor, Tensor, Tensor]:
    """S_11 + rI, S_22 + rI and S_12 with 1/(n-1), in float64: a collapsed float32 view has no Cholesky factor."""
    x, y = as_doubles(x), as_doubles(y)
    if len(x) < 2:
        raise ValueError(f"Expected at least 2 rows for a covariance, but got {len(x)}")
    x, y = x - x.mean(0), y - y.mean(0)
    n = len(x) - 1
    eye_x, eye_y = (torch.eye(v.shape[1], dtype=v.dtype, device=v.device) for v in (x, y))
    return x.T @ x / n + ridge * eye_x, y.T @ y / n + ridge * eye_y, x.T @ y / n


def _whitener(s: Tensor) -> Tensor:
    """W `[d, rank]` with W^T S W = I; directions below the relative cut lam_max * d * eps are dropped."""
    with torch.no_grad():
        values, vectors = torch.linalg.eigh(s)
        keep = values > values[-1] * len(s) * torch.finfo(s.dtype).eps
    if keep.all():
        # Cholesky where it exists: the gradient of eigh is NaN for already-whitened views.
        eye = torch.eye(len(s), dtype=s.dtype, device=s.device)
        return torch.linalg.solve_triangular(torch.linalg.cholesky(s), eye, upper=False).T
    return vectors[:, keep] / values[keep].sqrt()


def canonical_correlations(x: Tensor, y: Tensor, ridge: float = 0.0) -> Tensor:
    """The canonical correlations of two views, descending, `[min(d_x, d_y)]`; 0 for directions a view lacks.

    With few rows they are biased upwards: `d_x + d_y - (n - 1)` of them are exactly 1 when that is positive.
    """
    check_paired(x, y, same_width=False)
    with no_autocast(x):
        s_x, s_y, s_xy = _covariances(x, y, ridge)
        # T = L_1^{-1} S_12 L_2^{-T}
        rho = torch.linalg.svdvals(_whitener(s_x).T @ s_xy @ _whitener(s_y)).clamp(max=1.0)
    missing = min(x.shape[-1], y.shape[-1]) - len(rho)
    return F.pad(rho, (0, missing)).to(device=x.device, dtype=x.dtype)


def dcca_loss(x: Tensor, y: Tensor, ridge: float = 1e-4, norm: Literal["nuclear", "frobenius"] = "nuclear") -> Tensor:
    """The deep CCA objective of a batch: minus the sum of its canonical correlations.

    `norm` "nuclear" is `-sum rho` (Andrew et al., 2013), "frobenius" the smooth `-sum rho^2`; `ridge` is added to the
    diagonal of both covariances.
    """
    check_paired(x, y, same_width=False)
    rows, widths = x[..., 0].numel(), x.shape[-1] + y.shape[-1]
    if rows <= widths:
        raise ValueError(
            f"Expected more rows than the sum of the widths {x.shape[-1]} + {y.shape[-1]}, but got {rows}: some "
            "correlations are 1 whatever the encoder. Use a larger batch or narrower codes."
        )
    with no_autocast(x):
        s_x, s_y, s_xy = _covariances(x, y, ridge)
        l_x, l_y = _cholesky(s_x, "first", ridge), _cholesky(s_y, "second", ridge)
        half = torch.linalg.solve_triangular(l_x, s_xy, upper=False)
        t = torch.linalg.solve_triangular(l_y, half.T, upper=False)
        if norm == "nuclear":
            # The gradient of svdvals is P Q^T: no differences of singular values, finite at the optimum.
            loss = -torch.linalg.svdvals(t).sum()
        elif norm == "frobenius":
            loss = -t.square().sum()
        else:
            raise ValueError(f"Expected argument `norm` to be 'nuclear' or 'frobenius', but got {norm!r}")
    return loss.to(device=x.device, dtype=x.dtype)


def _cholesky(s: Tensor, view: str, ridge: float) -> Tensor:
    factor, info = torch.linalg.cholesky_ex(s)
    if info:
        raise ValueError(f"The covariance of the {view} view is singular with ridge {ridge}: use a positive `ridge`")
    return factor


class CCA(NamedTuple):
    """A fitted linear CCA: `(x_m - means[m]) @ projections[m]` are the aligned coordinates of view m."""

    projections: list[Tensor]  # [d_m, k]
    means: list[Tensor]  # [d_m]
    correlations: Tensor  # [k], descending


class StreamingCCA:
    """Linear CCA (M = 2) and MCCA (M >= 3) from mergeable float64 moments: the data is never held.

    The answer does not depend on how rows are split into batches or workers (Chan's merge), up to rounding.
    Memory is `(sum d)^2`.
    """

    def __init__(self) -> None:
        self.widths: tuple[int, ...] = ()
        self.count = 0
        self.mean = torch.empty(0, dtype=torch.float64)
        # The sum of (x - mean)(x - mean)^T over the concatenated views.
        self.scatter = torch.empty(0, 0, dtype=torch.float64)

    @torch.no_grad()
    def partial_fit(self, *views: Tensor) -> Self:
        """Add a batch of paired rows; `views[m]` is `[..., d_m]`."""
        if len(views) < 2:
            raise ValueError(f"Expected at least 2 views, but got {len(views)}")
        for view in views[1:]:
            check_paired(views[0], view, same_width=False)
        with no_autocast(views[0]):
            x = torch.cat([as_doubles(view) for view in views], dim=1)
            if len(x) == 0:
                return self
            if not x.isfinite().all():
                raise ValueError("Expected finite views, but got NaN or infinity: the moments would be lost")
            mean = x.mean(0)
            centred = x - mean
            self._add(tuple(view.shape[-1] for view in views), len(x), mean, centred.T @ centred)
        return self

    def merge(self, other: "StreamingCCA") -> Self:
        """Add the rows another worker has seen."""
        if other.count:
            self._add(other.widths, other.count, other.mean, other.scatter)
        return self

    def _add(self, widths: tuple[int, ...], count: int, mean: Tensor, scatter: Tensor) -> None:
        if not self.count:
            self.widths, self.count, self.mean, self.scatter = widths, count, mean.clone(), scatter.clone()
            return
        if widths != self.widths:
            raise ValueError(f"Expected views of widths {self.widths}, but got {widths}")
        delta = mean.to(self.mean) - self.mean
        total = self.count + count
        # Chan: C += C_b + d d^T n n_b / (n + n_b), m += d n_b / (n + n_b)
        self.scatter += scatter.to(self.scatter) + torch.outer(delta, delta) * (self.count * count / total)
        self.mean += delta * (count / total)
        self.count = total

    def covariance(self) -> Tensor:
        """The covariance of the concatenated views, 1/(n-1)."""
        if self.count < 2:
            raise ValueError(f"Expected at least 2 rows, but got {self.count}")
        return self.scatter / (self.count - 1)

    def relative_ridge(self, relative: float) -> list[float]:
        """`relative * trace(S_m) / d_m` per view; dead (constant) columns do not count as width."""
        variances = self.covariance().diagonal().split(self.widths)
        return [relative * float(v.sum()) / max(int((v > 0).sum()), 1) for v in variances]

    @torch.no_grad()
    def limit(self, ridge: float | Sequence[float] = 0.0) -> int:
        """How many directions there are: the lower rank for M = 2, the sum of ranks for M >= 3."""
        _, whiteners = self._whiten(ridge)
        ranks = [w.shape[1] for w in whiteners]
        return min(ranks) if len(ranks) == 2 else sum(ranks)

    def _whiten(self, ridge: float | Sequence[float]) -> tuple[list[tuple[Tensor, ...]], list[Tensor]]:
        """Blocks of the covariance, and a whitener of each view with its ridge."""
        ridges = [float(ridge)] * len(self.widths) if isinstance(ridge, int | float) else [float(r) for r in ridge]
        covariance = self.covariance()
        if len(ridges) != len(self.widths):
            raise ValueError(f"Expected one ridge or {len(self.widths)}, but got {len(ridges)}")
        blocks = [row.split(self.widths, dim=1) for row in covariance.split(self.widths)]
        eyes = [torch.eye(d, dtype=covariance.dtype, device=covariance.device) for d in self.widths]
        return blocks, [_whitener(blocks[m][m] + r * eye) for m, (r, eye) in enumerate(zip(ridges, eyes, strict=True))]

    @torch.no_grad()
    def finalize(self, k: int | None = None, ridge: float | Sequence[float] = 0.0) -> CCA:
        """Solve for the k leading directions; None: as many as the view of the lowest rank has.

        The ridge is added to the diagonal blocks, one value or one per view; without it, rank-deficient views lose
        their null directions. `U_m^T (S_m + rI) U_m` has unit diagonal (the identity for M = 2), correlations are
        `(lambda - 1) / (M - 1)` of `C w = lambda blockdiag(S_mm + rI) w`, and the largest entry by magnitude of each
        column of the first projection is positive.
        """
        with no_autocast(self.scatter):
            blocks, whiteners = self._whiten(ridge)
            ranks = [w.shape[1] for w in whiteners]
            limit = min(ranks) if len(ranks) == 2 else sum(ranks)
            k = min(ranks) if k is None else k
            if not 0 <= k <= limit:
                raise ValueError(f"Expected argument `k` between 0 and {limit} (views of rank {ranks}), but got {k}")
            directions, correlations = _solve(blocks, whiteners, k)
            projections = [w @ v for w, v in zip(whiteners, directions, strict=True)]
        if k:
            largest = projections[0].gather(0, projections[0].abs().argmax(0, keepdim=True))
            signs = torch.where(largest < 0, -1.0, 1.0).to(largest)
            projections = [p * signs for p in projections]
        return CCA(projections, list(self.mean.clone().split(self.widths)), correlations)


def _solve(blocks: Sequence[Sequence[Tensor]], whiteners: list[Tensor], k: int) -> tuple[list[Tensor], Tensor]:
    """Leading directions in whitened coordinates, unit columns per view, and their correlations."""
    if len(whiteners) == 2:
        p, rho, qh = torch.linalg.svd(whiteners[0].T @ blocks[0][1] @ whiteners[1], full_matrices=False)
        return [p[:, :k], qh[:k].T], rho[:k].clamp(max=1.0)
    views = range(len(whiteners))
    cross = [[whiteners[i].T @ blocks[i][j] @ whiteners[j] for j in views] for i in views]
    for i in views:
        cross[i][i] = torch.eye(len(cross[i][i])).to(cross[i][i])
    # C w = lambda blockdiag(S_mm) w, whitened: an ordinary symmetric eigenproblem.
    values, vectors = torch.linalg.eigh(torch.cat([torch.cat(row, dim=1) for row in cross]))
    leading = vectors.flip(1)[:, :k].split([w.shape[1] for w in whiteners])
    # A view that takes no part in a direction keeps a zero column instead of amplified rounding.
    norms = [torch.linalg.vector_norm(v, dim=0, keepdim=True) for v in leading]
    unit = [torch.where(n > 1e-8, v / n.clamp(min=1e-8), 0.0) for v, n in zip(leading, norms, strict=True)]
    return unit, (values.flip(0)[:k] - 1) / (len(whiteners) - 1)
