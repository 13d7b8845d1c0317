"""Mixing: the public vectors, loops written from the equations, absent content, gradients."""

import math

import pytest
import torch

from methods.functional import mixing
from tests.functional.modern_vectors import PRESENT, close, draw, spoiled, vector


def test_film_vector() -> None:
    v, _, wanted = vector("film_0")
    y, scale, shift = mixing.film(v["z"], v["scale_weight"], v["shift_weight"], v["present"])
    close(y, wanted["y"])
    close(scale, wanted["scale"])
    close(shift, wanted["shift"])


def test_film_equals_a_loop_and_ignores_the_absent() -> None:
    z, g, s = draw(4, 3, 5), draw(3, 3, 5, 5, seed=1), draw(3, 3, 5, 5, seed=2)
    y, scale, shift = mixing.film(spoiled(z), g, s, PRESENT)
    for b in range(4):
        for m in range(3):
            a, c = torch.zeros(5, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
            for j in range(3):
                if j != m and PRESENT[b, j]:
                    a, c = a + g[m, j] @ z[b, j], c + s[m, j] @ z[b, j]
            close(scale[b, m], a)
            close(shift[b, m], c)
            close(y[b, m], (1 + a) * z[b, m] + c if PRESENT[b, m] else torch.zeros_like(a))


def test_film_at_zero_is_the_identity() -> None:
    z, zero = draw(4, 3, 5), torch.zeros(3, 3, 5, 5, dtype=torch.float64)
    assert torch.equal(mixing.film(z, zero, zero, torch.ones_like(PRESENT))[0], z)


def test_embrace_vector() -> None:
    v, _, wanted = vector("embrace_0")
    close(mixing.embrace(v["values"], v["present"], v["uniform"]), wanted["sample"])
    close(mixing.embrace(v["values"], v["present"]), wanted["mean"])


def test_embrace_copies_one_present_modality_per_feature() -> None:
    values, uniform = draw(4, 3, 6), torch.rand(4, 6, dtype=torch.float64)
    uniform[:, 0] = 1.0  # what rounding makes of a draw just below
    out = mixing.embrace(spoiled(values), PRESENT, uniform)
    for b in range(4):
        here = [m for m in range(3) if PRESENT[b, m]]
        for c in range(6):
            k = min(math.floor(uniform[b, c] * len(here)), len(here) - 1)
            assert out[b, c] == values[b, here[k], c]


def test_embrace_has_the_mean_as_its_expectation() -> None:
    values = draw(4, 3, 2)
    grid = (torch.arange(60, dtype=torch.float64) + 0.5) / 60
    samples = torch.stack([mixing.embrace(values, PRESENT, u.expand(4, 2)) for u in grid])
    close(samples.mean(dim=0), mixing.embrace(values, PRESENT))


def test_product_of_experts_vector() -> None:
    v, _, wanted = vector("product_of_experts_0")
    mu, log_var, weights = mixing.product_of_experts(v["mu"], v["log_var"], v["present"])
    close(mu, wanted["mu"])
    close(log_var, wanted["log_var"])
    close(weights, wanted["weights"])
    close(mixing.gaussian_kl(mu, log_var), wanted["kl"])


def test_two_unit_experts_and_one_prior() -> None:
    mu, log_var, weights = mixing.product_of_experts(
        torch.ones(1, 2, 1), torch.zeros(1, 2, 1), torch.ones(1, 2, dtype=torch.bool)
    )
    assert mu.item() == pytest.approx(2 / 3) and log_var.item() == pytest.approx(-math.log(3))
    assert weights.tolist() == [pytest.approx([1 / 3, 1 / 3])]


def test_product_of_experts_equals_a_loop() -> None:
    mu, s = draw(4, 3, 5), draw(4, 3, 5, seed=1)
    mean, log_var, weights = mixing.product_of_experts(spoiled(mu), spoiled(s), PRESENT)
    for b in range(4):
        share = torch.zeros(3, dtype=torch.float64)
        for d in range(5):
            precision = 1.0 + sum(math.exp(-s[b, m, d]) for m in range(3) if PRESENT[b, m])
            w = [math.exp(-s[b, m, d]) / precision if PRESENT[b, m] else 0.0 for m in range(3)]
            share += torch.tensor(w, dtype=torch.float64) / 5
            assert mean[b, d].item() == pytest.approx(sum(w[m] * mu[b, m, d].item() for m in range(3)))
            assert log_var[b, d].item() == pytest.approx(-math.log(precision))
        close(weights[b], share)


def test_gaussian_kl_is_torchs() -> None:
    mu, s = draw(4, 5), draw(4, 5, seed=1)
    own = torch.distributions.Normal(mu, (s / 2).exp())
    prior = torch.distributions.Normal(torch.zeros_like(mu), torch.ones_like(mu))
    close(mixing.gaussian_kl(mu, s), torch.distributions.kl_divergence(own, prior).sum(dim=-1))


def test_shared_specific_vector() -> None:
    v, _, wanted = vector("shared_specific_0")
    close(mixing.compose(v["shared"], v["specific"], v["W"], v["present"]), wanted["h"])
    close(mixing.shared_distance(v["shared"], v["present"]), wanted["distance"])


def test_compose_and_distance_equal_loops() -> None:
    s, r, w = draw(4, 3, 5), draw(4, 3, 5, seed=1), draw(5, 10, seed=2)
    h = mixing.compose(spoiled(s), spoiled(r), w, PRESENT)
    distances = []
    for b in range(4):
        here = [m for m in range(3) if PRESENT[b, m]]
        mean = sum((s[b, m] for m in here), torch.zeros(5, dtype=torch.float64)) / len(here)
        for m in range(3):
            close(h[b, m], s[b, m] + w @ torch.cat([s[b, m], r[b, m]]) if m in here else mean)
        distances += [(s[b, i] - s[b, j]).abs().mean() for i in here for j in here if i < j]
    close(mixing.shared_distance(spoiled(s), PRESENT), torch.stack(distances).mean())


def test_no_pair_has_no_distance_but_a_graph() -> None:
    s = draw(2, 3, 5).requires_grad_()
    alone = torch.tensor([[True, False, False], [False, True, False]])
    mixing.shared_distance(s, alone).backward()
    assert s.grad is not None and not s.grad.any()


def test_bottleneck_vector_and_loop() -> None:
    v, _, wanted = vector("bottleneck_0")
    close(mixing.exchange_bottleneck(v["bottlenecks"], v["present"]), wanted["mean"])
    b = draw(4, 3, 2, 5)
    out = mixing.exchange_bottleneck(spoiled(b), PRESENT)
    for row in range(4):
        close(out[row], torch.stack([b[row, m] for m in range(3) if PRESENT[row, m]]).mean(dim=0))


def test_gradients() -> None:
    mu, s, w = (draw(*shape, seed=i).requires_grad_() for i, shape in enumerate([(4, 3, 2), (4, 3, 2), (2, 4)]))
    g = draw(3, 3, 2, 2, seed=5).requires_grad_()
    u = torch.rand(4, 2, dtype=torch.float64)
    check = torch.autograd.gradcheck
    assert check(lambda z, a, b: mixing.film(z, a, b, PRESENT)[0], (mu, g, g.detach().clone().requires_grad_()))
    assert check(lambda z: mixing.embrace(z, PRESENT, u), (mu,))
    assert check(lambda a, b: mixing.product_of_experts(a, b, PRESENT), (mu, s))
    assert check(mixing.gaussian_kl, (mu, s))
    assert check(lambda a, b, c: mixing.compose(a, b, c, PRESENT), (mu, s, w))
    assert check(lambda a: mixing.shared_distance(a, PRESENT), (mu,))
    assert check(lambda a: mixing.exchange_bottleneck(a.unsqueeze(2), PRESENT), (mu,))
