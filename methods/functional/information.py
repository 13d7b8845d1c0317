"""Entropies, bounds on mutual information from scores `[N, N]` with the positives on the diagonal, and PID."""

# Not every function of torch says what it returns.
# pyright: reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

import math

import torch
from torch import Tensor


def entropies(p: Tensor) -> dict[str, Tensor]:
    """Entropies and mutual information, in bits, of a joint distribution or of counts `[X, Y]`, normalised here."""
    total = p.sum()
    if not (p >= 0).all() or not 0 < total < torch.inf:
        raise ValueError(f"Expected non-negative probabilities or counts with a positive sum, but got a sum of {total}")
    p = p / total
    joint, x, y = (_entropy(q) for q in (p, p.sum(dim=1), p.sum(dim=0)))
    return {"HX": x, "HY": y, "HXY": joint, "MI": x + y - joint, "HX_given_Y": joint - y}


def pid(p: Tensor, tolerance: float = 1e-8, iterations: int = 5_000) -> dict[str, Tensor]:
    """Redundancy, unique and synergistic information about Y, in bits (BROJA).

    The least information any q with the pair marginals of p carries, min_q I_q(X1 X2; Y), equals min_q min_r KL(q || r)
    up to a constant: alternate r(x1, x2) = sum_y q and, per y, the projection of r onto p(x1, y) and p(x2, y) by
    iterative proportional fitting (Bertschinger et al., 2014).

    Args:
        p: `[X1, X2, Y]` joint distribution.
        tolerance: Stop when the objective changes by less, in bits, per outer iteration.
        iterations: At most.
    """
    p = p / p.sum()
    first, second = p.sum(dim=1), p.sum(dim=0)  # p(x1, y), p(x2, y)
    prior = p.sum(dim=(0, 1))
    safe = prior.clamp_min(torch.finfo(p.dtype).tiny)
    q = first[:, None] * second[None] / safe
    best = _information(q)
    for _ in range(iterations):
        q = _project(q.sum(dim=2, keepdim=True).expand_as(q), first, second)
        now = _information(q)
        if abs(float(best - now)) < tolerance:
            best = torch.minimum(best, now)
            break
        best = torch.minimum(best, now)
    total = _information(p)
    one, two = entropies(first)["MI"], entropies(second)["MI"]
    return {"R": one + two - best, "U1": best - two, "U2": best - one, "S": total - best, "I12": total}


def infonce_bound(f: Tensor) -> Tensor:
    """InfoNCE lower bound, in nats; never above ln N, whatever the truth."""
    return (f.diagonal() - f.logsumexp(dim=1)).mean() + math.log(len(f))


def dv_bound(f: Tensor) -> Tensor:
    """Donsker-Varadhan lower bound, in nats: mean f_ii - log mean_{i != j} exp f_ij."""
    return f.diagonal().mean() - _log_mean_exp_negatives(f)


def nwj_bound(f: Tensor) -> Tensor:
    """Nguyen-Wainwright-Jordan lower bound, in nats: 1 + mean f_ii - mean_{i != j} exp f_ij."""
    return 1 + f.diagonal().mean() - _log_mean_exp_negatives(f).exp()


def club_bound(f: Tensor) -> Tensor:
    """CLUB upper bound, in nats: mean f_ii - mean_{i != j} f_ij."""
    n = len(f)
    return f.diagonal().mean() - (f.sum() - f.trace()) / (n * (n - 1))


def _log_mean_exp_negatives(f: Tensor) -> Tensor:
    off = f[~torch.eye(len(f), dtype=torch.bool, device=f.device)]
    return off.logsumexp(dim=0) - math.log(off.numel())


def _entropy(p: Tensor) -> Tensor:
    return -torch.special.xlogy(p, p).sum() / math.log(2)


def _information(p: Tensor) -> Tensor:
    """I(X1 X2; Y) in bits of `[X1, X2, Y]`."""
    return entropies(p.flatten(0, 1))["MI"]


def _project(r: Tensor, first: Tensor, second: Tensor, sweeps: int = 200) -> Tensor:
    """Scale r so that its pair marginals with Y are `first` and `second`: proportional fitting, all y at once."""
    tiny = torch.finfo(r.dtype).tiny
    for _ in range(sweeps):
        r = r * (first / r.sum(dim=1).clamp_min(tiny))[:, None]
        gap = (r.sum(dim=0) - second).abs().max()
        r = r * (second / r.sum(dim=0).clamp_min(tiny))[None]
        if gap < 1e-13:
            break
    return r
