"""Entropies, bounds and the partial information decomposition against what is known exactly."""

import itertools
import math

import pytest
import torch

from methods.functional.information import (
    club_bound,
    dv_bound,
    entropies,
    infonce_bound,
    nwj_bound,
    pid,
)


def table(function: dict[tuple[int, int], int], x1: int = 2, x2: int = 2, y: int = 4) -> torch.Tensor:
    p = torch.zeros(x1, x2, y, dtype=torch.float64)
    for (a, b), value in function.items():
        p[a, b, value] += 1 / len(function)
    return p


bits = list(itertools.product((0, 1), repeat=2))
KNOWN = {  # bits: R, U1, U2, S
    "xor": (table({(a, b): a ^ b for a, b in bits}), (0, 0, 0, 1)),
    "and": (table({(a, b): a & b for a, b in bits}), (0.311278, 0, 0, 0.5)),
    "redundant": (table({(0, 0): 0, (1, 1): 1}), (1, 0, 0, 0)),
    "unique": (table({(a, b): a for a, b in bits}), (0, 1, 0, 0)),
    "copy": (table({(a, b): 2 * a + b for a, b in bits}), (0, 1, 1, 0)),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_tables(name: str) -> None:
    p, expected = KNOWN[name]
    found = pid(p)
    assert [float(found[k]) for k in ("R", "U1", "U2", "S")] == pytest.approx(expected, abs=1e-5)


def random_table(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    p = torch.rand(shape, generator=generator, dtype=torch.float64) ** 2
    return p / p.sum()


def test_entropies_of_counts_are_those_of_their_shares() -> None:
    counts = torch.tensor([[30, 10], [0, 60]])
    expected = entropies(counts.double() / 100)
    for given in (counts, counts.double(), counts.float() / 7):
        assert {k: float(v) for k, v in entropies(given).items()} == pytest.approx(
            {k: float(v) for k, v in expected.items()}, abs=1e-6
        )
    assert float(entropies(torch.ones(2, 2) * 25)["HX"]) == pytest.approx(1)


@pytest.mark.parametrize("wrong", [[[0.5, -0.1], [0.3, 0.3]], [[0.0, 0.0]], [[math.nan, 1.0]], [[math.inf, 1.0]]])
def test_entropies_refuse_what_is_no_distribution(wrong: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="non-negative probabilities or counts"):
        entropies(torch.tensor(wrong))


@pytest.mark.parametrize("seed", range(4))
def test_pid_is_consistent(seed: int) -> None:
    p = random_table(seed, 3, 2, 3)
    found = pid(p)
    assert all(float(found[k]) > -1e-6 for k in ("R", "U1", "U2", "S"))
    assert float(found["R"] + found["U1"] + found["U2"] + found["S"]) == pytest.approx(float(found["I12"]), abs=1e-9)
    one = entropies(p.sum(dim=1))["MI"]
    assert float(found["R"] + found["U1"]) == pytest.approx(float(one), abs=1e-9)
    swapped = pid(p.transpose(0, 1))
    assert float(swapped["U1"]) == pytest.approx(float(found["U2"]), abs=1e-5)


def test_binary_pid_equals_direct_minimisation() -> None:
    """For 2x2x2 tables q has one free number per y: a grid finds the minimum."""
    p = random_table(11, 2, 2, 2)
    sign = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    steps = []
    for y in range(2):
        low = float(-torch.minimum(p[0, 0, y], p[1, 1, y]))
        high = float(torch.minimum(p[0, 1, y], p[1, 0, y]))
        steps.append(torch.linspace(low, high, 401, dtype=torch.float64))
    s, t = (v[..., None, None] for v in torch.meshgrid(*steps, indexing="ij"))
    q = torch.stack([p[..., 0] + s * sign, p[..., 1] + t * sign], dim=-1).clamp_min(0)  # [401, 401, 2, 2, 2]
    log = torch.special.xlogy(q, q).sum(dim=(2, 3, 4))
    pairs, prior = q.sum(dim=4), q.sum(dim=(2, 3))
    log -= torch.special.xlogy(pairs, pairs).sum(dim=(2, 3)) + torch.special.xlogy(prior, prior).sum(dim=2)
    best = float(log.min()) / math.log(2)
    found = pid(p)
    assert float(found["I12"] - found["S"]) == pytest.approx(best, abs=2e-5)


def test_markov_chain_has_no_unique_and_no_synergy() -> None:
    """X1 -> X2 -> Y: X2 knows all that X1 knows of Y."""
    x12, y_of_2 = random_table(1, 3, 3), random_table(2, 3, 2)
    p = x12[:, :, None] * (y_of_2 / y_of_2.sum(dim=1, keepdim=True))[None]
    found = pid(p)
    assert float(found["U1"]) == pytest.approx(0, abs=1e-5) and float(found["S"]) == pytest.approx(0, abs=1e-5)


def test_bounds_on_a_gaussian() -> None:
    torch.manual_seed(0)
    n, rho = 512, 0.9
    x = torch.randn(n, dtype=torch.float64)
    y = rho * x + math.sqrt(1 - rho**2) * torch.randn(n, dtype=torch.float64)
    truth = -0.5 * math.log(1 - rho**2)
    f = -((y[None] - rho * x[:, None]) ** 2) / (2 * (1 - rho**2)) + y[None] ** 2 / 2 + truth
    for bound in (infonce_bound, dv_bound, nwj_bound):
        assert float(bound(f)) == pytest.approx(truth, abs=0.12)
    assert float(club_bound(f)) > truth


def test_infonce_never_exceeds_its_cap() -> None:
    f = 1e3 * torch.eye(32, dtype=torch.float64)
    assert float(infonce_bound(f)) <= math.log(32) + 1e-12
    assert float(infonce_bound(torch.zeros(32, 32))) == pytest.approx(0, abs=1e-6)
