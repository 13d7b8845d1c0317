"""Our own: is a hidden layer over the concatenation enough?"""

from benchmark.judging import Claim, Share, above, claim


@claim("concat_is_within_the_noise")
def concat_is_within_the_noise() -> Claim:
    """Concatenation with a hidden layer may be the best of all methods on most tasks."""
    return Claim(
        source="Ours",
        entries="all",
        datasets=(
            *("digit_halves", "multi_digits", "multi_digits_hard"),
            *("interactions_xor", "interactions_mux", "interactions_enhancement", "interactions_modulation"),
        ),
        rules=(above("share of datasets on which concat may be the best", Share("concat"), 0.5),),
        cap=5,
    )
