"""EMMA against the model it is inserted into."""

from benchmark.judging import Claim, Difference, above, claim


@claim("emma_is_robust")
def emma_is_robust() -> Claim:
    """EMMA makes a trained model lose less when modalities are corrupted."""
    return Claim(
        source="Werenne 2019, EMMA: abstract and the experiments on robustness",
        entries=("emma", "concat"),
        datasets=("digit_halves", "multi_digits", "av_digits"),
        rules=(above("drop under corruption, concat's less emma's", Difference("emma", "concat", "drop")),),
        caveat="emma sees corrupted rows in training and concat does not; the fair twin is emma_beats_augmentation.",
    )
