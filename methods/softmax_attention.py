"""Softmax attention over tokens: the discrete, dense baseline of the attention family."""

from typing import Literal

from torch import Tensor

from datamodules.spec import Task
from methods import Recipe, Tokens, register
from methods.parts.attention import Attended, AttentionMethod


@register("softmax_attention")
class SoftmaxAttention(AttentionMethod):
    """Pool tokens by softmax attention, queried by the other modalities."""

    family = "attention"

    def __init__(
        self, task: Task, recipe: Recipe, *, heads: int = 4, query: Literal["others", "constant"] = "others"
    ) -> None:
        super().__init__(task, recipe, heads=heads, query=query)

    def attend(self, name: str, tokens: Tokens, query: Tensor, mean: Tensor) -> Attended:
        p = self.scores(name, tokens, query).softmax(dim=-1).mean(dim=1)
        return Attended(tokens.grid, p, p)
