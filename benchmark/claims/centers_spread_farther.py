"""How far regularisers spread centres, alone and in training."""

from benchmark.judging import Claim, Contrast, Number, above, claim
from benchmark.judging.readings import summary

_DISTANCE = summary("centers_min_distance")
_R1 = "skewed_mean"


@claim("centers_spread_farther")
def centers_spread_farther() -> Claim:
    """R1 and R2 spread class centres farther than MHE and Uniformface."""
    trained = "skewed_mean[regularizer={}]".format
    return Claim(
        source="Skewed-mean centre regularisers: the comparison with MHE and Uniformface",
        entries=("skewed_mean", *({"name": "skewed_mean", "regularizer": r} for r in ("r2", "mhe", "uniformface"))),
        datasets=("two_digits",),
        experiment="benchmark.claims.centers_spread_farther:measure",
        rules=(
            above("100 free centres in 8 dimensions, nearest two: R1 less MHE", Number("r1_mhe"), size=0.05),
            above("the same, R1 less Uniformface", Number("r1_uniformface"), size=0.05),
            above("the same, R2 less MHE", Number("r2_mhe"), size=0.05),
            above("trained: R1 less MHE", Contrast(_R1, trained("mhe"), _DISTANCE), size=0.05),
            above("trained: R1 less Uniformface", Contrast(_R1, trained("uniformface"), _DISTANCE), size=0.05),
        ),
    )


def measure(seed: int) -> dict[str, float]:
    """The distance of the two nearest of 100 centres, from one random start, without data."""
    import torch

    from benchmark.studies.centers import OBJECTIVES, spread

    start = torch.randn(100, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))

    def nearest(objective: str) -> float:
        return spread(OBJECTIVES[objective], start.clone(), 1500, [1500])[-1]["min_distance"]

    r1, r2 = nearest("A: r1, gamma 16"), nearest("A: r2, lam 32")
    mhe, uniformface = nearest("A: mhe, s 1"), nearest("A: uniformface")
    return {"r1_mhe": r1 - mhe, "r1_uniformface": r1 - uniformface, "r2_mhe": r2 - mhe}
