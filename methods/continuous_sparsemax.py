"""Continuous sparsemax: one truncated paraboloid, zero outside an ellipse."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import Tensor

from datamodules.options import Count, Positive
from datamodules.spec import Task
from methods import Recipe, register
from methods.functional.attention import Mixture
from methods.parts.attention import ContinuousMethod, Nodes, PerAxis, Query, Rbfs, paraboloid_mixture
from methods.parts.search import LogUniform, OneOf, Space


@register("continuous_sparsemax")
class ContinuousSparsemax(ContinuousMethod):
    """Pool tokens under one truncated paraboloid with the moments of softmax scores.

    Source: Martins et al., 2020; in two dimensions Farinhas et al., 2021.

    **Differs from the paper**: the chord rule replaces the angular sum, whose published form counts an endpoint twice:
    more than a hundred times faster and exact to 1e-6.

    Args:
        nodes: Chords of an image.
    """

    family = "attention"
    search: ClassVar[Mapping[str, Space]] = {"heads": OneOf((1, 2, 4, 8)), "rbf_width": LogUniform(0.25, 1.0)}
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
    ) -> None:
        super().__init__(task, recipe, heads=heads, query=query, setting=setting, rbfs=rbfs, rbf_width=rbf_width)
        self.nodes = nodes

    def expectation(self, mixture: Mixture, rbfs: Rbfs) -> Tensor:
        return paraboloid_mixture(mixture, rbfs, self.nodes)
