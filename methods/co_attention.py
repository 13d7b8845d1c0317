"""Co-attention: a self-attended guide (the question) guides attention over the others, before any pooling."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta
from torch import Tensor, nn

from datamodules.options import Count
from datamodules.spec import Task
from methods import Base, Recipe, Stage, Tokens, Wrapper, methods, register
from methods.parts.search import OneOf, Space
from methods.parts.token_attention import Attend, check_heads, visible_tokens

Pooling = Literal["softmax", "sparsemax", "continuous_softmax", "continuous_sparsemax", "mixture"]
METHOD_OF: dict[Pooling, str] = {
    "softmax": "softmax_attention",
    "sparsemax": "sparsemax_attention",
    "continuous_softmax": "continuous_softmax",
    "continuous_sparsemax": "continuous_sparsemax",
    "mixture": "mixture_attention",
}


class Unit(nn.Module):
    """Self-attention, attention to a guide if there is one, feed-forward; each with a residual and a norm after it."""

    def __init__(self, width: int, heads: int, dropout: float, guided: bool) -> None:
        super().__init__()
        self.look = Attend(width, heads, dropout)
        self.ask = Attend(width, heads, dropout) if guided else None
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(4 * width, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if guided else 2))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, visible: Tensor, guide: Tensor | None = None, seen: Tensor | None = None) -> Tensor:
        x = self.norms[0](x + self.drop(self.look(x, x, visible)))
        if self.ask is not None and guide is not None and seen is not None:
            x = self.norms[1](x + self.drop(self.ask(x, guide, seen)))
        return self.norms[-1](x + self.drop(self.feed(x)))


@register("co_attention")
class CoAttention(Wrapper):
    """Let a self-attended question guide attention over the image, then pool by any of our attentions.

    The encoder-decoder of MCAN: layers of self-attention over the guide (the first text, else the first modality), and
    of self-attention and guided attention over every other modality, which all read the guide's last layer. The pooled
    modalities are fused as LayerNorm(sum of linear maps). With a continuous `pooling` this is the model of the
    continuous-attention thesis. (Yu, Yu, Cui, Tao and Tian, 2019; Farinhas, 2021.)

    **Differs from the paper**: pooling scores tokens by a linear map, not an MLP; with more than two modalities, which
    the paper leaves open, each is guided by the guide alone; padding is known, not inferred from zeros, and an absent
    guide says nothing.

    Args:
        pooling: The attention that turns tokens into a vector.
        query: Of the pooling: "constant" as in the paper, or "others" asks the other modalities once more.
        layers: Of the encoder, and of the decoder.
        heads: Of attention; must divide the recipe's width.
        dropout: In the attention layers.
    """

    family = "attention"
    search: ClassVar[Mapping[str, Space]] = {"layers": OneOf((1, 2, 3)), "heads": OneOf((2, 4, 8))}
    separable = False
    checked: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {},
        {"pooling": "sparsemax"},
        {"pooling": "continuous_softmax", "dropout": 0.1},
        {"pooling": "continuous_sparsemax", "layers": 1},
        {"pooling": "mixture", "query": "others"},
    )

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        pooling: Pooling = "softmax",
        query: Literal["constant", "others"] = "constant",
        layers: Count = 2,
        heads: Count = 4,
        dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
    ) -> None:
        super().__init__(task, recipe, Base(METHOD_OF[pooling], {"query": query}))
        check_heads(heads, recipe.width)
        self.separable = False  # pyright: ignore[reportAttributeAccessIssue] - the guide is in everybody's tokens
        texts = [m.name for m in task.modalities if m.kind == "text"]
        self.guide = (*texts, *task.names)[0]
        self.units = nn.ModuleDict(
            {
                name: nn.ModuleList(Unit(recipe.width, heads, dropout, name != self.guide) for _ in range(layers))
                for name in task.names
            }
        )

    def encode(self, inputs: dict[str, Tensor], present: Tensor) -> dict[str, Tokens]:
        tokens = self.base.encode(inputs, present)
        seen = {n: visible_tokens(tokens[n], present[:, m]) for m, n in enumerate(self.task.names)}
        guide = tokens[self.guide].x
        for unit in self.units[self.guide].children():
            guide = unit(guide, seen[self.guide])
        found = {self.guide: guide}
        for name in self.task.names:
            if name != self.guide:
                x = tokens[name].x
                for unit in self.units[name].children():
                    x = unit(x, seen[name], guide, seen[self.guide])
                found[name] = x
        return {name: tokens[name]._replace(x=found[name]) for name in self.task.names}

    def stages(self) -> tuple[Stage, ...]:
        return (Stage(self),)  # the base's own stage would train the pooling without the units

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        return methods.get(METHOD_OF[options.get("pooling", "softmax")]).applies_to(task, {})
