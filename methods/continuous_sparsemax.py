"""Continuous sparsemax: one truncated paraboloid, zero outside an ellipse."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from msgspec import Meta
from torch import Tensor

from datamodules.options import Count, Positive
from datamodules.spec import Task
from methods import Recipe, register
from methods.functional.attention import Mixture
from methods.parts.attention import (
    Align,
    ContinuousMethod,
    Nodes,
    PerAxis,
    Query,
    Rbfs,
    entmax_mixture,
    paraboloid_mixture,
)
from methods.parts.search import LogUniform, OneOf, Space


@register("continuous_sparsemax")
class ContinuousSparsemax(ContinuousMethod):
    """Pool tokens under one truncated paraboloid with the moments of softmax scores.

    Source: Martins et al., 2020; in two dimensions Farinhas et al., 2021.

    **Differs from the paper**: the chord rule replaces the angular sum, whose published form counts an endpoint twice:
    more than a hundred times faster and exact to 1e-6.

    Args:
        nodes: Chords of an image; of another `alpha`, Gauss-Jacobi nodes on each axis are half as many.
        alpha: Of the entmax density: 2 is the truncated paraboloid; towards 1 it becomes a Gaussian, beyond 2 its edge
            is steeper. Without a closed form, so by quadrature (`methods.functional.entmax`).
    """

    family = "attention"
    search: ClassVar[Mapping[str, Space]] = {"heads": OneOf((1, 2, 4, 8)), "rbf_width": LogUniform(0.25, 1.0)}
    checked = (*ContinuousMethod.checked, {"alpha": 1.5})
    shape = "paraboloid"

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        heads: Count = 4,
        query: Query = "others",
        setting: Literal["combined", "direct"] = "combined",
        rbfs: PerAxis | None = None,
        rbf_width: Positive = 0.5,
        nodes: Nodes = 64,
        align: Align = "scaled_dot",
        alpha: Annotated[float, Meta(gt=1, le=4)] = 2.0,
    ) -> None:
        super().__init__(
            task, recipe, heads=heads, query=query, setting=setting, rbfs=rbfs, rbf_width=rbf_width, align=align
        )
        self.nodes, self.alpha = nodes, alpha

    def expectation(self, mixture: Mixture, rbfs: Rbfs) -> Tensor:
        if self.alpha == 2:
            return paraboloid_mixture(mixture, rbfs, self.nodes)
        return entmax_mixture(mixture, rbfs, self.alpha, self.nodes // 2)
