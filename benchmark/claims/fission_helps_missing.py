"""Fission when modalities go missing."""

from benchmark.judging import Claim, Difference, above, claim


@claim("fission_helps_missing")
def fission_helps_missing() -> Claim:
    """Factorised and clustered fission help when modalities go missing."""
    return Claim(
        source="Lecture on multimodal representation: fission",
        entries=("factorized", "clustered", "concat"),
        datasets=("digit_halves", "multi_digits", "av_digits"),
        rules=(
            above("modalities missing, factorized less concat", Difference("factorized", "concat", "missing")),
            above("modalities missing, clustered less concat", Difference("clustered", "concat", "missing")),
        ),
    )
