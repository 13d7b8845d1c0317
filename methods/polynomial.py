"""Polynomial fusion: all terms up to a given order in the encodings."""

from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, ClassVar

import torch
from msgspec import Meta
from torch import Tensor, nn

from datamodules.options import Count
from datamodules.spec import Task
from methods import Method, Recipe, register
from methods.functional.fusion import affine_factors, polynomial, polynomial2
from methods.parts.search import OneOf, Space


@register("polynomial")
class Polynomial(Method):
    """Model every unimodal term and every interaction up to a given order.

    Order 2 has one explicit block per modality and per pair of modalities; it has no squares within a modality, which
    an encoder can learn by itself. A higher order P is in CP form, `sum_r prod_{p<=P} (A_{p,r} [1, z_1, .., z_M])`, and
    holds every monomial of total degree <= P.

    Source: Hou et al., 2019 (the CP form).

    Args:
        order: P (order 1 is `additive`).
        rank: Of the CP form, per output; not used by order 2.
    """

    family = "fusion"
    search: ClassVar[Mapping[str, Space]] = {"rank": OneOf((2, 4, 8, 16, 32))}
    checked = ({}, {"order": 3}, {"order": 4, "rank": 3})

    def __init__(self, task: Task, recipe: Recipe, *, order: Annotated[int, Meta(ge=2)] = 2, rank: Count = 8) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)
        self.order = order
        self.rank = rank
        width, count = recipe.width, len(task.modalities)
        if order == 2:
            self.joint = nn.Linear(count * width, width)
            self.pairs = list(combinations(range(count), 2))
            std = (len(self.pairs) * width**2) ** -0.5
            self.pair_weights = nn.ParameterList(torch.randn(width, width, width) * std for _ in self.pairs)
        else:
            # All factors of all ranks in one matrix product; the bias is the constant's coordinate.
            self.factors = nn.Linear(count * width, order * rank * width)
            self._start()

    def _start(self) -> None:
        """Factors of unit variance; from order 4 on around 1, or their product would have heavy tails."""
        fan = self.factors.in_features
        if self.order < 4:
            nn.init.normal_(self.factors.weight, std=(fan + 1) ** -0.5)
            nn.init.normal_(self.factors.bias, std=(fan + 1) ** -0.5)
        else:
            nn.init.normal_(self.factors.weight, std=(self.order * fan) ** -0.5)
            nn.init.ones_(self.factors.bias)
        with torch.no_grad():  # the first factor carries the weight 1 / sqrt(r) of each rank, with alternating signs
            first = self.factors.weight.view(self.order, self.rank, -1, fan)[0]
            constant = self.factors.bias.view(self.order, self.rank, -1)[0]
            sign = 1 - 2 * (torch.arange(self.rank) % 2) if self.order >= 4 else torch.ones(self.rank)
            first.mul_((sign * self.rank**-0.5)[:, None, None])
            constant.mul_((sign * self.rank**-0.5)[:, None])

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        if self.order == 2:
            weights = self.joint.weight.split(z.shape[-1], dim=1)
            pair_weights = dict(zip(self.pairs, self.pair_weights, strict=True))
            return polynomial2(z.unbind(dim=1), weights, pair_weights, self.joint.bias)
        return polynomial(z.unbind(dim=1), affine_factors(self.factors, self.order, self.rank))
