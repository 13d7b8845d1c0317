"""Sparsemax attention over tokens: discrete, with exact zeros."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from methods import register
from methods.functional.attention import sparsemax
from methods.parts.attention import DiscreteMethod
from methods.parts.search import OneOf, Space


@register("sparsemax_attention")
class SparsemaxAttention(DiscreteMethod):
    """Pool tokens by sparsemax attention, queried by the other modalities: most tokens get exactly zero.

    Source: Martins and Astudillo, 2016.
    """

    family = "attention"
    search: ClassVar[Mapping[str, Space]] = {"heads": OneOf((1, 2, 4, 8))}

    def normalise(self, scores: Tensor) -> Tensor:
        return sparsemax(scores)
