"""Centre regularisers for pytorch-metric-learning: pass one as `weight_regularizer=` to any of its proxy losses.

    ProxyAnchorLoss(num_classes, width, weight_regularizer=R1Regularizer(gamma=16), weight_reg_weight=10)

The library has RegularFace; these are the ones it lacks. The mathematics is in `methods.functional.centers`.
"""

from collections.abc import MutableMapping
from typing import Any, Literal, get_args

import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.regularizers import BaseRegularizer, RegularFaceRegularizer
from torch import Tensor

from methods.functional import centers

Kind = Literal["none", "r1", "r2", "mhe", "uniformface", "regularface", "farthest"]


class CenterRegularizer(BaseRegularizer):
    """A penalty on the directions of centres `[C, d]`; a subclass says how, in `penalty`.

    Args:
        labels: Class of each row when a class has several centres (SoftTriple): pairs of one class are left out.
        reducer: As everywhere in the library; None takes the mean over classes.
    """

    labels: Tensor | None

    def __init__(self, *, labels: Tensor | None = None, reducer: Any = None) -> None:
        super().__init__(reducer=reducer)
        self.register_buffer("labels", labels, persistent=False)

    def penalty(self, weights: Tensor) -> Tensor:
        """A scalar, or one value per row of `weights`."""
        raise NotImplementedError

    def compute_loss(self, weights: Tensor) -> dict[str, dict[str, Any]]:
        """The library's loss dictionary: per-class values stay per class, so that its reducers see them."""
        losses = self.penalty(weights)
        if losses.ndim == 0:
            return {"loss": {"losses": losses, "indices": None, "reduction_type": "already_reduced"}}
        indices = torch.arange(len(weights), device=weights.device)
        return {"loss": {"losses": losses, "indices": indices, "reduction_type": "element"}}

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
        labels: See `CenterRegularizer`.
        reducer: See `CenterRegularizer`.
    """

    def __init__(
        self,
        gamma: float = 16.0,
        delta: float = 0.0,
        form: centers.Form = "mean",
        sample: int | None = None,
        *,
        labels: Tensor | None = None,
        reducer: Any = None,
    ) -> None:
        super().__init__(labels=labels, reducer=reducer)
        if gamma <= 0:
            raise ValueError(f"Expected argument `gamma` to be above 0 (below, centres collapse), but got {gamma}")
        if sample is not None and (form != "mean" or delta or labels is not None):
            raise ValueError('`sample` goes with form = "mean", no margin and one centre per class')
        self.gamma, self.delta, self.sample = gamma, delta, sample
        self.form: centers.Form = form
        self._state: MutableMapping[str, Tensor] = {}

    def penalty(self, weights: Tensor) -> Tensor:
        if self.sample is None or self.sample >= len(weights):
            return centers.r1_per_class(weights, self.gamma, self.delta, self.form, self.labels)
        # Looking at the value (validation) must not move the normaliser of training.
        state = self._state if self.training else dict(self._state)
        return centers.r1_sampled(weights, self.gamma, self.sample, None, state)


class R2Regularizer(CenterRegularizer):
    """Power mean of (1 + cos) / 2 over pairs (`centers.r2`); `lam` >= 16, or it hardly spreads."""

    def __init__(self, lam: float = 32.0, *, labels: Tensor | None = None, reducer: Any = None) -> None:
        super().__init__(labels=labels, reducer=reducer)
        if lam <= 1:
            raise ValueError(f"Expected argument `lam` to be above 1, but got {lam}")
        self.lam = lam

    def penalty(self, weights: Tensor) -> Tensor:
        return centers.r2(weights, self.lam, self.labels)


class MHERegularizer(CenterRegularizer):
    """Hyperspherical energy in its rooted form (`centers.rooted_mhe`): the raw one explodes with s."""

    def __init__(self, s: float = 1.0, *, labels: Tensor | None = None, reducer: Any = None) -> None:
        super().__init__(labels=labels, reducer=reducer)
        if s < 0:
            raise ValueError(f"Expected argument `s` to be >= 0, but got {s}")
        self.s = s

    def penalty(self, weights: Tensor) -> Tensor:
        return centers.rooted_mhe(weights, self.s, self.labels)


class UniformfaceRegularizer(CenterRegularizer):
    """Mean of 1 / (1 + d) over pairs (`centers.uniformface`)."""

    def penalty(self, weights: Tensor) -> Tensor:
        return centers.uniformface(weights, self.labels)


class FarthestRegularizer(CenterRegularizer):
    """Negative control (`centers.farthest`): above lam = 2 it drives all centres onto two antipodal points.

    Args:
        lam: Exponent of the mean that is maximised.
        allow_collapse: Must be True: nobody should train with this by accident.
        labels: See `CenterRegularizer`.
        reducer: See `CenterRegularizer`.
    """

    def __init__(
        self, lam: float = 4.0, *, allow_collapse: bool = False, labels: Tensor | None = None, reducer: Any = None
    ) -> None:
        super().__init__(labels=labels, reducer=reducer)
        if not allow_collapse:
            raise ValueError(
                "`farthest` collapses all centres onto two antipodal points; it exists as a negative control. "
                "Set allow_collapse = true to run it, or use kind = 'r1'"
            )
        self.lam = lam

    def penalty(self, weights: Tensor) -> Tensor:
        return centers.farthest(weights, self.lam, self.labels)


def center_regularizer(
    kind: Kind,
    *,
    gamma: float = 16.0,
    lam: float | None = None,
    s: float = 1.0,
    delta: float = 0.0,
    form: centers.Form = "mean",
    sample: int | None = None,
    allow_collapse: bool = False,
) -> BaseRegularizer | None:
    """The regulariser of a name; None for `"none"`.

    Args:
        kind: `none | r1 | r2 | mhe | uniformface | regularface | farthest`.
        gamma: Of r1.
        lam: Of r2 (None: 32) and farthest (None: 4).
        s: Of mhe.
        delta: Of r1.
        form: Of r1.
        sample: Of r1.
        allow_collapse: Of farthest.
    """
    match kind:
        case "none":
            return None
        case "r1":
            return R1Regularizer(gamma, delta, form, sample)
        case "r2":
            return R2Regularizer(32.0 if lam is None else lam)
        case "mhe":
            return MHERegularizer(s)
        case "uniformface":
            return UniformfaceRegularizer()
        case "regularface":
            return RegularFaceRegularizer()
        case "farthest":
            return FarthestRegularizer(4.0 if lam is None else lam, allow_collapse=allow_collapse)
        case _:
            raise ValueError(f"Expected argument `kind` to be one of {', '.join(get_args(Kind))}, but got {kind!r}")
