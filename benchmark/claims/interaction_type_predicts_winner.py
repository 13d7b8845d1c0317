"""Which fusion wins on which kind of interaction."""

from benchmark.judging import Claim, Difference, above, claim, within


@claim("interaction_type_predicts_winner")
def interaction_type_predicts_winner() -> Claim:
    """The type of a task's interaction predicts which fusion wins."""
    product = [Difference("multiplicative", "additive", on=(f"interactions_{kind}",)) for kind in ("xor", "mux")]
    return Claim(
        source="Lecture on multimodal representation: taxonomy of interactions",
        entries=("multiplicative", "additive"),
        datasets=("interactions_xor", "interactions_mux", "interactions_enhancement"),
        rules=(
            above("emergence (xor), multiplicative less additive", product[0], 0.1, size=0.05),
            above("dominance (mux), multiplicative less additive", product[1], 0.1, size=0.05),
            within(
                "enhancement, multiplicative less additive",
                Difference("multiplicative", "additive", on=("interactions_enhancement",)),
                0.05,
            ),
        ),
    )
