"""Coordination: similarities, contrastive losses and what is reported about codes.

Canonical correlations are in `cca.py`. Every function accepts `[..., d]` and treats the leading dimensions as rows,
computes in at least float32 outside autocast, and returns the input's dtype.
"""

# Not every function of torch says what it returns.
# pyright: reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from methods.functional.cca import CCA, StreamingCCA, canonical_correlations, dcca_loss
from methods.functional.retrieval import first_positive_rank
from methods.functional.rows import as_doubles, as_rows, check_paired, no_autocast

__all__ = [
    "CCA",
    "SIMILARITIES",
    "StreamingCCA",
    "canonical_correlations",
    "clip_loss",
    "cosine_loss",
    "dcca_loss",
    "effective_rank",
    "hinge_loss",
    "mean_cosine",
    "retrieval",
    "similarity",
    "zero_shot",
]

RETRIEVAL_CUTS = (1, 5, 10)


# --- similarities -----------------------------------------------------------------------------------------------------


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


# --- losses of paired rows --------------------------------------------------------------------------------------------


class _Scores(NamedTuple):
    """Cosines of all pairs in both directions; positives are on the diagonal."""

    forward: Tensor  # [n, n] a against all b
    backward: Tensor  # [n, n] b against all a
    excluded: Tensor | None  # [n, n] pairs that are not the positive but share its identity


def _scores(a: Tensor, b: Tensor, same_id: Tensor | None) -> _Scores:
    check_paired(a, b)
    a, b = F.normalize(as_rows(a), dim=-1), F.normalize(as_rows(b), dim=-1)
    if same_id is None:
        return _Scores(a @ b.T, b @ a.T, None)
    ids = same_id.reshape(-1)
    if len(ids) != len(a):
        raise ValueError(f"Expected one identity per row ({len(a)}), but got {len(ids)}")
    same = ids.unsqueeze(1) == ids.unsqueeze(0)
    return _Scores(a @ b.T, b @ a.T, same.fill_diagonal_(False))


def cosine_loss(a: Tensor, b: Tensor) -> Tensor:
    """`1 - cos` of paired rows, averaged over them; 0 if there are none."""
    return (1 - F.cosine_similarity(a, b, dim=-1)).sum() / max(1, len(a))


def clip_loss(a: Tensor, b: Tensor, logit_scale: Tensor | float, same_id: Tensor | None = None) -> Tensor:
    """Symmetric InfoNCE of paired rows, which are normalised here; ln N at chance.

    Args:
        a: Codes `[n, k]` of one modality.
        b: Codes of the other; row i belongs to row i of `a`.
        logit_scale: The multiplier of the cosines (not its logarithm).
        same_id: `[n]` identities; equal ones are duplicates and no negatives of each other.
    """
    with no_autocast(a):
        s = _scores(a, b, same_id)
        positive = torch.arange(len(s.forward), device=a.device)
        total = a.new_zeros((), dtype=s.forward.dtype)
        for cosines in (s.forward, s.backward):
            logits = logit_scale * cosines
            if s.excluded is not None:
                logits = logits.masked_fill(s.excluded, -torch.inf)
            total = total + F.cross_entropy(logits, positive, reduction="sum") / 2
    return (total / max(1, len(positive))).to(a.dtype)


def hinge_loss(
    a: Tensor,
    b: Tensor,
    margin: float,
    negatives: Literal["mean", "hardest"] = "mean",
    same_id: Tensor | None = None,
) -> Tensor:
    """Max-margin contrast `[margin - s_ii + s_ij]_+` on cosines, both directions averaged.

    Args:
        a: As in `clip_loss`, and so are `b` and `same_id`.
        margin: By how much a positive must beat a negative.
        negatives: "mean" over all i != j, or the "hardest" per row, averaged over rows.
    """
    if negatives not in ("mean", "hardest"):
        raise ValueError(f"Expected argument `negatives` to be 'mean' or 'hardest', but got {negatives!r}")
    with no_autocast(a):
        s = _scores(a, b, same_id)
        valid = torch.ones_like(s.forward, dtype=torch.bool).fill_diagonal_(False)
        if s.excluded is not None:
            valid &= ~s.excluded
        total = a.new_zeros((), dtype=s.forward.dtype)
        for cosines in (s.forward, s.backward):
            violation = (margin - cosines.diagonal().unsqueeze(1) + cosines).clamp(min=0) * valid
            hardest = negatives == "hardest" and violation.shape[1] > 0  # no maximum over no columns
            total = total + (violation.amax(1).sum() if hardest else violation.sum()) / 2
        count = valid.sum() if negatives == "mean" else valid.new_tensor(len(valid), dtype=torch.long)
    return (total / count.clamp(min=1)).to(a.dtype)


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
def retrieval(a: Tensor, b: Tensor) -> dict[str, float]:
    """R@1, R@5, R@10 and the median rank of row i of `b` among all rows of `b`, queried by row i of `a` (cosine).

    Ties and what is not a number count against the query, as in every recall (`first_positive_rank`).
    """
    check_paired(a, b)
    with no_autocast(a):
        a, b = as_rows(a), as_rows(b)
        instance = torch.arange(len(a), device=a.device)
        rank = 1 + first_positive_rank(a, b, instance, instance, exclude_self=False)
    cuts = {f"R@{k}": float((rank <= k).double().mean()) for k in RETRIEVAL_CUTS}
    return {**cuts, "median_rank": float(rank.double().median())}
