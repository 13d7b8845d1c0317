"""Continuous softmax: one Gaussian over the image or the sequence (Farinhas, chapters 3 and 4)."""

from typing import Literal

from torch import Tensor

from datamodules.spec import Task
from methods import Recipe, register
from methods.functional.attention import Mixture, gaussian_expectation, mixture_expectation
from methods.parts.attention import ContinuousMethod, Rbfs


@register("continuous_softmax")
class ContinuousSoftmax(ContinuousMethod):
    """Pool tokens under one Gaussian density with the moments of softmax scores.

    **Differs from the paper**: one grid of cell centres for regression, moments and plots (erratum E8), and the
    (mu, Var) form of the gradient, which never inverts the covariance.
    """

    family = "attention"

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        heads: int = 4,
        query: Literal["others", "constant"] = "others",
        setting: Literal["combined", "direct"] = "combined",
        rbfs: int = 0,
        rbf_width: float = 0.5,
    ) -> None:
        super().__init__(task, recipe, heads=heads, query=query, setting=setting, rbfs=rbfs, rbf_width=rbf_width)

    def component_shape(self) -> Literal["gaussian"]:
        return "gaussian"

    def expectation(self, mixture: Mixture, rbfs: Rbfs) -> Tensor:
        return mixture_expectation(mixture, lambda mu, cov: gaussian_expectation(mu, cov, rbfs.centers, rbfs.covs))
