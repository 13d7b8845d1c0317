"""Sparsemax attention over tokens: discrete, with exact zeros (Martins and Astudillo, 2016)."""

from typing import Literal

from torch import Tensor

from datamodules.spec import Task
from methods import Recipe, Tokens, register
from methods.functional.attention import sparsemax
from methods.parts.attention import Attended, AttentionMethod


@register("sparsemax_attention")
class SparsemaxAttention(AttentionMethod):
    """Pool tokens by sparsemax attention, queried by the other modalities: most tokens get exactly zero."""

    family = "attention"

    def __init__(
        self, task: Task, recipe: Recipe, *, heads: int = 4, query: Literal["others", "constant"] = "others"
    ) -> None:
        super().__init__(task, recipe, heads=heads, query=query)

    def attend(self, name: str, tokens: Tokens, query: Tensor, mean: Tensor) -> Attended:
        p = sparsemax(self.scores(name, tokens, query)).mean(dim=1)
        return Attended(tokens.grid, p, p)
