"""Correlation on held-out rows."""

from benchmark.judging import Claim, Contrast, above, claim
from benchmark.judging.readings import summary


@claim("deep_cca_finds_more")
def deep_cca_finds_more() -> Claim:
    """Deep CCA finds more correlation than linear CCA, on rows it was not fitted to."""
    return Claim(
        source="Lecture on multimodal representation: CCA and deep CCA; Andrew et al. 2013",
        entries=({"name": "cca", "views": "encoded"}, "dcca"),
        datasets=("multi_digits", "digit_halves"),
        rules=(
            above(
                "sum of the leading correlations on test rows, dcca's less cca's",
                Contrast("dcca", "cca[encoded]", summary("correlation_sum")),
                size=0.5,
            ),
        ),
    )
