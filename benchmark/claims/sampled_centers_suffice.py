"""The regulariser on a sample of the centres."""

from benchmark.judging import Claim, Difference, claim, within


@claim("sampled_centers_suffice")
def sampled_centers_suffice() -> Claim:
    """Regularising a sample of the centres does as well as regularising all."""
    sampled = {"name": "r1", "sample": 8}
    return Claim(
        source="Skewed-mean centre regularisers: sub-sampling for very many classes",
        entries=("skewed_mean", {"name": "skewed_mean", "regularizer": sampled}),
        datasets=("two_digits",),
        rules=(
            within(
                "Recall@1, 8 centres a step less all",
                Difference("skewed_mean[regularizer=r1:sample=8]", "skewed_mean"),
                0.03,
            ),
        ),
    )
