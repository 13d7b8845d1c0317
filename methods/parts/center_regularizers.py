"""Centre regularisers for pytorch-metric-learning: pass one as `weight_regularizer=` to any of its proxy losses.

    ProxyAnchorLoss(num_classes, width, weight_regularizer=R1Regularizer(gamma=16), weight_reg_weight=10)

The library has RegularFace; these are the ones it lacks. The mathematics is in `methods.functional.centers`.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.regularizers import BaseRegularizer, RegularFaceRegularizer
from torch import Tensor

from datamodules.options import Count, NonNegative, Positive, check, parameters
from datamodules.registry import did_you_mean
from methods.functional import centers


class CenterRegularizer(BaseRegularizer):
    """A penalty on the directions of centres `[C, d]`; a subclass says how, in `penalty`."""

    def penalty(self, weights: Tensor) -> Tensor:
        """A scalar."""
        raise NotImplementedError

    def compute_loss(self, weights: Tensor) -> dict[str, dict[str, Any]]:
        """The library's loss dictionary."""
        return {"loss": {"losses": self.penalty(weights), "indices": None, "reduction_type": "already_reduced"}}

    def get_default_distance(self) -> CosineSimilarity:
        """Directions only: no other distance is meaningful here."""
        return CosineSimilarity()


class R1Regularizer(CenterRegularizer):
    """Log-exp mean of each centre's cosines to the others (`centers.r1`), or its sampled form for very many classes.

    Args:
        gamma: Skew towards the nearest centres. 16 weighs about the nearest tenth of the pairs.
        delta: Margin; acts only when `form` is `"softplus"`.
        form: `"mean"` | `"sum"` | `"softplus"`.
        sample: Centres drawn per call; None for all. The ratio form with a running normaliser: its value hovers at
            1 / gamma and says nothing, its gradient is that of the global log-exp mean.
    """

    def __init__(
        self, *, gamma: Positive = 16.0, delta: float = 0.0, form: centers.Form = "mean", sample: Count | None = None
    ) -> None:
        super().__init__()
        if sample is not None and (form != "mean" or delta):
            raise ValueError('r1: `sample` goes with form = "mean" and no margin')
        self.gamma, self.delta, self.sample = gamma, delta, sample
        self.form: centers.Form = form
        self._state: MutableMapping[str, Tensor] = {}

    def penalty(self, weights: Tensor) -> Tensor:
        if self.sample is None or self.sample >= len(weights):
            return centers.r1(weights, self.gamma, self.delta, self.form)
        # Looking at the value (validation) must not move the normaliser of training.
        state = self._state if self.training else dict(self._state)
        return centers.r1_sampled(weights, self.gamma, self.sample, None, state)


class R2Regularizer(CenterRegularizer):
    """Power mean of (1 + cos) / 2 over pairs (`centers.r2`); `lam` >= 16, or it hardly spreads."""

    def __init__(self, *, lam: Annotated[float, Meta(gt=1)] = 32.0) -> None:
        super().__init__()
        self.lam = lam

    def penalty(self, weights: Tensor) -> Tensor:
        return centers.r2(weights, self.lam)


class HardRegularizer(CenterRegularizer):
    """The hard skewed mean M_[K] of the cosines (`centers.hard_skewed`): K is a `share` of the pairs."""

    def __init__(self, *, share: Annotated[float, Meta(gt=0, le=1)] = 0.1) -> None:
        super().__init__()
        self.share = share

    def penalty(self, weights: Tensor) -> Tensor:
        return centers.hard_skewed(weights, self.share)


class MHERegularizer(CenterRegularizer):
    """Hyperspherical energy in its rooted form (`centers.rooted_mhe`): the raw one explodes with s."""

    def __init__(self, *, s: NonNegative = 1.0) -> None:
        super().__init__()
        self.s = s

    def penalty(self, weights: Tensor) -> Tensor:
        return centers.rooted_mhe(weights, self.s)


class UniformfaceRegularizer(CenterRegularizer):
    """Mean of 1 / (1 + d) over pairs (`centers.uniformface`)."""

    def penalty(self, weights: Tensor) -> Tensor:
        return centers.uniformface(weights)


class FarthestRegularizer(CenterRegularizer):
    """Negative control (`centers.farthest`): above lam = 2 it drives all centres onto two antipodal points.

    Args:
        lam: Exponent of the mean that is maximised.
        allow_collapse: Must be True: nobody should train with this by accident.
    """

    def __init__(self, *, lam: float = 4.0, allow_collapse: bool = False) -> None:
        super().__init__()
        if not allow_collapse:
            raise ValueError(
                "farthest: collapses all centres onto two antipodal points; it exists as a negative control. "
                "Set allow_collapse = true to run it, or use 'r1'"
            )
        self.lam = lam

    def penalty(self, weights: Tensor) -> Tensor:
        return centers.farthest(weights, self.lam)


REGULARIZERS: dict[str, type[BaseRegularizer]] = {
    "r1": R1Regularizer,
    "r2": R2Regularizer,
    "hard": HardRegularizer,
    "mhe": MHERegularizer,
    "uniformface": UniformfaceRegularizer,
    "regularface": RegularFaceRegularizer,
    "farthest": FarthestRegularizer,
}


@dataclass(frozen=True)
class Regularizer:
    """A regulariser by name: `"r2"` or `{ name = "r2", lam = 20 }` in a matrix; `"none"` for no regulariser."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_option(cls, key: str, value: Any) -> Regularizer:
        """As a matrix writes it."""
        table = {"name": value} if isinstance(value, str) else value
        if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
            raise ValueError(f'`{key}` must be a name or {{ name = "..", .. }}, got {value!r}')
        found = cls(table["name"], {k: v for k, v in table.items() if k != "name"})
        found.build()
        return found

    def build(self) -> BaseRegularizer | None:
        """Construct it.

        Raises:
            ValueError: If there is no such regulariser, or it has no such option.
        """
        if self.name == "none" and not self.options:
            return None
        known = ("none", *REGULARIZERS)
        if self.name not in REGULARIZERS:
            raise ValueError(f"no regulariser named {self.name!r}. {did_you_mean(self.name, known)}")
        made = REGULARIZERS[self.name]
        for key in self.options:
            if key not in parameters(made):
                raise ValueError(f"{self.name}: no option `{key}`. {did_you_mean(key, tuple(parameters(made)))}")
        check(made, self.options)
        return made(**self.options)
