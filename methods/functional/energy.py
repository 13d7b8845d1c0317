"""Energy-based multimodal attention (EMMA): potentials, composition, attention and regulariser as pure functions.

Equation numbers are those of the EMMA summary (Werenne, 2019). Where the print is wrong the corrected form is computed
and the comment says which equation it replaces. Nothing here couples the rows of a batch: ``m [..., D]`` are features,
``W [H, D]`` tied weights, ``b_h [H]`` and ``b_r [D]`` the biases of the hidden units and of the reconstruction.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

# phi >= w * e in theory; the floor only matters when softplus drives w to zero.
PHI_FLOOR = 1e-6


def potential(m: Tensor, W: Tensor, b_h: Tensor, b_r: Tensor) -> Tensor:
    """Potential ``V [...]`` of a tied-weight autoencoder, whose gradient is ``m - reconstruct(m)``."""
    u = m @ W.T + b_h
    # Eq. 8, last line. softplus, never log(1 + exp): the latter overflows float32 beyond 88.
    return 0.5 * (m - b_r).square().sum(-1) - softplus(u).sum(-1)


def reconstruct(m: Tensor, W: Tensor, b_h: Tensor, b_r: Tensor) -> Tensor:
    """Reconstruction ``W^T sigmoid(W m + b_h) + b_r`` of ``m``, shape ``[..., D]``."""
    return torch.sigmoid(m @ W.T + b_h) @ W + b_r  # Eq. 3


def laplacian(m: Tensor, W: Tensor, b_h: Tensor) -> Tensor:
    """Laplacian of the potential, ``D - sum_k z_k (1 - z_k) |W_k|^2`` with ``W_k`` the rows of ``W``."""
    z = torch.sigmoid(m @ W.T + b_h)
    # Eq. 10 and 35 print the opposite sign (they are the divergence of r - m) and M where D is meant.
    return m.shape[-1] - (z * (1 - z)) @ W.square().sum(-1)


def normality(m: Tensor, W: Tensor, b_h: Tensor) -> Tensor:
    """The paper's classifier: +1 (normal) where the Laplacian is positive, else -1.

    Kept for fidelity and study. It is not a usable detector: far from the data the sigmoids saturate, the Laplacian
    tends to ``D`` and the point is called normal.
    """
    lap = laplacian(m, W, b_h)
    return torch.where(lap > 0, torch.ones_like(lap), -torch.ones_like(lap))  # Eq. 11, for the true Laplacian


def compose(
    V: Tensor, V_min: Tensor, w: Tensor, b: Tensor, gamma: Tensor, present: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Turn the potentials of M modalities into coupled modal energies.

    Args:
        V: Potentials ``[..., M]``, already divided by their scale.
        V_min: Smallest clean potential per modality ``[M]``.
        w: Slopes ``[M]``, non-negative.
        b: Offsets ``[M]``, non-negative.
        gamma: Coupling exponents ``[M, M]`` in [0, 1]; the diagonal has no effect.
        present: ``[..., M]`` bool; an absent modality is dropped from every sum.

    Returns:
        ``V_prime``, ``phi`` ``[..., M]``, ``E_partial`` ``[..., M, M]`` and ``E`` ``[..., M]``.
    """
    V_prime = (V - V_min).clamp_min(0) + math.e  # Eq. 13
    # Absent rows take a harmless constant before the product, so that neither a NaN nor a gradient can leak from them.
    kept = V_prime if present is None else torch.where(present, V_prime, math.e)
    phi = (w * kept + b).clamp_min(PHI_FLOOR)
    log_phi = phi.log()
    # Eq. 14 from logarithms, so that dE_ij/dg_ij = E_ij (log phi_i - log phi_j): Eq. 37 with its sign corrected.
    E_partial = (gamma * log_phi.unsqueeze(-1) + (1 - gamma) * log_phi.unsqueeze(-2)).exp()
    if present is not None:
        both = present.unsqueeze(-1) & present.unsqueeze(-2)
        E_partial = torch.where(both, E_partial, 0.0)
    return V_prime, phi, E_partial, E_partial.sum(-1)  # Eq. 15: k = i is part of the sum


def system_energy(E: Tensor, present: Tensor) -> Tensor:
    """The sum of the modal energies, ``[...]``, where modalities lack: as many pairs at the mean of the present ones.

    A plain sum has fewer terms where a modality is missing and would call such a row more normal than a complete one.
    """
    total, there = present.shape[-1], present.sum(-1).clamp_min(1).to(E.dtype)
    return E.sum(-1) * (total / there).square()


def importance(E: Tensor, tau: float | Tensor, present: Tensor | None = None) -> Tensor:
    """Log of the Gibbs weights ``softmax(-tau E)`` over the present modalities; absent ones get ``-inf``."""
    logits = -tau * E
    if present is None:
        return logits.log_softmax(-1)  # Eq. 16
    # A row with nothing present would be a softmax over -inf only, that is NaN: give it neutral logits first.
    neutral = ~present.any(-1, keepdim=True)
    log_alpha = logits.masked_fill(~present & ~neutral, -torch.inf).log_softmax(-1)
    return torch.where(present, log_alpha, -torch.inf)


def attention(alpha: Tensor, gain: float | Tensor, bias: float | Tensor) -> Tensor:
    """Attention ``relu(tanh(gain * alpha - bias))``; a modality is masked when ``alpha <= bias / gain``."""
    return torch.tanh(gain * alpha - bias).relu()  # Eq. 17


def omega(log_alpha: Tensor, eta: Tensor, present: Tensor | None = None) -> Tensor:
    """Regulariser ``sum_k eta_k log alpha_k`` of each row, over the present modalities."""
    if present is None:
        return (eta * log_alpha).sum(-1)  # Eq. 20
    # Masked before the product: 0 * -inf is NaN.
    return (eta * log_alpha.masked_fill(~present, 0.0)).sum(-1)


def capacity(gain: float | Tensor, bias: float | Tensor, relu: bool = True) -> Tensor:
    """Area under the attention curve on [0, 1]; ``relu=False`` integrates the bare tanh as the thesis does."""
    gain, bias = torch.as_tensor(gain), torch.as_tensor(bias)
    if relu:
        return _log_cosh((gain - bias).clamp_min(0)) / gain
    return (_log_cosh(gain - bias) - _log_cosh(bias)) / gain


def _log_cosh(x: Tensor) -> Tensor:
    return x.abs() + softplus(-2 * x.abs()) - math.log(2)
