"""What is exactly known of an interaction task: the joint distribution of two signals and the label.

The label is a function of hidden signs and the signal of a modality is a sign plus Gaussian noise, so the distribution
of two binned signals and the label is a sum over the signs of products of normal probabilities: no sampling.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import reduce

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from datamodules.base import DataModule
from datamodules.interactions import Interaction

KINDS = ("enhancement", "equivalence", "independence", "mux", "parity", "xor")  # labels made of signs
BINS = 16  # equal-mass bins of a signal: they lose less than one per cent of its information


def exact_joint(data: DataModule, names: Sequence[str], bins: int = BINS) -> Tensor | None:
    """`[bins, ..., classes]`: probability of the binned signals of some modalities and the label; None if not known."""
    if not isinstance(data, Interaction) or data.kind not in KINDS:
        return None
    chosen = [data.names.index(name) for name in names]
    joint = np.zeros((*[bins] * len(chosen), data.classes))
    states = [_state(data, signs) for signs in itertools.product((-1, 1), repeat=len(data.names))]
    known = [state for state in states if state is not None]
    for centres, label in known:
        signals = [_bins(data, m, centres[m], bins) for m in chosen]
        # In equivalence it is one signal, noise included: all fall into the same bin.
        together = _diagonal(signals) if data.kind == "equivalence" else reduce(np.multiply.outer, signals)
        joint += together[..., None] * _told(data, label) / len(known)
    return torch.from_numpy(joint)


def _diagonal(signals: list[np.ndarray]) -> np.ndarray:
    joint = np.zeros([len(signal) for signal in signals])
    joint[(np.arange(len(signals[0])),) * len(signals)] = signals[0]
    return joint


def _state(data: Interaction, signs: tuple[int, ...]) -> tuple[tuple[float, ...], int] | None:
    """Centre of each modality's signal and label under these signs; None if they cannot occur."""
    if data.kind in ("enhancement", "equivalence"):
        if len(set(signs)) > 1:
            return None
        mu = data.mu if data.kind == "enhancement" else data.mu * len(signs)
        return tuple(m * s for m, s in zip(mu, signs, strict=True)), int(signs[0] > 0)
    if data.kind == "mux":
        a, b, context = signs
        return (data.mu[0] * a, data.mu[1] * b, float(context)), int((a if context > 0 else b) > 0)
    centres = tuple(m * s for m, s in zip(data.mu, signs, strict=True))
    return centres, int(data.label(np.array([signs]))[0])


def _bins(data: Interaction, modality: int, centre: float, bins: int) -> np.ndarray:
    """Probability of each bin of a signal with this centre."""
    if data.kind == "mux" and modality == 2:  # the context has no noise: two values
        return np.eye(bins)[0 if centre < 0 else bins - 1]
    inner = _edges(abs(centre), bins)
    return np.diff(stats.norm.cdf(np.concatenate([[-np.inf], inner, [np.inf]]) - centre))


def _edges(mu: float, bins: int) -> np.ndarray:
    """Inner edges of bins of equal mass under the signal's distribution, half of it around mu and half around -mu."""
    grid = np.linspace(-mu - 6, mu + 6, 20_001)
    mass = (stats.norm.cdf(grid - mu) + stats.norm.cdf(grid + mu)) / 2
    return np.interp(np.arange(1, bins) / bins, mass, grid)


def _told(data: Interaction, label: int) -> np.ndarray:
    """Probability of each told label: the true one, or with the label noise any other."""
    told = np.full(data.classes, data.label_noise / (data.classes - 1))
    told[label] = 1 - data.label_noise
    return told
