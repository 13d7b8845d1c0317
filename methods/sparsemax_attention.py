"""Sparsemax attention over tokens: discrete, with exact zeros."""

from torch import Tensor

from methods import register
from methods.functional.attention import sparsemax
from methods.parts.attention import DiscreteMethod


@register("sparsemax_attention")
class SparsemaxAttention(DiscreteMethod):
    """Pool tokens by sparsemax attention, queried by the other modalities: most tokens get exactly zero.

    Source: Martins and Astudillo, 2016.
    """

    family = "attention"

    def normalise(self, scores: Tensor) -> Tensor:
        return sparsemax(scores)
