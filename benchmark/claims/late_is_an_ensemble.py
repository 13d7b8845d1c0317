"""Late fusion where modalities are independent given the class."""

from benchmark.judging import Claim, Difference, claim, within


@claim("late_is_an_ensemble")
def late_is_an_ensemble() -> Claim:
    """Where modalities are independent given the class, late fusion equals additive fusion."""
    return Claim(
        source="Lecture on multimodal representation: late fusion as an ensemble",
        entries=("late", "additive"),
        datasets=("interactions_enhancement",),
        rules=(within("late less additive", Difference("late", "additive"), 0.02),),
    )
