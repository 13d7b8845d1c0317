"""What a sum cannot see and a product can."""

from benchmark.judging import Claim, Difference, Number, above, below, claim
from benchmark.judging.readings import normalised


@claim("additive_misses_emergence")
def additive_misses_emergence() -> Claim:
    """Additive fusion cannot learn an emergent interaction, and multiplicative fusion can."""
    return Claim(
        source="Lecture on multimodal representation: additive and multiplicative fusion, interaction types",
        entries=("additive", "multiplicative"),
        datasets=("interactions_xor",),
        rules=(
            below("additive on xor, chance-normalised", Number(normalised, "additive"), 0.1, size=0.05),
            above("multiplicative less additive", Difference("multiplicative", "additive"), 0.5, size=0.1),
        ),
    )
