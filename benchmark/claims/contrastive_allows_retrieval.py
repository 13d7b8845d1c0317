"""Finding the other modality of a row by its code."""

from benchmark.judging import Claim, Number, above, claim
from benchmark.judging.readings import summary

_RECALL = summary("class_recall_at_1")


@claim("contrastive_allows_retrieval")
def contrastive_allows_retrieval() -> Claim:
    """Contrastive codes let one modality retrieve the other."""
    return Claim(
        source="Lecture on multimodal representation: contrastive coordination; Radford et al. 2021",
        entries=("contrastive",),
        datasets=("digit_halves", "av_digits"),
        rules=(
            above("share of rows whose nearest code is of their class", Number(_RECALL, "contrastive"), 0.5, size=0.05),
        ),
    )
