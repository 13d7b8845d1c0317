"""Where attention looks, on scenes whose objects are known."""

from benchmark.judging import Claim, Contrast, above, below, claim
from benchmark.judging.readings import summary


@claim("continuous_maps_are_selective")
def continuous_maps_are_selective() -> Claim:
    """Continuous attention looks more at what is asked for, and at less of the image, than discrete attention."""
    pair = ("continuous_softmax", "softmax_attention")
    return Claim(
        source="Farinhas 2021, Multimodal continuous visual attention (thesis): more interpretable maps",
        entries=pair,
        datasets=("shapes_count", {"name": "easy_vqa", "part": 0.25}),
        matrix="attention",
        cap=5,  # two to three minutes a cell
        rules=(
            above("mass on the asked objects", Contrast(*pair, summary("attention/image/asked")), size=0.05),
            below("entropy of the map", Contrast(*pair, summary("attention/image/entropy")), size=0.1),
        ),
    )
