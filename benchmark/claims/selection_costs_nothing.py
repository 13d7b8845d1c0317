"""Choosing the number of modes at test time."""

from benchmark.judging import Claim, Difference, above, claim


@claim("selection_costs_nothing")
def selection_costs_nothing() -> Claim:
    """Trained with one mode, attention may choose its number of modes at test time without losing accuracy."""
    chosen = "mixture_attention[components=1,select=True]"
    return Claim(
        source="Farinhas 2021, Multimodal continuous visual attention (thesis), test-time mixtures",
        entries=("continuous_softmax", {"name": "mixture_attention", "components": 1, "select": True}),
        datasets=({"name": "easy_vqa", "part": 0.25}, "shapes_count"),
        matrix="attention",
        cap=5,  # two to three minutes a cell
        rules=(above("selected less one mode", Difference(chosen, "continuous_softmax"), -0.02),),
    )
