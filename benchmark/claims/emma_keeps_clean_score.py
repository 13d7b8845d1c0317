"""EMMA on clean rows."""

from benchmark.judging import Claim, Difference, above, claim


@claim("emma_keeps_clean_score")
def emma_keeps_clean_score() -> Claim:
    """EMMA keeps the clean score of the model it is inserted into."""
    return Claim(
        source="Werenne 2019, EMMA: without perturbation the performance of the initial model is preserved",
        entries=("emma", "concat"),
        datasets=("digit_halves", "multi_digits", "av_digits"),
        rules=(above("clean score, emma's less concat's", Difference("emma", "concat"), -0.02),),
    )
