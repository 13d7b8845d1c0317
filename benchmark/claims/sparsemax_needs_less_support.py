"""How much of the image has any attention."""

from benchmark.judging import Claim, Contrast, below, claim
from benchmark.judging.readings import summary


@claim("sparsemax_needs_less_support")
def sparsemax_needs_less_support() -> Claim:
    """Continuous sparsemax attends to less of the image than continuous softmax."""
    pair = ("continuous_sparsemax", "continuous_softmax")
    return Claim(
        source="Martins et al. 2020; Farinhas 2021 (thesis): densities with bounded support",
        entries=pair,
        datasets=("shapes_count", {"name": "easy_vqa", "part": 0.25}),
        matrix="attention",
        rules=(below("share of cells with attention", Contrast(*pair, summary("attention/image/support")), size=0.05),),
    )
