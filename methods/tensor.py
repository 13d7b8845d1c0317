"""Tensor fusion: a linear map of the outer product of all modalities, which is never built."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.options import Count
from datamodules.spec import Task
from methods import Method, Recipe, register
from methods.functional.fusion import tensor_fusion
from methods.parts.search import OneOf, Space

MOST_WEIGHTS = 5e7
FEATURES, OUTPUTS = 16, 64
ORDERS = (0, 1, 2, 3)


@register("tensor")
class TensorFusion(Method):
    """Model the interactions of every subset of the modalities at full rank.

    `h_o = <W_o, [1, x_1] (x) .. (x) [1, x_M]>` with `x_m` a projection of the encoding, computed by split-GEMM. With a
    modality absent this is exactly the tensor fusion of the others.

    Source: Zadeh et al., 2017.

    Args:
        features: Width of `x_m`. The projection has no bias, so that what is absent stays zero.
        outputs: Width of h.
        orders: Which blocks of W are kept, for ablations; W keeps its shape. 0 is the constant, 1 the single
            modalities, 2 the pairs, 3 what is left.
    """

    family = "fusion"
    search: ClassVar[Mapping[str, Space]] = {"features": OneOf((8, 16, 32)), "outputs": OneOf((32, 64, 128))}
    checked = ({}, {"features": 3, "orders": (1, 2)})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        features: Count = FEATURES,
        outputs: Count = OUTPUTS,
        orders: Annotated[tuple[Literal[0, 1, 2, 3], ...], Meta(min_length=1)] = ORDERS,
    ) -> None:
        super().__init__(task, recipe, fused_dim=outputs)
        count = len(task.modalities)
        kept = [min(k, 3) in orders for k in range(count + 1)]
        scale = recipe.width**-0.5
        self.projections = nn.ParameterList(torch.randn(features, recipe.width) * scale for _ in range(count))
        self.mask: Tensor | None
        self.register_buffer("mask", None if all(kept) else _blocks(count, features, kept), persistent=False)
        # Unit variance of h, as every product of standardised features has unit second moment.
        terms = sum(math.comb(count, k) * features**k for k in range(count + 1) if kept[k])
        self.weight = nn.Parameter(torch.randn(*[features + 1] * count, outputs) * terms**-0.5)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        xs = [F.linear(z[:, m], projection) for m, projection in enumerate(self.projections)]
        return tensor_fusion(xs, self.weight if self.mask is None else self.weight * self.mask)

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        count, features = len(task.modalities), options.get("features", FEATURES)
        weights = options.get("outputs", OUTPUTS) * (features + 1) ** count
        if weights > MOST_WEIGHTS:
            return (
                f"{count} modalities of {features} features need {weights:.2g} weights, more than {MOST_WEIGHTS:.0e}: "
                "lower `features`, or use `low_rank`, which models the same interactions"
            )
        if not any(min(k, 3) in options.get("orders", ORDERS) for k in range(1, count + 1)):
            return f"`orders` keeps no block of W in which one of {count} modalities is used"
        return super().applies_to(task, options)


def _blocks(count: int, features: int, kept: list[bool]) -> Tensor:
    """Which entries of the weight to keep, `[D, .., D, 1]`; an entry's order is its number of non-constant indices."""
    index = torch.arange(features + 1) > 0
    order = sum(index.long().view([-1 if axis == m else 1 for axis in range(count)]) for m in range(count))
    return torch.tensor(kept)[order].unsqueeze(-1)
