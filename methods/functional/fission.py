"""Parts of fission: prior matching, orthogonality, balanced assignment, computed in float32 at least."""

import torch
from torch import Tensor

MULTIPLES = (0.5, 1.0, 2.0, 4.0, 8.0)


def mmd(x: Tensor, y: Tensor, multiples: tuple[float, ...] = MULTIPLES) -> Tensor:
    """Squared maximum mean discrepancy of two samples, averaged over RBF kernels (Gretton et al., 2012).

    The biased estimate: never negative, 0 for equal samples. Kernels are `exp(-d^2 / (2 s))`, `s` the squared median
    distance between rows of the pooled sample, through which no gradient passes, times each of `multiples`.
    """
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[1] or not len(x) or not len(y):
        raise ValueError(f"Expected two samples [n, k] and [m, k], but got {tuple(x.shape)} and {tuple(y.shape)}")
    x, y = _wide(x), _wide(y)
    pooled = torch.cat([x, y])
    # Differences rather than the matmul form: no cancellation, and no infinite gradient of a root at 0.
    squared = (pooled.unsqueeze(1) - pooled.unsqueeze(0)).square().sum(dim=-1)
    rows, columns = torch.triu_indices(len(pooled), len(pooled), offset=1, device=x.device)
    median = squared.detach()[rows, columns].median().clamp_min(torch.finfo(squared.dtype).tiny)
    kernel = torch.stack([torch.exp(-squared / (2 * c * median)) for c in multiples]).mean(dim=0)
    n = len(x)
    return kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[:n, n:].mean()


def orthogonality(a: Tensor, b: Tensor, eps: float = 1e-6) -> Tensor:
    """Sum of the squared correlations of all features of `a` with all of `b`: `||ac^T bc||_F^2 / B^2`.

    `ac`, `bc`: centred over the batch and standardised. It sees linear dependence only. 0 for fewer than two rows; a
    constant feature correlates with nothing.
    """
    if a.dim() != 2 or b.dim() != 2 or len(a) != len(b):
        raise ValueError(f"Expected paired rows [B, k] and [B, l], but got {tuple(a.shape)} and {tuple(b.shape)}")
    if len(a) < 2:
        return (a.sum() + b.sum()) * 0.0
    a, b = _standardised(_wide(a), eps), _standardised(_wide(b), eps)
    return (a.mT @ b / len(a)).square().sum()


def sinkhorn(scores: Tensor, eps: float = 0.05, iterations: int = 10) -> Tensor:
    """Assign rows to clusters of about equal mass, in log space (Cuturi, 2013).

    Ends with the row step: rows sum to 1 exactly, the mass of a cluster to N / K approximately.

    Args:
        scores: `[N, K]` similarities.
        eps: Entropy of the assignment; the smaller, the harder.
        iterations: Pairs of a cluster step and a row step.

    Returns:
        `[N, K]`, without gradient.
    """
    if scores.dim() != 2:
        raise ValueError(f"Expected `scores` [N, K], but got {tuple(scores.shape)}")
    log_q = _wide(scores.detach()) / eps
    for _ in range(iterations):
        # Up to the factor N / K, which the row step cancels.
        log_q = log_q - log_q.logsumexp(dim=0, keepdim=True)
        log_q = log_q - log_q.logsumexp(dim=1, keepdim=True)
    return log_q.exp()


def _standardised(x: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(dim=0)
    return centred * (centred.square().mean(dim=0) + eps).rsqrt()


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
