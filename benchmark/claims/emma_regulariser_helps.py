"""EMMA's Omega, on and off."""

from benchmark.judging import Claim, Difference, above, claim


@claim("emma_regulariser_helps")
def emma_regulariser_helps() -> Claim:
    """The regulariser that ties attention to normality makes EMMA more robust."""
    return Claim(
        source="Werenne 2019, EMMA: the regulariser Omega, eqs. 22-28",
        entries=("emma", {"name": "emma", "penalty": 0.0}),
        datasets=("digit_halves", "multi_digits", "av_digits"),
        rules=(above("drop without Omega less drop with it", Difference("emma", "emma[penalty=0.0]", "drop")),),
    )
