"""Softmax attention over tokens: the discrete, dense baseline of the attention family."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from methods import register
from methods.parts.attention import DiscreteMethod
from methods.parts.search import OneOf, Space


@register("softmax_attention")
class SoftmaxAttention(DiscreteMethod):
    """Pool tokens by softmax attention, queried by the other modalities.

    Source: Vaswani et al., 2017 (scaled dot products).
    """

    family = "attention"
    search: ClassVar[Mapping[str, Space]] = {"heads": OneOf((1, 2, 4, 8))}

    def normalise(self, scores: Tensor) -> Tensor:
        return scores.softmax(dim=-1)
