"""Continuous against discrete attention on questions about images."""

from benchmark.judging import Claim, Difference, claim, within


@claim("continuous_equals_discrete")
def continuous_equals_discrete() -> Claim:
    """Continuous attention answers questions about images as well as discrete attention."""
    return Claim(
        source="Farinhas 2021, Multimodal continuous visual attention (thesis), VQA results",
        entries=("softmax_attention", "continuous_softmax", "continuous_sparsemax"),
        datasets=({"name": "easy_vqa", "part": 0.25},),
        matrix="attention",
        cap=5,  # two to three minutes a cell
        rules=(
            within("continuous softmax less softmax", Difference("continuous_softmax", "softmax_attention"), 0.02),
            within("continuous sparsemax less softmax", Difference("continuous_sparsemax", "softmax_attention"), 0.02),
        ),
        caveat="easy_vqa instead of VQA-v2, whose images are not on a fresh machine.",
    )
