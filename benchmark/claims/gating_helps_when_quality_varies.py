"""Gates where some rows have a bad modality."""

from benchmark.judging import Claim, Difference, above, claim


@claim("gating_helps_when_quality_varies")
def gating_helps_when_quality_varies() -> Claim:
    """Gated fusion beats concatenation when the quality of the modalities varies from row to row."""
    return Claim(
        source="Lecture on multimodal representation: gated fusion",
        entries=("gated", "concat"),
        datasets=("av_digits_degraded",),
        rules=(above("gated less concat", Difference("gated", "concat")),),
    )
