"""Continuous softmax: one Gaussian over the image or the sequence."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from methods import register
from methods.functional.attention import Mixture
from methods.parts.attention import ContinuousMethod, Rbfs, gaussian_mixture
from methods.parts.search import LogUniform, OneOf, Space


@register("continuous_softmax")
class ContinuousSoftmax(ContinuousMethod):
    """Pool tokens under one Gaussian density with the moments of softmax scores.

    Source: Martins et al., 2020; in two dimensions Farinhas et al., 2021.

    **Differs from the paper**: one grid of cell centres for regression, moments and plots, and the (mu, Var) form of
    the gradient, which never inverts the covariance.
    """

    family = "attention"
    search: ClassVar[Mapping[str, Space]] = {"heads": OneOf((1, 2, 4, 8)), "rbf_width": LogUniform(0.25, 1.0)}
    shape = "gaussian"

    def expectation(self, mixture: Mixture, rbfs: Rbfs) -> Tensor:
        return gaussian_mixture(mixture, rbfs)
