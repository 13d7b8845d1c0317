"""Polynomial fusion: all terms up to a given order in the encodings."""

from itertools import combinations

import torch
from torch import Tensor, nn

from datamodules.spec import Task
from methods import Method, Recipe, register
from methods.functional.fusion import polynomial2, sum_of_products


@register("polynomial")
class Polynomial(Method):
    """Model every unimodal term and every interaction up to a given order.

    Order 2 has one explicit block per modality and per pair of modalities; it has no squares within a modality, which
    an encoder can learn by itself. A higher order P is in CP form, `sum_r prod_{p<=P} (A_{p,r} [1, z_1, .., z_M])`, and
    holds every monomial of total degree <= P.

    Args:
        order: P, at least 2 (order 1 is `additive`).
        rank: Of the CP form, per output; not used by order 2.
    """

    family = "fusion"

    def __init__(self, task: Task, recipe: Recipe, *, order: int = 2, rank: int = 8) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)
        for name, value, least in (("order", order, 2), ("rank", rank, 1)):
            if not isinstance(value, int) or value < least:
                raise ValueError(f"polynomial: `{name}` must be an integer >= {least}, got {value!r}")
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
        """Factors of unit variance; from order 4 on around 1, or their product would have heavy tails (1.4)."""
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
        parts = self.factors(z.flatten(1)).view(len(z), self.order, self.rank, -1)
        return sum_of_products(parts.unbind(dim=1), None, None)
