"""Tensor fusion: a linear map of the outer product of all modalities, which is never built."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.spec import Task
from methods import Method, Recipe, register
from methods.functional.fusion import tensor_fusion

MOST_WEIGHTS = 5e7
FEATURES, OUTPUTS = 16, 64


@register("tensor")
class TensorFusion(Method):
    """Model the interactions of every subset of the modalities at full rank.

    `h_o = <W_o, [1, x_1] (x) .. (x) [1, x_M]>` with `x_m` a projection of the encoding, computed by split-GEMM. With a
    modality absent this is exactly the tensor fusion of the others.

    Args:
        features: Width of `x_m`. The projection has no bias, so that what is absent stays zero.
        outputs: Width of h.
        bias: Keep the constant block of W. This and the next three are for ablations by order; W keeps its shape.
        uni: Keep the blocks of single modalities.
        bi: Keep the blocks of pairs.
        tri: Keep the blocks of three modalities and more.
    """

    family = "fusion"

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        features: int = FEATURES,
        outputs: int = OUTPUTS,
        bias: bool = True,
        uni: bool = True,
        bi: bool = True,
        tri: bool = True,
    ) -> None:
        super().__init__(task, recipe, fused_dim=outputs)
        for name, value in (("features", features), ("outputs", outputs)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"tensor: `{name}` must be an integer >= 1, got {value!r}")
        count = len(task.modalities)
        if problem := _too_large(count, features, outputs):
            raise ValueError(f"tensor: {problem}")
        kept = [bias, uni, bi, *[tri] * (count - 2)]
        if not any(kept[1 : count + 1]):
            raise ValueError("tensor: keep at least one of `uni`, `bi` and `tri`, or no modality is used")
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
        count = len(task.modalities)
        return super().applies_to(task, options) or _too_large(
            count, options.get("features", FEATURES), options.get("outputs", OUTPUTS)
        )


def _too_large(count: int, features: int, outputs: int) -> str | None:
    weights = outputs * (features + 1) ** count
    if weights <= MOST_WEIGHTS:
        return None
    return (
        f"{count} modalities of {features} features need {weights:.2g} weights, more than {MOST_WEIGHTS:.0e}: "
        "lower `features`, or use `low_rank`, which models the same interactions"
    )


def _blocks(count: int, features: int, kept: list[bool]) -> Tensor:
    """Which entries of the weight to keep, `[D, .., D, 1]`; an entry's order is its number of non-constant indices."""
    index = torch.arange(features + 1) > 0
    order = sum(index.long().view([-1 if axis == m else 1 for axis in range(count)]) for m in range(count))
    return torch.tensor(kept)[order].unsqueeze(-1)
