"""Softmax attention over tokens: the discrete, dense baseline of the attention family."""

from torch import Tensor

from methods import register
from methods.parts.attention import DiscreteMethod


@register("softmax_attention")
class SoftmaxAttention(DiscreteMethod):
    """Pool tokens by softmax attention, queried by the other modalities.

    Source: Vaswani et al., 2017 (scaled dot products).
    """

    family = "attention"

    def normalise(self, scores: Tensor) -> Tensor:
        return scores.softmax(dim=-1)
