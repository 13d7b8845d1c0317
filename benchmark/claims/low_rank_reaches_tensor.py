"""Low-rank against tensor fusion."""

from benchmark.judging import Claim, Contrast, Difference, above, below, claim
from benchmark.judging.readings import log_cost


@claim("low_rank_reaches_tensor")
def low_rank_reaches_tensor() -> Claim:
    """Low-rank fusion reaches the score of tensor fusion at a lower cost."""
    return Claim(
        source="Lecture on multimodal representation: low-rank fusion; Liu et al. 2018",
        entries=("low_rank", "tensor"),
        datasets=("interactions_xor", "interactions_mux", "digit_halves", "av_digits"),
        rules=(
            above("clean score, low_rank's less tensor's", Difference("low_rank", "tensor"), -0.02),
            below("logarithm of the ratio of operations", Contrast("low_rank", "tensor", log_cost("flops")), size=0.1),
            below(
                "logarithm of the ratio of parameters",
                Contrast("low_rank", "tensor", log_cost("trainable_parameters")),
                size=0.1,
            ),
        ),
    )
