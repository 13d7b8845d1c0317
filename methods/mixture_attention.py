"""Mixture attention: several Gaussians or truncated paraboloids, fitted to the scores by EM (Farinhas, chapter 5)."""

from typing import Literal

from torch import Tensor

from datamodules.spec import Task
from methods import Recipe, register
from methods.continuous_sparsemax import paraboloid_mixture_expectation
from methods.functional.attention import (
    Mixture,
    gaussian_expectation,
    mixture_expectation,
    region_start,
    select_mixture,
    sparsemax,
    weighted_em,
)
from methods.parts.attention import ContinuousMethod, Rbfs


@register("mixture_attention")
class MixtureAttention(ContinuousMethod):
    """Pool tokens under a mixture of densities fitted to softmax scores by unrolled EM.

    **Differs from the paper**: a row's number of components is chosen by that row's likelihood alone; the published
    code sums the scores over the batch (erratum E12). Sparse mixing sharpens first, because sparsemax leaves a point of
    the simplex as it is. Truncated paraboloids take the moments of fitted Gaussians: their own likelihood is -inf at
    every cell outside all supports.

    Args:
        components: K: 2 (halves) or 4 (quadrants) of an image; intervals of a sequence.
        component: "gaussian" | "paraboloid".
        iterations: EM iterations, unrolled.
        select: Choose K from 1..max_components at test time, by the likelihood penalised with `penalty` per component.
        mixing: "soft" keeps EM's weights; "sparse" takes sparsemax(temperature * pi), so that weak components vanish.
    """

    family = "attention"

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        components: int = 4,
        component: Literal["gaussian", "paraboloid"] = "gaussian",
        iterations: int = 5,
        select: bool = False,
        max_components: int = 5,
        penalty: float = 1.0,
        mixing: Literal["soft", "sparse"] = "soft",
        temperature: float = 3.0,
        heads: int = 4,
        query: Literal["others", "constant"] = "others",
        rbfs: int = 0,
        rbf_width: float = 0.5,
        nodes: int = 64,
    ) -> None:
        super().__init__(task, recipe, heads=heads, query=query, setting="combined", rbfs=rbfs, rbf_width=rbf_width)
        if components not in (2, 4):
            raise ValueError(f"Expected `components` to be 2 or 4, but got {components}")
        if component not in ("gaussian", "paraboloid"):
            raise ValueError(f"Expected `component` to be 'gaussian' or 'paraboloid', but got {component!r}")
        if mixing not in ("soft", "sparse"):
            raise ValueError(f"Expected `mixing` to be 'soft' or 'sparse', but got {mixing!r}")
        if iterations < 1 or max_components < 1:
            raise ValueError(f"Expected `iterations` and `max_components` >= 1, but got {iterations}, {max_components}")
        self.components, self.iterations = components, iterations
        self.component: Literal["gaussian", "paraboloid"] = component
        self.select, self.max_components, self.penalty = select, max_components, penalty
        self.mixing, self.temperature, self.nodes = mixing, temperature, nodes

    def component_shape(self) -> Literal["gaussian", "paraboloid"]:
        return self.component

    def density(self, points: Tensor, scores: Tensor) -> Mixture:
        if self.select and not self.training:
            mixture, _ = select_mixture(points, scores, self.max_components, self.penalty)
        else:
            start = region_start(points, scores, self.components)
            pi, mu, cov, _ = weighted_em(points, scores, *start, iterations=self.iterations)
            mixture = Mixture(pi, mu, cov)
        if self.mixing == "sparse":
            mixture = mixture._replace(pi=sparsemax(self.temperature * mixture.pi))
        return mixture

    def expectation(self, mixture: Mixture, rbfs: Rbfs) -> Tensor:
        if self.component == "paraboloid":
            return paraboloid_mixture_expectation(mixture, rbfs, self.nodes)
        return mixture_expectation(mixture, lambda mu, cov: gaussian_expectation(mu, cov, rbfs.centers, rbfs.covs))
