"""Our own: does a clean ranking tell who is robust?"""

from benchmark.judging import Agreement, Claim, below, claim


@claim("robust_order_differs")
def robust_order_differs() -> Claim:
    """The order of methods by robustness is not their order by clean score."""
    return Claim(
        source="Ours",
        entries="all",
        datasets=("digit_halves", "multi_digits", "multi_digits_hard"),
        rules=(below("rank correlation of clean score and drop, over methods", Agreement("clean", "drop"), 0.5),),
        cap=5,
        caveat="0.5 rather than 0: orders that agree by half would still be a poor guide to each other.",
    )
