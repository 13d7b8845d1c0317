"""Zero-shot, as CLIP has it."""

from benchmark.judging import Claim, Number, above, claim
from benchmark.judging.readings import clean


@claim("contrastive_names_unseen_classes")
def contrastive_names_unseen_classes() -> Claim:
    """Contrastive codes name classes that training never had, by their prompts."""
    return Claim(
        source="Lecture on multimodal representation: contrastive coordination; Radford et al. 2021",
        entries=("contrastive",),
        datasets=({"name": "shapes_caption", "candidates": "unseen"},),
        matrix="zero_shot",
        rules=(above("accuracy among eight unseen combinations", Number(clean, "contrastive"), 0.5, size=0.05),),
        caveat="Chance is .125; whoever knows the colour alone, or the shape alone, has .5.",
    )
