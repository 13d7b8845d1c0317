"""Multiplicative fusion: an element-wise product of projections, or a bilinear map of every pair of modalities."""

from collections.abc import Mapping
from itertools import combinations
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from datamodules.spec import Task
from methods import Method, Recipe, register
from methods.functional.fusion import hadamard, pairwise
from methods.parts.search import OneOf, Space


@register("multiplicative")
class Multiplicative(Method):
    """Multiply projections element-wise, or map every pair of modalities bilinearly.

    `kind = "hadamard"` is `prod_m (P_m z_m + c_m)`, of order M in the encodings; an absent modality contributes its
    constant `c_m`. `kind = "bilinear"` is `sum_{i<j} z_i^T W_ij z_j + b`, of order 2 for any number of modalities and
    without unimodal terms: with one modality present it says the same of every row. `polynomial` adds those terms.

    Source: Kim et al., 2017 (Hadamard products); Tenenbaum and Freeman, 2000 (bilinear models).

    Args:
        kind: "hadamard" or "bilinear", as above.
    """

    family = "fusion"
    search: ClassVar[Mapping[str, Space]] = {"kind": OneOf(("hadamard", "bilinear"))}
    checked = ({}, {"kind": "bilinear"})

    def __init__(self, task: Task, recipe: Recipe, *, kind: Literal["hadamard", "bilinear"] = "hadamard") -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)
        self.kind = kind
        width, count = recipe.width, len(task.modalities)
        if kind == "hadamard":
            self.projections = nn.ParameterList(torch.randn(width, width) * width**-0.5 for _ in range(count))
            # Not 0: a factor would pass no gradient wherever the other one is zero.
            self.constants = nn.ParameterList(torch.ones(width) for _ in range(count))
        else:
            self.pairs = list(combinations(range(count), 2))
            std = (len(self.pairs) * width**2) ** -0.5
            self.pair_weights = nn.ParameterList(torch.randn(width, width, width) * std for _ in self.pairs)
            self.bias = nn.Parameter(torch.zeros(width))

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        if self.kind == "hadamard":
            return hadamard(z.unbind(dim=1), list(self.projections), list(self.constants))
        return pairwise(z.unbind(dim=1), dict(zip(self.pairs, self.pair_weights, strict=True)), self.bias)
