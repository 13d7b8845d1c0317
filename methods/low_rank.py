"""Low-rank tensor fusion: the interactions of `tensor` at a cost linear in the number of modalities."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from datamodules.options import Count
from datamodules.spec import Task
from methods import Method, Recipe, register
from methods.functional.fusion import affine_factors, low_rank
from methods.parts.search import OneOf, Space


@register("low_rank")
class LowRank(Method):
    """Model the interactions of every subset of the modalities, with a weight of low rank.

    `h_o = b_o + sum_r w_r prod_m <u_{m,r,o}, [1, z_m]>`: tensor fusion with a weight in CP form, its rank per output.

    Source: Liu et al., 2018.

    **Differs from the paper**: the factors of a modality are one `Linear`, whose bias belongs to the constant, and the
    initialisation keeps the variance of h at 1; the published one lets it vanish with the number of modalities.

    Args:
        rank: Terms of the CP form. For two modalities, width + 1 terms represent any weight.
        init: "unit": factors of unit variance. "ones": factors around 1, so that the map starts additive and the
            product of many factors has no heavy tails. "auto": "unit" up to three modalities, "ones" from four on.
    """

    family = "fusion"
    search: ClassVar[Mapping[str, Space]] = {"rank": OneOf((2, 4, 8, 16, 32))}
    checked = ({}, {"init": "ones"})

    def __init__(
        self, task: Task, recipe: Recipe, *, rank: Count = 8, init: Literal["auto", "unit", "ones"] = "auto"
    ) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)
        self.rank = rank
        width, count = recipe.width, len(task.modalities)
        self.rank_weights = nn.Parameter(torch.full((rank,), rank**-0.5))
        self.bias = nn.Parameter(torch.zeros(width))
        ones = init == "ones" or (init == "auto" and count >= 4)
        self.factors = nn.ModuleList(_factor(width, rank * width, count, ones) for _ in range(count))
        if ones:
            with torch.no_grad():  # alternating signs: otherwise the constants of all ranks add up
                self.rank_weights[1::2] *= -1

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        factors = [affine_factors(factor, self.rank) for factor in self.factors if isinstance(factor, nn.Linear)]
        return low_rank(z.unbind(dim=1), factors, self.rank_weights, self.bias)


def _factor(width: int, outputs: int, count: int, ones: bool) -> nn.Linear:
    """The factors of one modality, for all ranks and outputs; the bias belongs to the appended constant."""
    factor = nn.Linear(width, outputs)
    std = (count * width) ** -0.5 if ones else (width + 1) ** -0.5
    nn.init.normal_(factor.weight, std=std)
    nn.init.normal_(factor.bias, mean=1.0 if ones else 0.0, std=0.0 if ones else std)
    return factor
