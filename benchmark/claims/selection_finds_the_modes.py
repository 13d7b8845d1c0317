"""How many modes are chosen where there are several places to look at."""

from benchmark.judging import Claim, Number, above, claim, within

SIDE, ROWS, MOST = 14, 64, 5


@claim("selection_finds_the_modes")
def selection_finds_the_modes() -> Claim:
    """Where several places matter, the selection chooses more components, and as many as there are places."""
    return Claim(
        source="Farinhas 2021, Multimodal continuous visual attention (thesis), chapter 5: choice of K",
        experiment="benchmark.claims.selection_finds_the_modes:measure",
        rules=(
            above("components chosen on maps with three places less with one", Number("more"), 1.0, size=0.2),
            within("components chosen less places, one place", Number("excess_1"), 0.5),
            within("components chosen less places, three places", Number("excess_3"), 0.5),
        ),
        caveat="Attention maps are planted (blobs of random place and size on 14 x 14 cells, speckled by 20 %): so the "
        "number of places is known, which the maps of a trained model do not tell.",
    )


def measure(seed: int) -> dict[str, float]:
    """The mean number of components chosen over maps with one and with three blobs."""
    one, three = (_chosen(places, seed) for places in (1, 3))
    return {"more": three - one, "excess_1": one - 1, "excess_3": three - 3}


def _chosen(places: int, seed: int) -> float:
    import torch

    from methods.functional.attention import cell_centers
    from methods.functional.mixture import select_mixture

    generator = torch.Generator().manual_seed(seed)
    points = cell_centers((SIDE, SIDE)).double()
    # One of the quadrants each, so that blobs never fall together.
    quadrants = torch.stack([torch.randperm(4, generator=generator)[:places] for _ in range(ROWS)])
    corners = torch.stack([quadrants % 2, quadrants // 2], -1).double()
    centers = 0.25 + 0.5 * corners + 0.1 * (torch.rand(corners.shape, generator=generator).double() - 0.5)
    width = 0.05 + 0.03 * torch.rand(ROWS, places, 1, generator=generator).double()
    far = (points - centers.unsqueeze(2)).square().sum(-1)  # [rows, places, cells]
    maps = (-far / (2 * width.square())).exp().sum(1)
    maps = maps * (1 + 0.2 * torch.randn(maps.shape, generator=generator).double()).clamp_min(0)
    _, chosen = select_mixture(points, maps / maps.sum(-1, keepdim=True), MOST, 1.0)
    return float(chosen.double().mean())
