"""EMMA against training on the same corruptions without its attention."""

from benchmark.judging import Claim, Difference, above, claim


@claim("emma_beats_augmentation")
def emma_beats_augmentation() -> Claim:
    """EMMA is more robust than the same base that spends the same total of steps on corrupted rows alone."""
    return Claim(
        source="Werenne 2019, EMMA: robustness is ascribed to the attention (section on training)",
        entries=("emma", "augmented", "modality_dropout"),
        datasets=("digit_halves", "multi_digits", "av_digits"),
        rules=(
            above("drop, augmented's less emma's", Difference("emma", "augmented", "drop")),
            above("drop, modality_dropout's less emma's", Difference("emma", "modality_dropout", "drop")),
        ),
    )
