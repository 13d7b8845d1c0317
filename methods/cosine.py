"""Coordination by cosine similarity."""

from torch import Tensor
from torch.nn import functional as F

from datamodules.spec import Batch, Task
from methods import Recipe, register
from methods.parts.coordination import Pairwise, row_mean


@register("cosine")
class Cosine(Pairwise):
    """Pull paired codes to the same direction: `1 - cos`, beside the task loss.

    Nothing pushes codes apart: without labels (`supervised = false`) a constant code has loss 0, the codes collapse,
    and the record says so.

    Args:
        supervised: Train on task and coordination together.
        weight: Of the coordination loss, beside the task loss.
        components: Width of a code; 0 means the recipe's width.
    """

    family = "coordination"

    def __init__(
        self, task: Task, recipe: Recipe, *, supervised: bool = True, weight: float = 0.1, components: int = 0
    ) -> None:
        super().__init__(task, recipe, components, supervised, weight)

    def pair_loss(self, a: Tensor, b: Tensor, batch: Batch, rows: Tensor) -> Tensor:
        return row_mean(1 - F.cosine_similarity(a, b, dim=-1, eps=1e-8))
