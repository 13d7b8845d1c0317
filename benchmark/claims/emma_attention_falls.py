"""EMMA's attention under noise."""

from benchmark.judging import Claim, Number, below, claim
from benchmark.judging.readings import audit


@claim("emma_attention_falls")
def emma_attention_falls() -> Claim:
    """The attention that EMMA gives a modality falls as that modality gets noisier."""
    return Claim(
        source="Werenne 2019, EMMA: low-energy (normal) modes get more attention",
        entries=("emma",),
        datasets=("digit_halves", "multi_digits", "av_digits"),
        rules=(below("rank correlation of weight and severity", Number(audit, "emma"), -0.5, size=0.2),),
    )
