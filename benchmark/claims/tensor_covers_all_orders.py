"""Interactions up to the third order."""

from benchmark.judging import Claim, Difference, Number, above, below, claim
from benchmark.judging.readings import gap_to_optimum

_SECOND = "tensor[orders=0+1+2]"


@claim("tensor_covers_all_orders")
def tensor_covers_all_orders() -> Claim:
    """Tensor fusion covers interactions of all orders up to three."""
    return Claim(
        source="Lecture on multimodal representation: tensor fusion",
        entries=("tensor", {"name": "tensor", "orders": [0, 1, 2]}),
        datasets=("interactions_parity3",),
        rules=(
            below("distance to the optimum of a parity of three", Number(gap_to_optimum, "tensor"), 0.03),
            above("all orders less orders up to two", Difference("tensor", _SECOND), 0.3, size=0.1),
        ),
    )
