"""Coordination: similarities, contrastive losses and what is reported about codes.

Spec: fusion-coordination-fission.md, section 2; canonical correlations are in `cca.py`. Every function accepts
`[..., d]` and treats the leading dimensions as rows, computes in at least float32 outside autocast, and returns the
input's dtype.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from methods.functional.cca import CCA, StreamingCCA, canonical_correlations, dcca_loss
from methods.functional.rows import as_doubles, as_rows, check_paired, no_autocast
from methods.parts.gather import first_row, gather, rank_mean, world

__all__ = [
    "CCA",
    "SIMILARITIES",
    "StreamingCCA",
    "canonical_correlations",
    "clip_loss",
    "dcca_loss",
    "effective_rank",
    "hinge_loss",
    "mean_cosine",
    "retrieval",
    "similarity",
    "zero_shot",
]

RETRIEVAL_CUTS = (1, 5, 10)


# --- similarities, section 2.1 ----------------------------------------------------------------------------------------


def _cosine(a: Tensor, b: Tensor, eps: float = 1e-8) -> Tensor:
    norms = torch.linalg.vector_norm(a, dim=-1).unsqueeze(-1) * torch.linalg.vector_norm(b, dim=-1).unsqueeze(-2)
    return a @ b.mT / norms.clamp(min=eps)


def _linear(a: Tensor, b: Tensor) -> Tensor:
    return a @ b.mT


def _polynomial(a: Tensor, b: Tensor, degree: float = 3, gamma: float = 1.0, coef0: float = 1.0) -> Tensor:
    return (gamma * (a @ b.mT) + coef0) ** degree


def _distance(a: Tensor, b: Tensor, p: float = 2.0) -> Tensor:
    # Not the matmul form: in float32 it gives rows with mean 100 a self-distance of 1.
    return torch.cdist(a, b, p=p, compute_mode="donot_use_mm_for_euclid_dist")


def _rbf(a: Tensor, b: Tensor, sigma: float = 1.0) -> Tensor:
    return torch.exp(-(_distance(a, b) ** 2) / (2 * sigma**2))


def _exponential(a: Tensor, b: Tensor, length: float = 1.0) -> Tensor:
    return torch.exp(-_distance(a, b) / length)


def _laplacian(a: Tensor, b: Tensor, gamma: float = 1.0) -> Tensor:
    return torch.exp(-gamma * _distance(a, b, p=1.0))


SIMILARITIES: dict[str, Callable[..., Tensor]] = {
    "cosine": _cosine,
    "linear": _linear,
    "polynomial": _polynomial,
    "rbf": _rbf,
    "exponential": _exponential,
    "laplacian": _laplacian,
}


def similarity(a: Tensor, b: Tensor, kind: str, **params: float) -> Tensor:
    """Similarities of all pairs of rows, `[n, k]` and `[m, k]` to `[n, m]`.

    Args:
        a: First rows.
        b: Second rows.
        kind: "cosine", "linear", "polynomial" (degree, gamma, coef0), "rbf" (sigma), "exponential" (length; L2
            distance) or "laplacian" (gamma; L1 distance: the source leaves open which of the two it means).
        params: The parameters of the kind.
    """
    if kind not in SIMILARITIES:
        raise ValueError(f"Expected argument `kind` to be one of {', '.join(SIMILARITIES)}, but got {kind!r}")
    wide = torch.promote_types(a.dtype, torch.float32)
    with no_autocast(a):
        return SIMILARITIES[kind](a.to(wide), b.to(wide), **params).to(a.dtype)


# --- contrastive losses, sections 2.5 and 2.6 -------------------------------------------------------------------------


def _false_negatives(rows: int, columns: int, start: int, ids: Tensor | None, all_ids: Tensor | None) -> Tensor | None:
    """`[rows, columns]`: pairs that are not the positive but share its identity."""
    if ids is None or all_ids is None:
        return None
    same = ids.unsqueeze(1) == all_ids.unsqueeze(0)
    positive = torch.arange(columns, device=ids.device) == torch.arange(
        start, start + rows, device=ids.device
    ).unsqueeze(1)
    return same & ~positive


class _Scores(NamedTuple):
    """Cosines of this rank's rows with all columns, in both directions."""

    forward: Tensor  # [n, N] a against all b
    backward: Tensor  # [n, N] b against all a
    positive: Tensor  # [n] column of the positive
    excluded: Tensor | None  # [n, N] false negatives


def _scores(a: Tensor, b: Tensor, same_id: Tensor | None, distributed: bool) -> _Scores:
    check_paired(a, b)
    a, b = F.normalize(as_rows(a), dim=-1), F.normalize(as_rows(b), dim=-1)
    ids = None if same_id is None else same_id.reshape(-1)
    if ids is not None and len(ids) != len(a):
        raise ValueError(f"Expected one identity per row ({len(a)}), but got {len(ids)}")
    all_a, all_b, all_ids, start = a, b, ids, 0
    if distributed and world()[1] > 1:
        all_a, all_b, start = gather(a), gather(b), first_row(len(a), a.device)
        all_ids = None if ids is None else gather(ids)
    positive = torch.arange(start, start + len(a), device=a.device)
    excluded = _false_negatives(len(a), len(all_a), start, ids, all_ids)
    return _Scores(a @ all_b.T, b @ all_a.T, positive, excluded)


def _mean(total: Tensor, count: Tensor, distributed: bool) -> Tensor:
    return rank_mean(total, count) if distributed else total / count.clamp(min=1)


def clip_loss(
    a: Tensor, b: Tensor, logit_scale: Tensor | float, same_id: Tensor | None = None, distributed: bool = False
) -> Tensor:
    """Symmetric InfoNCE of paired rows, which are normalised here; ln N at chance.

    Differs from the source: its `log sim / sum sim` lacks the exponential and the temperature.

    Args:
        a: Codes `[n, k]` of one modality.
        b: Codes of the other; row i belongs to row i of `a`.
        logit_scale: The multiplier of the cosines (not its logarithm).
        same_id: `[n]` identities; equal ones are duplicates and no negatives of each other.
        distributed: Contrast with the rows of all ranks, with exact gradients after DDP's average.
    """
    with no_autocast(a):
        s = _scores(a, b, same_id, distributed)
        total = a.new_zeros((), dtype=s.forward.dtype)
        for cosines in (s.forward, s.backward):
            logits = logit_scale * cosines
            if s.excluded is not None:
                logits = logits.masked_fill(s.excluded, -torch.inf)
            total = total + F.cross_entropy(logits, s.positive, reduction="sum") / 2
        loss = _mean(total, total.new_tensor(float(len(s.positive))), distributed)
    return loss.to(a.dtype)


def hinge_loss(
    a: Tensor,
    b: Tensor,
    margin: float,
    negatives: Literal["mean", "hardest"] = "mean",
    same_id: Tensor | None = None,
    distributed: bool = False,
) -> Tensor:
    """Max-margin contrast `[margin - s_ii + s_ij]_+` on cosines, both directions averaged.

    Differs from the source: its sign is inverted, which makes positives dissimilar.

    Args:
        a: Codes `[n, k]` of one modality.
        b: Codes of the other; row i belongs to row i of `a`.
        margin: By how much a positive must beat a negative.
        negatives: "mean" over all i != j, or the "hardest" per row (VSE++), averaged over rows.
        same_id: `[n]` identities; equal ones are no negatives of each other.
        distributed: Contrast with the rows of all ranks, with exact gradients after DDP's average.
    """
    if negatives not in ("mean", "hardest"):
        raise ValueError(f"Expected argument `negatives` to be 'mean' or 'hardest', but got {negatives!r}")
    with no_autocast(a):
        s = _scores(a, b, same_id, distributed)
        valid = torch.ones_like(s.forward, dtype=torch.bool).scatter(1, s.positive.unsqueeze(1), False)
        if s.excluded is not None:
            valid &= ~s.excluded
        total = a.new_zeros((), dtype=s.forward.dtype)
        for cosines in (s.forward, s.backward):
            violation = (margin - cosines.gather(1, s.positive.unsqueeze(1)) + cosines).clamp(min=0) * valid
            hardest = negatives == "hardest" and violation.shape[1] > 0  # no maximum over no columns
            total = total + (violation.amax(1).sum() if hardest else violation.sum()) / 2
        count = valid.sum() if negatives == "mean" else valid.new_tensor(len(valid), dtype=torch.long)
        loss = _mean(total, count.to(total.dtype), distributed)
    return loss.to(a.dtype)


def zero_shot(image: Tensor, templates: Tensor, logit_scale: Tensor | float) -> Tensor:
    """Class probabilities `[..., classes]` from class prompts `[classes, n_templates, k]`.

    The weight of a class is the normalised mean of its normalised prompts.
    """
    with no_autocast(image):
        wide = torch.promote_types(image.dtype, torch.float32)
        prompts = F.normalize(F.normalize(templates.to(wide), dim=-1).mean(1), dim=-1)
        cosines = F.normalize(image.to(wide), dim=-1) @ prompts.T
        return (logit_scale * cosines).softmax(-1).to(image.dtype)


# --- what is reported about codes -------------------------------------------------------------------------------------


@torch.no_grad()
def mean_cosine(z: Tensor) -> Tensor:
    """Mean cosine over all pairs i != j of rows: 1 for collapsed codes."""
    with no_autocast(z):
        u = F.normalize(as_doubles(z), dim=-1)
        n = len(u)
        # sum_{i != j} u_i u_j = |sum u|^2 - sum |u|^2
        return ((u.sum(0).square().sum() - u.square().sum()) / max(n * (n - 1), 1)).to(z)


@torch.no_grad()
def effective_rank(z: Tensor) -> Tensor:
    """Exponential of the entropy of the centred rows' normalised singular values; 0 for constant codes."""
    with no_autocast(z):
        x = as_doubles(z)
        if not x.isfinite().all():
            return z.new_full((), torch.nan)
        values = torch.linalg.svdvals(x - x.mean(0))
        total = values.sum()
        if total <= torch.finfo(z.dtype).eps * torch.linalg.vector_norm(x):
            return z.new_zeros(())
        return torch.special.entr(values / total).sum().exp().to(z)


@torch.no_grad()
def retrieval(a: Tensor, b: Tensor, chunk: int = 1024) -> dict[str, float]:
    """R@1, R@5, R@10 and the median rank of row i of `b` among all rows of `b`, queried by row i of `a` (cosine).

    Ties share their mean rank, so that constant codes get chance and not a perfect score; NaN ranks last.
    """
    check_paired(a, b)
    with no_autocast(a):
        u, v = F.normalize(as_rows(a), dim=-1), F.normalize(as_rows(b), dim=-1)
        ranks = []
        for start in range(0, len(u), chunk):
            scores = u[start : start + chunk] @ v.T
            positive = scores.diagonal(start).unsqueeze(1)
            # Equal rows may differ by rounding in one product: what is closer than that counts as a tie.
            slack = 8 * torch.finfo(scores.dtype).eps
            below = (scores < positive - slack).sum(1)
            tied = ((scores - positive).abs() <= slack).sum(1)
            ranks.append(len(v) - below - (tied - 1).clamp(min=0) / 2)
        rank = torch.cat(ranks)
    cuts = {f"R@{k}": float((rank <= k).double().mean()) for k in RETRIEVAL_CUTS}
    return {**cuts, "median_rank": float(rank.median())}
