"""A claim of a few small cells and an experiment that takes no time, for `claims run` to be killed in."""

from __future__ import annotations

from benchmark.judging import Claim, Contrast, Number, above, claim
from benchmark.judging.readings import clean


def measure(seed: int) -> dict[str, float]:
    """The experiment."""
    return {"gain": 1.0 + seed}


@claim("small_claim")
def small_claim() -> Claim:
    """Nothing that anybody says."""
    return Claim(
        source="a test",
        matrix="matrix.toml",
        entries=("concat", "late"),
        datasets=("interactions_xor",),
        experiment="tests.kill.small_claim:measure",
        seeds=2,
        cap=2,
        rules=(
            above("concat's score less late's", Contrast("concat", "late", clean)),
            above("what the experiment gives", Number("gain")),
        ),
    )
