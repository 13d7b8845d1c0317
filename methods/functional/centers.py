"""Skewed means, and the regularisers that spread class centres with them.

Equation numbers are those of the paper on deep metric learning with skewed mean functions; its text tells two stories.
Here every regulariser penalises the *largest similarities* (the nearest centres), which is what Eqs. 8-10 say and what
spreads centres. The other story (enlarge the largest distances) puts all centres on two antipodal points; it is
`farthest`, kept as a negative control.

Rows of `W` are L2-normalised inside; averages run over ordered pairs i != j.
"""

# Not every function of torch says what it returns.
# pyright: reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

import math
from collections.abc import Callable, MutableMapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

U_FLOOR = 1e-6  # of (1 + cos) / 2: log 0 has no gradient
SQUARED_FLOOR = 1e-8  # of d^2: sqrt at 0 has none either
FULL_MATRIX_ROWS = 4000  # above, similarities are computed and recomputed by row blocks
BLOCK = 1024

Form = Literal["mean", "sum", "softplus"]


# --- means ---------------------------------------------------------------------------------------------------------


def skewed_mean(s: Tensor, K: int) -> Tensor:
    """Mean of the K largest entries (K > 0) or of the |K| smallest (K < 0)."""
    n = s.numel()
    if K == 0 or abs(K) > n:
        raise ValueError(f"Expected argument `K` to be one of +-1..+-{n}, but got {K}")
    return s.flatten().topk(abs(K), largest=K > 0).values.mean()


def log_exp_mean(s: Tensor, lam: float, base: float = math.e, dim: int | None = None) -> Tensor:
    """(1/lam) log mean exp(lam s): the mean at lam = 0, the maximum as lam grows, the minimum as it falls.

    Args:
        s: Any real entries.
        lam: Skew; any real number.
        base: Base of the exponential and logarithm, above 1. It only rescales lam.
        dim: The dimension averaged over; all of them when None.
    """
    if base <= 1:
        raise ValueError(f"Expected argument `base` to be above 1 (below, the skew changes sign), but got {base}")
    if dim is None:
        s, dim = s.flatten(), 0
    lam = lam * math.log(base)
    mean = s.mean(dim, keepdim=True)
    if lam == 0:
        return mean.squeeze(dim)
    direct = (torch.logsumexp(lam * s, dim, keepdim=True) - math.log(s.shape[dim])) / lam
    # The direct form loses digits like eps / lam; around the mean nothing cancels. Inside the range where this branch
    # is chosen the clamp is inactive; outside it keeps the unused branch (and its gradient) finite.
    exponent = (lam * (s - mean)).clamp(-1, 1)
    centred = mean + torch.expm1(exponent).mean(dim, keepdim=True).log1p() / lam
    spread = s.amax(dim, keepdim=True) - s.amin(dim, keepdim=True)
    return torch.where(abs(lam) * spread < 1, centred, direct).squeeze(dim)


def power_mean(s: Tensor, lam: float, dim: int | None = None) -> Tensor:
    """(mean s^lam)^(1/lam): geometric mean at 0, arithmetic at 1, harmonic at -1.

    Entries must be positive: negative ones give NaN at every lam (an even power would silently take |s|), and at 0 the
    gradient is not finite. Nothing is clamped here; callers clamp.
    """
    return log_exp_mean(s.log(), lam, dim=dim).exp()


def calibrate(s: Tensor, K: int, family: Literal["log_exp", "power"]) -> float:
    """The lam at which the mean of `family` equals the K-skewed mean of `s`.

    Only the value matches, not the gradient, and lam belongs to this set: it drifts as `s` changes.

    Returns:
        +-inf for K = +-1 and when ties make the K-skewed mean equal the maximum or minimum: no finite lam attains it.
    """
    from scipy.optimize import brentq  # costs 0.2 s, and training never calibrates

    if family not in ("log_exp", "power"):
        raise ValueError(f'Expected argument `family` to be "log_exp" or "power", but got {family!r}')
    s = s.detach().double().flatten().cpu()
    target = skewed_mean(s, K).item()
    if family == "power" and s.min() <= 0:
        raise ValueError(f"The power mean needs positive entries, but the smallest is {s.min().item()}")
    if abs(K) == len(s):
        return 0.0 if family == "log_exp" else 1.0
    kept = s.topk(abs(K), largest=K > 0).values
    if kept.min() == kept.max():
        return math.copysign(math.inf, K)

    mean = log_exp_mean if family == "log_exp" else power_mean

    def gap(lam: float) -> float:
        return mean(s, lam).item() - target

    low, high = -1.0, 1.0
    while gap(high) < 0:
        high *= 2
        if high > 2.0**60:  # the tie is exact in all but the last digits
            return math.inf
    while gap(low) > 0:
        low *= 2
        if low < -(2.0**60):
            return -math.inf
    return float(brentq(gap, low, high, xtol=1e-13, rtol=1e-14))  # pyright: ignore[reportArgumentType]


# --- pairs of centres ----------------------------------------------------------------------------------------------


def off_diagonal(matrix: Tensor) -> Tensor:
    """`[C, C]` -> `[C, C-1]`: every row without its own entry, in order."""
    n = len(matrix)
    return matrix.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)


def _normalised(W: Tensor) -> Tensor:
    if W.ndim != 2 or len(W) < 2:
        raise ValueError(f"Expected centres [C >= 2, d], but got {tuple(W.shape)}")
    return F.normalize(W, dim=1)


def _by_rows(W: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply `reduce` to each row of cosines to the centres of other classes: `[C]`.

    Excluded pairs are -inf on their way into `reduce`, which must ignore them. Above FULL_MATRIX_ROWS the matrix
    exists one block of rows at a time, in the backward pass as well.
    """
    u = _normalised(W)
    index = torch.arange(len(u), device=u.device)

    def block(rows: Tensor, all_rows: Tensor, own: Tensor) -> Tensor:
        return reduce((rows @ all_rows.T).masked_fill(own[:, None] == index[None, :], -torch.inf))

    if len(u) <= FULL_MATRIX_ROWS:
        return block(u, u, index)
    blocks = zip(u.split(BLOCK), index.split(BLOCK), strict=True)
    return torch.cat([checkpoint(block, rows, u, own, use_reentrant=False) for rows, own in blocks])  # pyright: ignore


# --- regularisers --------------------------------------------------------------------------------------------------


def r1(W: Tensor, gamma: float, delta: float = 0.0, form: Form = "mean") -> Tensor:
    """Log-exp mean of each centre's cosines to the others, averaged over centres. Minimise.

    **Differs from the paper** (Eq. 8): its index i is free, so the mean over i is taken; it sums over j (`form="sum"`),
    which only adds a constant. Its margin delta has no gradient in either form; it acts in `"softplus"`.

    Args:
        W: Centres `[C, d]`.
        gamma: Skew towards the nearest centres; infinity is RegularFace. Negative: the reading that collapses.
        delta: Margin.
        form: `"mean"` | `"sum"` | `"softplus"`.
    """
    if gamma == 0:
        raise ValueError("Expected argument `gamma` to be non-zero")
    if form not in ("mean", "sum", "softplus"):
        raise ValueError(f'Expected argument `form` to be "mean", "sum" or "softplus", but got {form!r}')

    def reduce(cosines: Tensor) -> Tensor:
        # -inf marks excluded pairs, whatever the sign of gamma.
        logits = (gamma * (cosines - delta)).masked_fill(cosines.isneginf(), -torch.inf)
        if form == "softplus":  # log(1 + sum exp): the 1 is a logit of 0
            logits = F.pad(logits, (0, 1))
        return torch.logsumexp(logits, dim=1) / gamma  # Eq. 8

    value = _by_rows(W, reduce)
    others = W.new_tensor(len(W) - 1.0)
    return (value - others.log() / gamma if form == "mean" else value).mean()


def regularface_per_class(W: Tensor) -> Tensor:
    """Each centre's largest cosine to another class, the limit of `r1` as gamma grows: `[C]`."""
    return _by_rows(W, lambda cosines: cosines.amax(dim=1))


def regularface(W: Tensor) -> Tensor:
    """Mean over centres of the largest cosine to another class. Minimise."""
    return regularface_per_class(W).mean()


def r2(W: Tensor, lam: float) -> Tensor:
    """Power mean over pairs of u = (1 + cos) / 2. Minimise; use lam >= 16 (a small one only centres the centroid).

    **Differs from the paper** (Eq. 8): a power of the raw cosine is not defined where it is negative, so it is shifted.
    """

    def shifted(cosines: Tensor) -> Tensor:
        return ((1 + cosines) / 2).clamp_min(U_FLOOR)

    return _global_power_mean(W, lam, shifted)


def hard_skewed(W: Tensor, share: float) -> Tensor:
    """The K-skewed mean M_[K] of the cosines of all pairs, K a share of the ordered pairs. Minimise.

    What `r1` and `r2` are smooth stand-ins of: the pairs among the K nearest are pushed alike, the others not at all.
    A share so small that K = 1 is the nearest pair alone; 1 is the mean cosine, which only centres the centroid.
    """
    if not 0 < share <= 1:
        raise ValueError(f"Expected argument `share` to be above 0 and at most 1, but got {share}")
    u = _normalised(W)
    cosines = off_diagonal(u @ u.T)
    return skewed_mean(cosines, max(1, round(share * cosines.numel())))


def power_mean_distance(W: Tensor, lam: float) -> Tensor:
    """Power mean over pairs of the distance between centres (Eq. 10 with exponent -lam). Maximise at lam < 0."""
    return _global_power_mean(W, lam, _distance)


def mhe(W: Tensor, s: float) -> Tensor:
    """Minimum hyperspherical energy (Liu et al., 2018): mean d^-s over pairs, or mean -log d at s = 0. Minimise.

    This is the raw energy. Its gradient explodes with s; train on `rooted_mhe`.
    """
    rooted = rooted_mhe(W, s)
    return rooted if s == 0 else rooted.reciprocal().pow(-s)


def rooted_mhe(W: Tensor, s: float) -> Tensor:
    """(mean d^-s)^(1/s): the energy with the direction of `mhe` and a gradient of sane size; -log d at s = 0."""
    if s < 0:
        raise ValueError(f"Expected argument `s` to be >= 0, but got {s}")
    mean = power_mean_distance(W, -s)
    return -mean.log() if s == 0 else mean.reciprocal()


def uniformface(W: Tensor) -> Tensor:
    """Mean over pairs of 1 / (1 + d), the reciprocal of the harmonic mean of 1 + d. Minimise."""

    def reduce(cosines: Tensor) -> Tensor:
        energy = (1 + _distance(cosines)).reciprocal()
        return energy.masked_fill(cosines.isneginf(), 0).sum(dim=1)

    return _by_rows(W, reduce).sum() / W.new_tensor(len(W) * (len(W) - 1.0))


def farthest(W: Tensor, lam: float = 4.0) -> Tensor:
    """Negative control: minus the power mean of the distances. At lam > 2 its optimum is two antipodal points."""
    return -power_mean_distance(W, lam)


def r1_sampled(
    W: Tensor, gamma: float, sample: int, generator: torch.Generator | None, state: MutableMapping[str, Tensor]
) -> Tensor:
    """Log-exp mean of all pairs, from a sample of rows: the ratio form with a running normaliser.

    Sampling inside the logarithm is biased low and makes a rarely drawn duplicate cheap, so that centres spread worse
    than random ones. Here L = mean exp(gamma (t - 1)) / (gamma Z) with Z a detached running average of the same mean:
    its gradient estimates that of the global log-exp mean, up to the error of Z. The value itself hovers at 1 / gamma.

    Args:
        W: Centres `[C, d]`.
        gamma: Skew, above 0.
        sample: Rows drawn per call; at least C / 8 to see close pairs.
        generator: Source of the draw.
        state: The caller's, empty at first; holds log Z (the logarithm, since exp(-2 gamma) underflows in float32).
    """
    if not 2 <= sample <= len(W):
        raise ValueError(f"Expected argument `sample` to be in 2..{len(W)} (the number of centres), but got {sample}")
    device = generator.device if generator is not None else W.device
    rows = torch.randperm(len(W), generator=generator, device=device)[:sample].to(W.device)
    u = _normalised(W[rows])
    exponent = gamma * (off_diagonal(u @ u.T) - 1)
    log_mean = torch.logsumexp(exponent.flatten(), dim=0) - math.log(exponent.numel())
    fresh = log_mean.detach()
    previous = state.get("log_Z")
    log_z = fresh if previous is None else torch.logaddexp(previous + math.log(0.99), fresh + math.log(0.01))
    state["log_Z"] = log_z
    return (log_mean - log_z).exp() / gamma


def _distance(cosines: Tensor) -> Tensor:
    return (2 - 2 * cosines).clamp_min(SQUARED_FLOOR).sqrt()


def _global_power_mean(W: Tensor, lam: float, transform: Callable[[Tensor], Tensor]) -> Tensor:
    """Power mean over all pairs of other classes of a positive transform of their cosine."""
    if len(W) <= FULL_MATRIX_ROWS:
        u = _normalised(W)
        return power_mean(transform(off_diagonal(u @ u.T)), lam)

    def reduce(cosines: Tensor) -> Tensor:
        excluded = cosines.isneginf()
        logs = transform(cosines.masked_fill(excluded, 0)).log()
        if lam == 0:
            return logs.masked_fill(excluded, 0).sum(dim=1)
        return torch.logsumexp((lam * logs).masked_fill(excluded, -torch.inf), dim=1)

    rows, pairs = _by_rows(W, reduce), W.new_tensor(len(W) * (len(W) - 1.0))
    if lam == 0:
        return (rows.sum() / pairs).exp()
    return ((torch.logsumexp(rows, dim=0) - pairs.log()) / lam).exp()


# --- diagnostics ---------------------------------------------------------------------------------------------------

SAME = 0.01  # centres closer than this are one point
COLLAPSED_SHARE = 0.5


@torch.no_grad()
def center_statistics(W: Tensor) -> dict[str, float]:
    """How well centres are spread. The mean distance is not here: random centres already reach 98 % of its ceiling.

    Returns:
        `min_distance`; `nearest_distance`, the mean distance to the nearest other centre; `same_share`, the share of
        centres with another within 0.01; `centroid_norm`; `top_eigenvalue_share` of W^T W / C (1/d: isotropic,
        1: collapsed onto a line); `collapsed`, 1.0 when at least half of the centres coincide with another.
    """
    u = _normalised(W.detach().double())
    nearest = (2 - 2 * regularface_per_class(u)).clamp_min(0).sqrt()
    same = (nearest < SAME).double().mean().item()
    eigenvalues = torch.linalg.eigvalsh(u.T @ u / len(u))
    return {
        "min_distance": nearest.min().item(),
        "nearest_distance": nearest.mean().item(),
        "same_share": same,
        "centroid_norm": u.mean(dim=0).norm().item(),
        "top_eigenvalue_share": (eigenvalues[-1] / eigenvalues.sum()).item(),
        "collapsed": float(same >= COLLAPSED_SHARE),
    }
