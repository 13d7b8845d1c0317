"""Coordination by a kernel."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from datamodules.options import Count, Natural, NonNegative, Positive
from datamodules.spec import Batch, Task
from methods import Recipe, register
from methods.functional.coordination import similarity
from methods.parts.coordination import PROBE_RATE, Pairwise, row_mean
from methods.parts.search import LogUniform, Space


@register("kernel")
class Kernel(Pairwise):
    """Pull paired codes together under a kernel: `1 - k(a, b)` or `-log k(a, b)`, beside the task loss.

    Codes are normalised first: linear and polynomial kernels are unbounded and would only grow norms. On the unit
    sphere the linear kernel is the cosine, and the polynomial one is divided by its maximum. Without labels
    (`supervised = false`) the codes collapse, and the record says so. Further options are those of `Pairwise`.

    Args:
        kind: "exponential" is of the L2 distance, "laplacian" of the L1 distance.
        scale: sigma of rbf, length of exponential, 1/gamma of laplacian; gamma of polynomial.
        degree: Of the polynomial.
        loss: "one_minus" is `1 - k`; "log" is `-log k`, for the rbf a scaled squared error.
    """

    family = "coordination"
    search: ClassVar[Mapping[str, Space]] = {"weight": LogUniform(1e-3, 1.0), "scale": LogUniform(0.1, 10.0)}
    checked = (
        {},
        *({"kind": kind} for kind in ("linear", "polynomial", "exponential", "laplacian")),
        {"loss": "log"},
        {"supervised": False},
    )

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        kind: Literal["linear", "polynomial", "rbf", "exponential", "laplacian"] = "rbf",
        scale: Positive = 1.0,
        degree: Count = 2,
        loss: Literal["one_minus", "log"] = "one_minus",
        supervised: bool = True,
        weight: NonNegative = 0.1,
        components: Natural = 0,
        probe_rate: Positive = PROBE_RATE,
    ) -> None:
        if loss == "log" and kind in ("linear", "polynomial"):
            raise ValueError(f"Kernel: `loss` = 'log' needs a positive kernel, and {kind!r} is not one")
        super().__init__(
            task, recipe, supervised=supervised, weight=weight, components=components, probe_rate=probe_rate
        )
        self.kind, self.loss = kind, loss
        self.kernel_options: dict[str, float] = {
            "linear": {},
            "polynomial": {"degree": degree, "gamma": scale, "coef0": 1.0},
            "rbf": {"sigma": scale},
            "exponential": {"length": scale},
            "laplacian": {"gamma": 1 / scale},
        }[kind]
        self.largest = (scale + 1) ** degree if kind == "polynomial" else 1.0

    def pair_loss(self, a: Tensor, b: Tensor, batch: Batch, rows: Tensor) -> Tensor:
        a, b = (F.normalize(x, dim=-1).unsqueeze(1) for x in (a, b))  # a row each: paired, not all pairs
        k = similarity(a, b, self.kind, **self.kernel_options)[:, 0, 0] / self.largest
        # log k is computed from k, which underflows only for distances that unit rows do not have.
        return row_mean(1 - k if self.loss == "one_minus" else -torch.log(k))
