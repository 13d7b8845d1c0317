"""Coordination by a kernel."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from datamodules.spec import Batch, Task
from methods import Recipe, register
from methods.functional.coordination import similarity
from methods.parts.coordination import Pairwise, row_mean

KINDS = ("linear", "polynomial", "rbf", "exponential", "laplacian")


@register("kernel")
class Kernel(Pairwise):
    """Pull paired codes together under a kernel: `1 - k(a, b)` or `-log k(a, b)`, beside the task loss.

    Codes are normalised first: linear and polynomial kernels are unbounded and would only grow norms. On the unit
    sphere the linear kernel is the cosine, and the polynomial one is divided by its maximum. Without labels
    (`supervised = false`) the codes collapse, and the record says so.

    Args:
        kind: "linear", "polynomial", "rbf", "exponential" (L2 distance) or "laplacian" (L1 distance).
        scale: sigma of rbf, length of exponential, 1/gamma of laplacian; gamma of polynomial.
        degree: Of the polynomial.
        loss: "one_minus" is `1 - k`; "log" is `-log k`, for the rbf a scaled squared error.
        supervised: Train on task and coordination together.
        weight: Of the coordination loss, beside the task loss.
        components: Width of a code; 0 means the recipe's width.
    """

    family = "coordination"

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        kind: Literal["linear", "polynomial", "rbf", "exponential", "laplacian"] = "rbf",
        scale: float = 1.0,
        degree: int = 2,
        loss: Literal["one_minus", "log"] = "one_minus",
        supervised: bool = True,
        weight: float = 0.1,
        components: int = 0,
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"kernel: `kind` must be one of {', '.join(KINDS)}, got {kind!r}")
        if loss not in ("one_minus", "log"):
            raise ValueError(f"kernel: `loss` must be 'one_minus' or 'log', got {loss!r}")
        if loss == "log" and kind in ("linear", "polynomial"):
            raise ValueError(f"kernel: `loss` = 'log' needs a positive kernel, and {kind!r} is not one")
        if not scale > 0:
            raise ValueError(f"kernel: `scale` must be > 0, got {scale!r}")
        if degree < 1:
            raise ValueError(f"kernel: `degree` must be an integer >= 1, got {degree!r}")
        super().__init__(task, recipe, components, supervised, weight)
        self.kind, self.scale, self.degree, self.loss = kind, scale, degree, loss

    def pair_loss(self, a: Tensor, b: Tensor, batch: Batch, rows: Tensor) -> Tensor:
        k = self.similarities(F.normalize(a, dim=-1), F.normalize(b, dim=-1))
        # log k is computed from k, which underflows only for distances that unit rows do not have.
        return row_mean(1 - k if self.loss == "one_minus" else -torch.log(k))

    def similarities(self, a: Tensor, b: Tensor) -> Tensor:
        """k(a_i, b_i) of paired unit rows, 1 when they are equal."""
        a, b = a.unsqueeze(1), b.unsqueeze(1)  # a row each: paired, not all pairs
        match self.kind:
            case "linear":
                k = similarity(a, b, "linear")
            case "polynomial":
                k = similarity(a, b, "polynomial", degree=self.degree, gamma=self.scale, coef0=1.0)
                k = k / (self.scale + 1) ** self.degree
            case "rbf":
                k = similarity(a, b, "rbf", sigma=self.scale)
            case "exponential":
                k = similarity(a, b, "exponential", length=self.scale)
            case _:
                k = similarity(a, b, "laplacian", gamma=1 / self.scale)
        return k[:, 0, 0]
