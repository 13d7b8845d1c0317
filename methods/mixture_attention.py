"""Mixture attention: several Gaussians or truncated paraboloids, fitted to the scores by EM."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import Tensor

from datamodules.options import Count, NonNegative, Positive
from datamodules.spec import Task
from methods import Recipe, register
from methods.functional.attention import Mixture, cell_variance, region_start, select_mixture, sparsemax, weighted_em
from methods.parts.attention import (
    Align,
    ContinuousMethod,
    Nodes,
    PerAxis,
    Query,
    Rbfs,
    Shape,
    gaussian_mixture,
    paraboloid_mixture,
)
from methods.parts.search import OneOf, Space


@register("mixture_attention")
class MixtureAttention(ContinuousMethod):
    """Pool tokens under a mixture of densities fitted to softmax scores by unrolled EM.

    Source: Farinhas et al., 2021 (multimodal continuous attention).

    **Differs from the paper**: a row's number of components is chosen by that row's likelihood alone; the published
    code sums the scores over the batch. Sparse mixing sharpens first, because sparsemax leaves a point of the simplex
    as it is. Truncated paraboloids take the moments of fitted Gaussians: their own likelihood is -inf at every cell
    outside all supports.

    Args:
        components: K: 1, 2 (halves) or 4 (quadrants) of an image; intervals of a sequence. 1 with `select` trains one
            mode and tests with as many as are found (the source's attention with selection at test time).
        component: The shape of the densities.
        iterations: EM iterations, unrolled.
        select: Choose K from 1..max_components at test time, by the likelihood penalised with `penalty` per component.
            Covariances then are at least those of a cell, in training too: selection finds modes, not cells.
        mixing: "soft" keeps EM's weights; "sparse" takes sparsemax(temperature * pi), so that weak components vanish.
        max_components: The largest K that `select` tries.
        penalty: Of the log-likelihood for each component, when `select` chooses.
        temperature: How much sparse mixing sharpens.
        nodes: Of the chord rule, for paraboloids in two dimensions.
    """

    family = "attention"
    search: ClassVar[Mapping[str, Space]] = {"heads": OneOf((1, 2, 4, 8)), "iterations": OneOf((1, 2, 5))}
    checked = (
        {},
        {"component": "paraboloid", "mixing": "sparse", "components": 2},
        {"select": True, "max_components": 3},
        {"components": 1, "select": True},
    )

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        components: Literal[1, 2, 4] = 4,
        component: Shape = "gaussian",
        iterations: Count = 5,
        select: bool = False,
        max_components: Count = 5,
        penalty: NonNegative = 1.0,
        mixing: Literal["soft", "sparse"] = "soft",
        temperature: Positive = 3.0,
        heads: Count = 4,
        query: Query = "others",
        rbfs: PerAxis | None = None,
        rbf_width: Positive = 0.5,
        nodes: Nodes = 64,
        align: Align = "scaled_dot",
    ) -> None:
        super().__init__(task, recipe, heads=heads, query=query, rbfs=rbfs, rbf_width=rbf_width, align=align)
        self.components, self.shape, self.iterations = components, component, iterations
        self.select, self.max_components, self.penalty = select, max_components, penalty
        self.mixing, self.temperature, self.nodes = mixing, temperature, nodes

    def density(self, points: Tensor, scores: Tensor) -> Mixture:
        if self.select and not self.training:
            mixture, _ = select_mixture(points, scores, self.max_components, self.penalty)
        else:
            floor = cell_variance(points) if self.select else 1e-6
            start = region_start(points, scores, self.components)
            pi, mu, cov, _ = weighted_em(points, scores, *start, iterations=self.iterations, reg=floor)
            mixture = Mixture(pi, mu, cov)
        if self.mixing == "sparse":
            mixture = mixture._replace(pi=sparsemax(self.temperature * mixture.pi))
        return mixture

    def expectation(self, mixture: Mixture, rbfs: Rbfs) -> Tensor:
        if self.shape == "paraboloid":
            return paraboloid_mixture(mixture, rbfs, self.nodes)
        return gaussian_mixture(mixture, rbfs)
