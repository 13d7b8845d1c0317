"""Whom a skewed mean of very many centres looks at."""

from benchmark.judging import Claim, Number, above, claim


@claim("nearest_centers_count")
def nearest_centers_count() -> Claim:
    """With very many centres the skewed mean looks at the nearest ones only."""
    return Claim(
        source="Skewed-mean centre regularisers: the skew, Theorem 1 and its use at large scale",
        experiment="benchmark.claims.nearest_centers_count:measure",
        rules=(above("share of R1's pull that comes from the nearest tenth", Number("share"), 0.9, size=0.02),),
        caveat="1,000 random centres in 64 dimensions, gamma = 16: the default of the methods here.",
    )


def measure(seed: int) -> dict[str, float]:
    """The gradient of R1 with respect to cosines, which is what pulls."""
    import torch
    import torch.nn.functional as F

    from methods.functional.centers import log_exp_mean

    centers = F.normalize(torch.randn(1000, 64, generator=torch.Generator().manual_seed(seed)).double(), dim=1)
    cosines = (centers @ centers.T)[~torch.eye(1000, dtype=torch.bool)].view(1000, 999).requires_grad_()
    log_exp_mean(cosines, 16.0, dim=1).mean().backward()
    assert cosines.grad is not None
    nearest = cosines.detach().topk(100, dim=1).indices
    return {"share": float(cosines.grad.gather(1, nearest).sum() / cosines.grad.sum())}
