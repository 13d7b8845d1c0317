"""The module EMMA inserts: one autoencoder per modality, and the attention that follows from their potentials."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from methods.functional import energy

# Features that never vary on clean data carry no scale; dividing by their rounding noise would drown every other one.
MIN_STD = 1e-6
# With as many normal modes as abnormal ones Omega is linear in the energies, hence unbounded; this far down a mode is
# masked anyway, and there is nothing more to gain.
LOG_ALPHA_FLOOR = -10.0


class DenoisingAutoencoder(nn.Module):
    """Tied-weight denoising autoencoder of one modality; its potential is low where clean features are dense.

    Potentials are computed in float64 whatever the features are: they are small differences of large sums.
    """

    mean: Tensor
    std: Tensor
    V_min: Tensor
    v_scale: Tensor

    def __init__(self, dim: int, hidden: int, sigma: float = 0.3, spread: float = 0.5) -> None:
        """Build the autoencoder for standardised features.

        Args:
            dim: Number of features ``D``.
            hidden: Number of hidden units ``H``.
            sigma: Standard deviation of the training noise, in units of the features' own.
            spread: Initial row norm of the weights; large enough to break symmetry, small enough not to saturate.
        """
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
        """Clean-feature z-scores ``[B, D]`` of ``m [B, ...]``; axes beyond the batch are flattened."""
        return (m.flatten(1) - self.mean) / self.std

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
        """The paper's normality label ``[B]`` in {+1, -1}: for study only (see :func:`energy.normality`)."""
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
    """Potentials, their composition and the attention they yield, for M >= 2 modalities of any dimension.

    Row b of every output depends on row b of the inputs only.
    """

    pairs: Tensor

    def __init__(
        self,
        dims: Sequence[int],
        *,
        hidden: int | None = None,
        sigma: float = 0.3,
        tau: float = 0.1,
        coupling: Literal["symmetric", "signed"] = "symmetric",
        bias: Literal["safe", "free"] = "safe",
        shift: bool = False,
    ) -> None:
        """Build one autoencoder per modality and the shared composition and attention parameters.

        Args:
            dims: Number of features of each modality (flattened).
            hidden: Hidden units of every autoencoder; by default the modality's own dimension.
            sigma: Training noise of the autoencoders, in standard deviations.
            tau: Coldness of the importance softmax. Fixed: the scale of ``w`` already plays its part.
            coupling: ``symmetric`` exponents as in the summary, or ``signed``: asymmetric, with weights in [-1, 1]
                (the thesis).
            bias: ``safe`` keeps ``b_a < G / M``, so that the most important mode is never masked; ``free`` only
                ``b_a >= 0``.
            shift: Send a masked mode to its clean mean instead of zero.
        """
        super().__init__()
        count = len(dims)
        self.tau, self.coupling, self.bias_kind, self.shift = tau, coupling, bias, shift
        self.daes = nn.ModuleList(DenoisingAutoencoder(d, hidden or d, sigma) for d in dims)
        self.raw_w = nn.Parameter(torch.full((count,), _inverse_softplus(1.0)))
        self.raw_b = nn.Parameter(torch.full((count,), _inverse_softplus(0.01)))
        pairs = torch.combinations(torch.arange(count)) if coupling == "symmetric" else _ordered_pairs(count)
        self.register_buffer("pairs", pairs, persistent=False)
        self.raw_gamma = nn.Parameter(torch.zeros(len(pairs)))
        self.raw_sign = nn.Parameter(torch.full((len(pairs),), 2.0)) if coupling == "signed" else None
        # beta = 0.9 for a mode of average importance: inserting EMMA hardly changes a trained decoder's clean input.
        start_bias = 0.1
        start_gain = count * (math.atanh(0.9) + start_bias)
        self.raw_gain = nn.Parameter(torch.tensor(_inverse_softplus(start_gain)))
        share = count * start_bias / start_gain
        raw_bias = math.log(share / (1 - share)) if bias == "safe" else _inverse_softplus(start_bias)
        self.raw_bias = nn.Parameter(torch.tensor(raw_bias))

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
        """Gain ``G`` of the attention curve."""
        return softplus(self.raw_gain)

    @property
    def bias(self) -> Tensor:
        """Bias ``b_a`` of the attention curve."""
        if self.bias_kind == "free":
            return softplus(self.raw_bias)
        return self.gain / len(self.daes) * torch.sigmoid(self.raw_bias)

    def _matrix(self, values: Tensor) -> Tensor:
        rows, columns = self.pairs.unbind(1)
        matrix = torch.eye(len(self.daes), dtype=values.dtype, device=values.device).index_put((rows, columns), values)
        return matrix.index_put((columns, rows), values) if self.coupling == "symmetric" else matrix

    def autoencoder(self, i: int) -> DenoisingAutoencoder:
        """The autoencoder of modality ``i``."""
        dae = self.daes[i]
        assert isinstance(dae, DenoisingAutoencoder)
        return dae

    def learned(self) -> tuple[nn.Parameter, ...]:
        """What the attention stage learns: everything but the autoencoders."""
        return tuple(p for name, p in self.named_parameters() if not name.startswith("daes."))

    def attend(self, feats: Sequence[Tensor], present: Tensor | None = None) -> Attended:
        """Potentials, energies and attention of a batch of features.

        Args:
            feats: M tensors ``[B, ...]``. They are detached: encoders must not learn to lower V by gaming it.
            present: ``[B, M]`` bool, or None when every modality is there.

        Returns:
            The intermediate quantities; ``beta`` has the dtype of the features, the others are float64.
        """
        daes = [self.autoencoder(i) for i in range(len(self.daes))]
        V = torch.stack([dae.potential(m.detach()) for dae, m in zip(daes, feats, strict=True)], -1)
        scale = torch.stack([dae.v_scale for dae in daes]).to(V.dtype)
        V_min = torch.stack([dae.V_min for dae in daes]).to(V.dtype)
        _, phi, E_partial, E = energy.compose(V / scale, V_min / scale, self.w, self.b, self.gamma, present)
        if self.raw_sign is not None:
            # The thesis' variant: E_ij = c_ij phi_i^g_ij phi_j^(1 - g_ij) with c_ii = 1.
            E = (self._matrix(torch.tanh(self.raw_sign)) * E_partial).sum(-1)
        log_alpha = energy.importance(E, self.tau, present)
        alpha = log_alpha.exp()
        beta = energy.attention(alpha, self.gain, self.bias)
        return Attended(V, phi, E, E.sum(-1), log_alpha, alpha, beta.to(feats[0].dtype))

    def forward(self, feats: Sequence[Tensor], present: Tensor | None = None) -> tuple[list[Tensor], Attended]:
        """Scale each modality by its attention; returns the scaled features and how they came about."""
        info = self.attend(feats, present)
        scaled = []
        for i, m in enumerate(feats):
            beta = info.beta[:, i].reshape(-1, *(1,) * (m.ndim - 1))
            rest = self.autoencoder(i).mean.reshape(m.shape[1:]) if self.shift else 0.0
            out = rest + beta * (m - rest)  # Eq. 2
            scaled.append(out if present is None else torch.where(present[:, i].reshape(beta.shape), out, 0.0))
        return scaled, info

    def regularizer(self, log_alpha: Tensor, eta: Tensor, present: Tensor | None = None) -> Tensor:
        """Omega averaged over the batch; it is to be maximised.

        Args:
            log_alpha: Log-importances ``[B, M]``.
            eta: +1 on normal modes, -1 on corrupted ones, 0 on all modes of a clean row.
            present: ``[B, M]`` bool or None.
        """
        # Only the abnormal modes are floored: a normal one must always be able to come back.
        bounded = torch.where(eta < 0, log_alpha.clamp_min(LOG_ALPHA_FLOOR), log_alpha)
        return energy.omega(bounded, eta, present).mean()

    def capacity(self, relu: bool = True) -> Tensor:
        """Area under the attention curve, the share of attention that can be given at all."""
        return energy.capacity(self.gain, self.bias, relu)

    @torch.no_grad()
    def standardize(self, stream: Iterable[tuple[Sequence[Tensor], Tensor | None]]) -> None:
        """Set the feature means and standard deviations from clean training features, before the autoencoders learn."""
        for i, m in enumerate(_gather(stream, len(self.daes), lambda i, m: m.flatten(1).double())):
            dae = self.autoencoder(i)
            std = m.std(0, correction=0)
            dae.mean.copy_(m.mean(0))
            dae.std.copy_(torch.where(std > MIN_STD, std, 1.0))

    @torch.no_grad()
    def calibrate(self, stream: Iterable[tuple[Sequence[Tensor], Tensor | None]], quantile: float = 0.0) -> None:
        """Set ``V_min`` and the scale of V from clean training features, after the autoencoders have learned.

        Args:
            stream: Pairs of M feature tensors and their presence.
            quantile: 0 takes the smallest clean potential; a little more ignores outliers.
        """
        for i, V in enumerate(_gather(stream, len(self.daes), lambda i, m: self.autoencoder(i).potential(m))):
            dae, ordered = self.autoencoder(i), V.sort().values
            dae.V_min.copy_(ordered[int(quantile * (len(ordered) - 1))])
            dae.v_scale.copy_(V.std(correction=0).clamp_min(MIN_STD))


def _gather(
    stream: Iterable[tuple[Sequence[Tensor], Tensor | None]], count: int, of: Callable[[int, Tensor], Tensor]
) -> list[Tensor]:
    """Concatenate ``of(i, rows of modality i)`` over a stream, leaving out the rows where the modality is absent."""
    parts: list[list[Tensor]] = [[] for _ in range(count)]
    for feats, present in stream:
        for i, m in enumerate(feats):
            parts[i].append(of(i, m if present is None else m[present[:, i]]))
    joined = [torch.cat(part) if part else torch.empty(0) for part in parts]
    for i, rows in enumerate(joined):
        if len(rows) < 2:
            raise ValueError(f"Expected at least two training rows with modality {i} present, but got {len(rows)}")
    return joined


def _ordered_pairs(count: int) -> Tensor:
    pairs = torch.cartesian_prod(torch.arange(count), torch.arange(count))
    return pairs[pairs[:, 0] != pairs[:, 1]]


def _inverse_softplus(y: float) -> float:
    return y + math.log(-math.expm1(-y))
