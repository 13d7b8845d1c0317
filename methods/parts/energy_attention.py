"""The module EMMA inserts: one autoencoder per modality, and the attention that follows from their potentials."""

import math
from collections.abc import Callable, Iterable
from itertools import combinations, permutations
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from methods.base import Encoded
from methods.functional import energy

# Features that never vary on clean data carry no scale; dividing by their rounding noise would drown every other one.
MIN_STD = 1e-6
# With as many normal modes as abnormal ones Omega is linear in the energies, hence unbounded; this far down a mode is
# masked anyway, and there is nothing more to gain.
LOG_ALPHA_FLOOR = -10.0

Coupling = Literal["symmetric", "signed", "none"]


class DenoisingAutoencoder(nn.Module):
    """Tied-weight denoising autoencoder of one modality; its potential is low where clean features are dense.

    Potentials are computed in float64 whatever the features are: they are small differences of large sums.

    Args:
        dim: Number of features ``D``.
        hidden: Number of hidden units ``H``.
        sigma: Standard deviation of the training noise, in units of the features' own.
        spread: Initial row norm of the weights; large enough to break symmetry, small enough not to saturate.
    """

    mean: Tensor
    std: Tensor
    V_min: Tensor
    v_scale: Tensor

    def __init__(self, dim: int, hidden: int, sigma: float = 0.3, spread: float = 0.5) -> None:
        super().__init__()
        self.sigma = sigma
        self.weight = nn.Parameter(torch.randn(hidden, dim) * spread / math.sqrt(dim))
        self.hidden_bias = nn.Parameter(torch.zeros(hidden))
        # With z = 1/2 at the start, this reconstructs the mean, which is 0 for standardised features.
        self.visible_bias = nn.Parameter(-0.5 * self.weight.detach().sum(0))
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("std", torch.ones(dim))
        # float32 will do: both only shift and scale every row's V alike.
        self.register_buffer("V_min", torch.zeros(()))
        self.register_buffer("v_scale", torch.ones(()))

    def standardize(self, m: Tensor) -> Tensor:
        """Clean-feature z-scores of ``m [B, D]``."""
        return (m - self.mean) / self.std

    def denoising_loss(self, m: Tensor, noise: Tensor) -> Tensor:
        """Squared error ``[B]`` of reconstructing ``m`` from ``m + sigma * noise`` (both standardised)."""
        x = self.standardize(m)
        noisy = x + self.sigma * noise
        return (energy.reconstruct(noisy, self.weight, self.hidden_bias, self.visible_bias) - x).square().sum(-1)

    def potential(self, m: Tensor) -> Tensor:
        """Potential ``V [B]`` of the features, in float64."""
        return energy.potential(*self._precise(m, self.weight, self.hidden_bias, self.visible_bias))

    def reconstruct(self, m: Tensor) -> Tensor:
        """Reconstruction of the standardised features ``[B, D]``."""
        return energy.reconstruct(self.standardize(m), self.weight, self.hidden_bias, self.visible_bias)

    def laplacian(self, m: Tensor) -> Tensor:
        """Laplacian of the potential ``[B]``."""
        return energy.laplacian(*self._precise(m, self.weight, self.hidden_bias))

    def eta(self, m: Tensor) -> Tensor:
        """The paper's normality label ``[B]`` in {+1, -1} (what is wrong with it: :func:`energy.normality`)."""
        return energy.normality(*self._precise(m, self.weight, self.hidden_bias))

    def _precise(self, m: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        # Apple's backend has no float64; everywhere else it also shields V from autocast, which ignores float64.
        dtype = torch.float32 if m.device.type == "mps" else torch.float64
        return (self.standardize(m).to(dtype), *(p.to(dtype) for p in parameters))


class Attended(NamedTuple):
    """What EMMA computed for a batch: ``[B, M]`` each, ``S`` is ``[B]``."""

    V: Tensor
    phi: Tensor
    E: Tensor
    S: Tensor
    log_alpha: Tensor
    alpha: Tensor
    beta: Tensor


class EnergyAttention(nn.Module):
    """Potentials, their composition and the attention they yield, for M >= 2 modalities of one width.

    Row b of every output depends on row b of the inputs only.

    Args:
        count: Number of modalities M.
        width: Of their encodings, D.
        hidden: Hidden units of every autoencoder; by default the width.
        sigma: Training noise of the autoencoders, in standard deviations.
        tau: Coldness of the importance softmax. Fixed: the scale of ``w`` already plays its part.
        coupling: ``symmetric`` exponents as in the summary; ``signed``: asymmetric, with weights in [-1, 1] (the
            thesis); or ``none``: a mode's energy is its own potential's alone.
        bias: ``safe`` keeps ``b_a < G / M``, so that the most important mode is never masked; ``free`` only
            ``b_a >= 0``.
        shift: Send a masked mode to its clean mean instead of zero.
        shared: One gain and one bias for all modalities, or one of each per modality.
    """

    pairs: Tensor

    def __init__(
        self,
        count: int,
        width: int,
        *,
        hidden: int | None = None,
        sigma: float = 0.3,
        tau: float = 0.1,
        coupling: Coupling = "symmetric",
        bias: Literal["safe", "free"] = "safe",
        shift: bool = False,
        shared: bool = True,
    ) -> None:
        super().__init__()
        self.tau, self.coupling, self.bias_kind, self.shift = tau, coupling, bias, shift
        self.daes = nn.ModuleList(DenoisingAutoencoder(width, hidden or width, sigma) for _ in range(count))
        self.raw_w = nn.Parameter(torch.full((count,), _inverse_softplus(1.0)))
        self.raw_b = nn.Parameter(torch.full((count,), _inverse_softplus(0.01)))
        coupled = 0 if coupling == "none" else count
        pairs = list((permutations if coupling == "signed" else combinations)(range(coupled), 2))
        self.register_buffer("pairs", torch.tensor(pairs, dtype=torch.long).reshape(-1, 2), persistent=False)
        self.raw_gamma = nn.Parameter(torch.zeros(len(pairs)))
        self.raw_sign = nn.Parameter(torch.full((len(pairs),), 2.0)) if coupling == "signed" else None
        # beta = 0.9 for a mode of average importance: inserting EMMA hardly changes a trained decoder's clean input.
        start_bias = 0.1
        start_gain = count * (math.atanh(0.9) + start_bias)
        curves = () if shared else (count,)
        self.raw_gain = nn.Parameter(torch.full(curves, _inverse_softplus(start_gain)))
        share = count * start_bias / start_gain
        raw_bias = math.log(share / (1 - share)) if bias == "safe" else _inverse_softplus(start_bias)
        self.raw_bias = nn.Parameter(torch.full(curves, raw_bias))

    @property
    def w(self) -> Tensor:
        """Slopes ``[M]`` of the composition, non-negative."""
        return softplus(self.raw_w)

    @property
    def b(self) -> Tensor:
        """Offsets ``[M]`` of the composition, non-negative."""
        return softplus(self.raw_b)

    @property
    def gamma(self) -> Tensor:
        """Coupling exponents ``[M, M]`` in [0, 1], unit diagonal."""
        return self._matrix(torch.sigmoid(self.raw_gamma))

    @property
    def gain(self) -> Tensor:
        """Gain ``G`` of the attention curve, or ``[M]`` of them."""
        return softplus(self.raw_gain)

    @property
    def bias(self) -> Tensor:
        """Bias ``b_a`` of the attention curve, or ``[M]`` of them."""
        if self.bias_kind == "free":
            return softplus(self.raw_bias)
        return self.gain / len(self.daes) * torch.sigmoid(self.raw_bias)

    def _matrix(self, values: Tensor) -> Tensor:
        rows, columns = self.pairs.unbind(1)
        matrix = torch.eye(len(self.daes), dtype=values.dtype, device=values.device).index_put((rows, columns), values)
        return matrix.index_put((columns, rows), values) if self.coupling == "symmetric" else matrix

    @property
    def autoencoders(self) -> list[DenoisingAutoencoder]:
        """One per modality."""
        return [dae for dae in self.daes if isinstance(dae, DenoisingAutoencoder)]

    def learned(self) -> tuple[nn.Parameter, ...]:
        """What the attention stage learns: everything but the autoencoders."""
        return tuple(p for name, p in self.named_parameters() if not name.startswith("daes."))

    def attend(self, z: Tensor, present: Tensor) -> Attended:
        """Potentials, energies and attention of encodings ``[B, M, D]``.

        They are detached: encoders must not learn to lower V by gaming it. ``beta`` has their dtype, what else is
        returned is float64.
        """
        daes = self.autoencoders
        V = torch.stack([dae.potential(m.detach()) for dae, m in zip(daes, z.unbind(1), strict=True)], -1)
        scale = torch.stack([dae.v_scale for dae in daes]).to(V.dtype)
        V_min = torch.stack([dae.V_min for dae in daes]).to(V.dtype)
        _, phi, E_partial, E = energy.compose(V / scale, V_min / scale, self.w, self.b, self.gamma, present)
        if self.raw_sign is not None:
            # The thesis' variant: E_ij = c_ij phi_i^g_ij phi_j^(1 - g_ij) with c_ii = 1.
            E = (self._matrix(torch.tanh(self.raw_sign)) * E_partial).sum(-1)
        elif self.coupling == "none":
            E = E_partial.diagonal(dim1=-2, dim2=-1)
        log_alpha = energy.importance(E, self.tau, present)
        alpha = log_alpha.exp()
        beta = energy.attention(alpha, self.gain, self.bias)
        return Attended(V, phi, E, energy.system_energy(E, present), log_alpha, alpha, beta.to(z.dtype))

    def forward(self, z: Tensor, present: Tensor) -> Tensor:
        """Encodings ``[B, M, D]``, each scaled by its attention."""
        beta = self.attend(z, present).beta.unsqueeze(-1)
        rest = torch.stack([dae.mean for dae in self.autoencoders]) if self.shift else 0.0
        return torch.where(present.unsqueeze(-1), rest + beta * (z - rest), 0.0)  # Eq. 2

    def regularizer(self, log_alpha: Tensor, eta: Tensor, present: Tensor) -> Tensor:
        """Omega averaged over the batch; it is to be maximised.

        Args:
            log_alpha: Log-importances ``[B, M]``.
            eta: +1 on normal modes, -1 on corrupted ones, 0 on all modes of a clean row.
            present: ``[B, M]`` bool.
        """
        # Only the abnormal modes are floored: a normal one must always be able to come back.
        bounded = torch.where(eta < 0, log_alpha.clamp_min(LOG_ALPHA_FLOOR), log_alpha)
        return energy.omega(bounded, eta, present).mean()

    def capacity(self) -> Tensor:
        """Area under the attention curve (their mean), the share of attention that can be given at all."""
        return energy.capacity(self.gain, self.bias).mean()

    @torch.no_grad()
    def normality(self, z: Tensor, present: Tensor) -> Tensor:
        """The paper's eta ``[B, M]``, +1 or -1 by the sign of each potential's Laplacian; 0 where absent."""
        eta = [dae.eta(m) for dae, m in zip(self.autoencoders, z.unbind(1), strict=True)]
        return torch.where(present, torch.stack(eta, -1), 0.0)

    @torch.no_grad()
    def standardize(self, train: Iterable[Encoded]) -> None:
        """Set the means and standard deviations of clean training encodings, before the autoencoders learn."""
        for dae, m in zip(self.autoencoders, self._measure(train, lambda _, m: m.double()), strict=True):
            std = m.std(0, correction=0)
            dae.mean.copy_(m.mean(0))
            dae.std.copy_(torch.where(std > MIN_STD, std, 1.0))

    @torch.no_grad()
    def calibrate(self, train: Iterable[Encoded], quantile: float = 0.0) -> None:
        """Set ``V_min`` and the scale of V from clean training encodings, after the autoencoders have learned.

        A ``quantile`` of 0 takes the smallest clean potential; a little more ignores outliers.
        """
        for dae, V in zip(self.autoencoders, self._measure(train, DenoisingAutoencoder.potential), strict=True):
            ordered = V.sort().values
            dae.V_min.copy_(ordered[int(quantile * (len(ordered) - 1))])
            dae.v_scale.copy_(V.std(correction=0).clamp_min(MIN_STD))

    def _measure(
        self, train: Iterable[Encoded], of: Callable[[DenoisingAutoencoder, Tensor], Tensor]
    ) -> Iterable[Tensor]:
        """Per modality, ``of(its autoencoder, the rows that have it)`` over the whole stream."""
        parts: list[list[Tensor]] = [[] for _ in self.daes]
        for batch in train:
            for i, dae in enumerate(self.autoencoders):
                parts[i].append(of(dae, batch.z[batch.present[:, i], i]))
        for i, part in enumerate(parts):
            rows = sum(map(len, part))
            if rows < 2:
                raise ValueError(f"Expected at least two training rows with modality {i} present, but got {rows}")
            yield torch.cat(part)


def _inverse_softplus(y: float) -> float:
    return y + math.log(-math.expm1(-y))
