"""What the potential of a denoising autoencoder tells apart."""

from benchmark.judging import Claim, Number, above, claim


@claim("emma_potential_separates")
def emma_potential_separates() -> Claim:
    """EMMA's potential separates clean from noisy digits, and seen from unseen ones."""
    return Claim(
        source="Werenne 2019, EMMA: experiment 2, Figs. 10-11",
        experiment="benchmark.claims.emma_potential_separates:measure",
        rules=(
            above("AUROC, clean against noise of .5", Number("noisy"), 0.9, size=0.02),
            above("AUROC, zeros against the unseen digit that is hardest", Number("unseen"), 0.9, size=0.02),
        ),
        caveat="Trained on the zeros of scikit-learn's digits; the source used MNIST.",
    )


def measure(seed: int) -> dict[str, float]:
    """One autoencoder of 64 hidden units on 120 zeros."""
    import torch
    from sklearn.datasets import load_digits

    from benchmark.studies.energy import NOISES, digit_run

    pixels, classes = load_digits(return_X_y=True)
    found = digit_run(torch.tensor(pixels).float() / 16, torch.tensor(classes), 120, 64, 0.3, seed)
    return {"noisy": found["auroc"][NOISES.index(0.5)], "unseen": min(found["unseen"])}
