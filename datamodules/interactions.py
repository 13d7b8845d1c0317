"""Interaction tasks: synthetic data in which the way the modalities interact, and the best possible score, are known.

The Gaussian family: a hidden sign s_m reaches modality m as t_m = mu_m s_m + N(0, 1), hidden in a random
rotation of noise. Which function of the signs is the label decides what a fusion must be able to do.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta
from scipy.special import ndtr  # of scipy.stats.norm, which takes half a second to import

from datamodules.base import DataModule, Split, SplitName
from datamodules.options import Count
from datamodules.registry import register
from datamodules.spec import Modality, Task

Mu = Sequence[float]
Rows = Annotated[int, Meta(ge=100)]
Noise = Annotated[float, Meta(ge=0, lt=0.5)]


def bayes_accuracy(kind: str, mu: Sequence[float], *, label_noise: float = 0.0) -> float:
    """The best possible accuracy of an interaction task.

    Args:
        kind: "equivalence", "enhancement", "independence", "xor", "parity" or "mux".
        mu: Separations of exactly the modalities used: equivalence 1, xor 2, mux 2 (A and B), others any number.
        label_noise: Share of labels replaced by a uniformly drawn other class.
    """
    expected = {"equivalence": 1, "xor": 2, "mux": 2}.get(kind)
    if not mu or (expected and len(mu) != expected):
        raise ValueError(f"`mu` of {kind} must have {expected or 'at least one'} entries, got {list(mu)}")
    p = ndtr(np.asarray(mu, dtype=float))
    classes = 2
    match kind:
        case "equivalence":
            best = p[0]
        case "enhancement":
            best = ndtr(math.sqrt(sum(m * m for m in mu)))
        case "independence":
            best, classes = np.prod(p), 2 ** len(mu)
        case "xor" | "parity":
            best = (1 + np.prod(2 * p - 1)) / 2
        case "mux":
            best = p.mean()
        case _:
            raise ValueError(f"`kind` must be an interaction with a Bayes accuracy, got {kind!r}")
    return float(best * (1 - label_noise) + (1 - best) * label_noise / (classes - 1))


def modulation_r2(kappa: float, sigma: float, mu: float) -> float:
    """The best possible R^2 of y = a (1 + kappa b) + sigma e, b seen through the Gaussian channel."""
    from scipy.integrate import quad  # costs 0.3 s, and only one kind of these sets asks

    def known(n: float) -> float:
        return math.tanh(mu * (mu + n)) ** 2 * (math.exp(-(n**2) / 2) / math.sqrt(2 * math.pi))

    v, _ = quad(known, -12, 12)
    return (1 + kappa**2 * v) / (1 + kappa**2 + sigma**2)


class Interaction(DataModule):
    """One interaction task of the Gaussian family.

    Args:
        mu: Separation of each noisy modality.
        rows: Of the training split; validation has a fifth and the test split half of that number.
        dims: Of each modality: one carries the signal, the others noise.
        label_noise: Share of labels replaced by another class.
    """

    version = "1"
    licence = "MIT (generated)"
    citation = "This benchmark; taxonomy of Partan and Marler, Science 283 (1999)."
    source = "generated"
    kind: ClassVar[str] = ""
    title: ClassVar[str] = ""  # in the task's name, if it is not the kind

    def __init__(self, *, mu: Sequence[float], rows: Rows = 20_000, dims: Count = 6, label_noise: Noise = 0.0) -> None:
        super().__init__()
        self.mu = tuple(float(m) for m in mu)
        self.rows = rows
        self.dims = dims
        self.label_noise = label_noise

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the modalities."""
        return tuple("abcdefgh"[: max(2, len(self.mu))])

    @property
    def classes(self) -> int:
        """Number of labels."""
        return 2

    def describe(self) -> Task:
        bayes = bayes_accuracy(self.kind, self.mu, label_noise=self.label_noise)
        return self.task_of("multiclass", self.classes, bayes)

    def task_of(self, target: str, outputs: int, bayes: float) -> Task:
        """The task with this target."""
        views = tuple(Modality(name, "vector", (self.dims,)) for name in self.names)
        return Task(f"interactions_{self.title or self.kind}", self.version, views, target, outputs, bayes=bayes)

    def load(self) -> dict[SplitName, Split]:
        sizes: dict[SplitName, int] = {"train": self.rows, "val": self.rows // 5, "test": self.rows // 2}
        return {name: self.draw(i, size) for i, (name, size) in enumerate(sizes.items())}

    def draw(self, part: int, rows: int) -> Split:
        """Rows of the task: parts 0 to 2 are the splits, any other number draws fresh ones."""
        seed = zlib.crc32(f"{self.kind}/{self.version}".encode())
        rotations = [_rotation(np.random.default_rng([seed, 9, m]), self.dims) for m in range(len(self.names))]
        return self._split(np.random.default_rng([seed, part]), rows, rotations)

    def signals(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """The signal of each modality [n, M] and the label [n]."""
        signs = rng.integers(0, 2, (n, len(self.mu))) * 2 - 1
        return signs * np.array(self.mu) + rng.standard_normal(signs.shape), self.label(signs)

    def label(self, signs: np.ndarray) -> np.ndarray:
        """The label of each row of signs."""
        raise TypeError(f"{type(self).__name__} must define `label` or `signals`")

    def _split(self, rng: np.random.Generator, n: int, rotations: list[np.ndarray]) -> Split:
        signal, label = self.signals(rng, n)
        inputs = {}
        for m, name in enumerate(self.names):
            x = rng.standard_normal((n, self.dims))
            x[:, 0] = signal[:, m]
            inputs[name] = torch.from_numpy((x @ rotations[m]).astype(np.float32))
        if label.dtype.kind == "f":
            return Split(inputs, torch.from_numpy(label.astype(np.float32)).unsqueeze(1))
        flip = rng.random(n) < self.label_noise
        other = (label + rng.integers(1, self.classes, n)) % self.classes
        return Split(inputs, torch.from_numpy(np.where(flip, other, label).astype(np.int64)))


@register("interactions_equivalence")
class Equivalence(Interaction):
    """Both modalities carry the same signal: either is enough."""

    kind = "equivalence"

    def __init__(self, *, mu: Mu = (1.0,), rows: Rows = 20_000, dims: Count = 6, label_noise: Noise = 0.0) -> None:
        super().__init__(mu=mu, rows=rows, dims=dims, label_noise=label_noise)

    def signals(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        sign = rng.integers(0, 2, n) * 2 - 1
        shared = sign * self.mu[0] + rng.standard_normal(n)
        return np.stack([shared, shared], axis=1), (sign > 0).astype(np.int64)


@register("interactions_enhancement")
class Enhancement(Interaction):
    """Both modalities tell the same sign with independent noise: evidence adds up."""

    kind = "enhancement"

    def __init__(self, *, mu: Mu = (1.0, 0.7), rows: Rows = 20_000, dims: Count = 6, label_noise: Noise = 0.0) -> None:
        super().__init__(mu=mu, rows=rows, dims=dims, label_noise=label_noise)

    def signals(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        sign = rng.integers(0, 2, (n, 1)) * 2 - 1
        noise = rng.standard_normal((n, len(self.mu)))
        return sign * np.array(self.mu) + noise, (sign[:, 0] > 0).astype(np.int64)


@register("interactions_independence")
class Independence(Interaction):
    """Each modality has its own sign and the label is all of them."""

    kind = "independence"

    def __init__(self, *, mu: Mu = (1.0, 0.7), rows: Rows = 20_000, dims: Count = 6, label_noise: Noise = 0.0) -> None:
        super().__init__(mu=mu, rows=rows, dims=dims, label_noise=label_noise)

    @property
    def classes(self) -> int:
        return 2 ** len(self.mu)

    def label(self, signs: np.ndarray) -> np.ndarray:
        return ((signs > 0) * 2 ** np.arange(signs.shape[1])).sum(axis=1)


@register("interactions_mux")
class Mux(Interaction):
    """Dominance: a clean context modality says which of the other two holds the label."""

    kind = "mux"

    def __init__(self, *, mu: Mu = (1.5, 1.0), rows: Rows = 20_000, dims: Count = 6, label_noise: Noise = 0.0) -> None:
        super().__init__(mu=mu, rows=rows, dims=dims, label_noise=label_noise)

    @property
    def names(self) -> tuple[str, ...]:
        return ("a", "b", "context")

    def signals(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        signs = rng.integers(0, 2, (n, 3)) * 2 - 1
        signal = signs.astype(float)
        signal[:, :2] = signs[:, :2] * np.array(self.mu) + rng.standard_normal((n, 2))
        signal[:, 2] *= 3  # far from the noise dimensions' spread, and without noise of its own
        return signal, (np.where(signs[:, 2] > 0, signs[:, 0], signs[:, 1]) > 0).astype(np.int64)


@register("interactions_xor")
class Xor(Interaction):
    """Emergence: the label is the product of two signs, and either modality alone knows nothing."""

    kind = "xor"

    def __init__(self, *, mu: Mu = (1.5, 1.5), rows: Rows = 20_000, dims: Count = 6, label_noise: Noise = 0.0) -> None:
        super().__init__(mu=mu, rows=rows, dims=dims, label_noise=label_noise)

    def label(self, signs: np.ndarray) -> np.ndarray:
        return (signs.prod(axis=1) > 0).astype(np.int64)


@register("interactions_parity3")
class Parity3(Xor):
    """Emergence of order three: the product of three signs, which no pair of modalities predicts."""

    kind = "parity"
    title = "parity3"

    def __init__(
        self, *, mu: Mu = (2.0, 2.0, 2.0), rows: Rows = 20_000, dims: Count = 6, label_noise: Noise = 0.0
    ) -> None:
        super().__init__(mu=mu, rows=rows, dims=dims, label_noise=label_noise)


@register("interactions_modulation")
class Modulation(Interaction):
    """Regression: the second modality scales the effect of the first, y = a (1 + kappa b) + sigma e.

    Args:
        kappa: How much the second modality scales the effect of the first.
        sigma: Standard deviation of the noise of y.
    """

    kind = "modulation"

    def __init__(
        self, *, mu: float = 1.5, kappa: float = 0.8, sigma: float = 0.5, rows: Rows = 20_000, dims: Count = 6
    ) -> None:
        super().__init__(mu=(1.0, mu), rows=rows, dims=dims)
        self.kappa = kappa
        self.sigma = sigma

    def describe(self) -> Task:
        return self.task_of("regression", 1, modulation_r2(self.kappa, self.sigma, self.mu[1]))

    def signals(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        a = rng.standard_normal(n)
        b = rng.integers(0, 2, n) * 2 - 1
        y = a * (1 + self.kappa * b) + self.sigma * rng.standard_normal(n)
        return np.stack([a, self.mu[1] * b + rng.standard_normal(n)], axis=1), y


def _rotation(rng: np.random.Generator, dims: int) -> np.ndarray:
    q, r = np.linalg.qr(rng.standard_normal((dims, dims)))
    return q * np.sign(np.diag(r))
