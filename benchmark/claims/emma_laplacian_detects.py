"""The sign of the Laplacian as a detector."""

from benchmark.judging import Claim, Number, above, claim


@claim("emma_laplacian_detects")
def emma_laplacian_detects() -> Claim:
    """The Laplacian of EMMA's potential tells abnormal points from normal ones."""
    return Claim(
        source="Werenne 2019, EMMA: the normal/abnormal classifier eta, eqs. 10-11",
        experiment="benchmark.claims.emma_laplacian_detects:measure",
        rules=(
            above("AUROC far from a circle", Number("circle"), 0.5, size=0.05),
            above("AUROC far from a spiral", Number("spiral"), 0.5, size=0.05),
        ),
    )


def measure(seed: int) -> dict[str, float]:
    """The source's experiment 1 on two of its manifolds; below .5 is the wrong way round."""
    from benchmark.studies.energy import manifold_study

    return {name: manifold_study(name, seed)[1]["far"].laplacian for name in ("circle", "spiral")}
