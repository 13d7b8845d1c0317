"""Our own: is fusing a broken modality worse than ignoring it?"""

from benchmark.judging import Behind, Claim, above, claim


@claim("corruption_makes_fusing_worse")
def corruption_makes_fusing_worse() -> Claim:
    """With a modality corrupted at severity 5, most plain methods do worse than the other modality alone."""
    return Claim(
        source="Ours",
        entries="all",
        datasets=("digit_halves", "multi_digits_hard"),
        rules=(above("share of plain methods behind the best other modality", Behind(severity=5), 0.5),),
        cap=5,
    )
