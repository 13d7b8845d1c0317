"""EMMA's mathematics against reference vectors, finite differences and the facts of its spec."""

import json
import math
from itertools import permutations
from pathlib import Path

import pytest
import torch
from torch import Tensor

from methods.functional import energy

VECTORS = json.loads((Path(__file__).parents[1] / "references" / "emma.json").read_text())["vectors"]
DTYPES = (torch.float64, torch.float32)


def of_kind(kind: str) -> list[dict]:
    found = [v for v in VECTORS if v["kind"] == kind]
    assert found, f"no vector of kind {kind}"
    return found


def close(got: Tensor, want: object) -> None:
    tolerance = {"rtol": 1e-9, "atol": 1e-11} if got.dtype == torch.float64 else {"rtol": 2e-4, "atol": 2e-5}
    torch.testing.assert_close(got.detach(), torch.tensor(want, dtype=got.dtype), **tolerance)


def symmetric(upper: Tensor, count: int) -> Tensor:
    rows, columns = torch.triu_indices(count, count, 1)
    half = torch.zeros(count, count, dtype=upper.dtype).index_put((rows, columns), upper)
    return half + half.T + torch.eye(count, dtype=upper.dtype)


def random_dae(dim: int, hidden: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    shapes = ((hidden, dim), (hidden,), (dim,))
    W, b_h, b_r = (torch.randn(shape, generator=g, dtype=torch.float64) for shape in shapes)
    return W, b_h, b_r


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vector", of_kind("dae"), ids=lambda v: v["id"])
def test_autoencoder_vectors(vector: dict, dtype: torch.dtype) -> None:
    i, want = vector["inputs"], vector["expected"]
    m, W, b_h, b_r = (torch.tensor(i[k], dtype=dtype) for k in ("m", "W", "b_h", "b_r"))
    m.requires_grad_()
    V = energy.potential(m, W, b_h, b_r)
    close(V, want["V"])
    close(torch.autograd.grad(V.sum(), m)[0], want["gradV"])
    close(energy.reconstruct(m, W, b_h, b_r), want["r"])
    close(energy.laplacian(m, W, b_h), want["laplacian"])
    close(energy.normality(m, W, b_h), want["eta"])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vector", of_kind("compose"), ids=lambda v: v["id"])
def test_composition_and_attention_vectors(vector: dict, dtype: torch.dtype) -> None:
    i, want = vector["inputs"], vector["expected"]
    q = {
        k: torch.tensor(i[k], dtype=dtype, requires_grad=True)
        for k in ("V", "w", "b", "gamma_upper", "G", "b_a", "tau")
    }
    V_min, eta = torch.tensor(i["V_min"], dtype=dtype), torch.tensor(i["eta"], dtype=dtype)
    gamma = symmetric(q["gamma_upper"], len(i["V"]))
    V_prime, phi, E_partial, E = energy.compose(q["V"], V_min, q["w"], q["b"], gamma)
    log_alpha = energy.importance(E, q["tau"])
    beta = energy.attention(log_alpha.exp(), q["G"], q["b_a"])
    omega = energy.omega(log_alpha, eta)
    for got, name in (
        (V_prime, "V_prime"),
        (phi, "phi"),
        (E_partial, "E_partial"),
        (E, "E"),
        (E.sum(), "S"),
        (log_alpha, "log_alpha"),
        (log_alpha.exp(), "alpha"),
        (beta, "beta"),
        (omega, "Omega"),
        (energy.capacity(q["G"], q["b_a"]), "capacity_relu"),
        (energy.capacity(q["G"], q["b_a"], relu=False), "capacity_signed"),
    ):
        close(got, want[name])
    if (
        dtype == torch.float32
    ):  # the reference gradients are of float64; some are differences below float32's resolution
        return
    weighted = beta @ torch.tensor(i["beta_weights"], dtype=dtype)
    for scalar, name in ((omega, "dOmega"), (weighted, "dBetaSum")):
        gradients = torch.autograd.grad(scalar, list(q.values()), retain_graph=True, allow_unused=True)
        for key, gradient in zip(q, gradients, strict=True):
            close(torch.zeros_like(q[key]) if gradient is None else gradient, want[name][key])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vector", of_kind("pipeline"), ids=lambda v: v["id"])
def test_pipeline_vectors(vector: dict, dtype: torch.dtype) -> None:
    i, want = vector["inputs"], vector["expected"]

    def tensor(x: object) -> Tensor:
        return torch.tensor(x, dtype=dtype)

    m = [tensor(x).requires_grad_() for x in i["m"]]
    V = torch.stack(
        [energy.potential(x, *(tensor(d[k]) for k in ("W", "b_h", "b_r"))) for x, d in zip(m, i["daes"], strict=True)]
    )
    gamma = symmetric(tensor(i["gamma_upper"]), len(m))
    E = energy.compose(V, tensor(i["V_min"]), tensor(i["w"]), tensor(i["b"]), gamma)[3]
    log_alpha = energy.importance(E, i["tau"])
    beta = energy.attention(log_alpha.exp(), i["G"], i["b_a"])
    scaled = [b * x for b, x in zip(beta, m, strict=True)]
    omega = energy.omega(log_alpha, tensor(i["eta"]))
    for got, name in ((V, "V"), (log_alpha.exp(), "alpha"), (beta, "beta"), (E.sum(), "S"), (omega, "Omega")):
        close(got, want[name])
    for k, got in enumerate(scaled):
        close(got, want["m_out"][k])
    for scalar, name in ((omega, "dOmega_dm"), (sum(x.sum() for x in scaled), "dSumMout_dm")):
        for k, gradient in enumerate(torch.autograd.grad(scalar, m, retain_graph=True)):
            close(gradient, want[name][k])


def test_potential_of_a_row_does_not_depend_on_its_batch() -> None:
    W, b_h, b_r = random_dae(5, 7)
    m = torch.randn(9, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    V = energy.potential(m, W, b_h, b_r)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(2))
    alone = torch.cat([energy.potential(row[None], W, b_h, b_r) for row in m])
    torch.testing.assert_close(alone, V, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(energy.potential(m[order], W, b_h, b_r), V[order], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(energy.potential(torch.cat([m, 9 * m]), W, b_h, b_r)[:9], V, rtol=1e-12, atol=1e-12)


def test_gradient_and_laplacian_are_those_of_the_potential() -> None:
    W, b_h, b_r = random_dae(4, 6)
    for m in torch.randn(5, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64):

        def V(x: Tensor) -> Tensor:
            return energy.potential(x, W, b_h, b_r)

        gradient = torch.autograd.functional.jacobian(V, m)
        hessian = torch.autograd.functional.hessian(V, m)
        torch.testing.assert_close(gradient, m - energy.reconstruct(m, W, b_h, b_r))
        torch.testing.assert_close(hessian.trace(), energy.laplacian(m, W, b_h))


def test_noise_raises_the_potential_by_half_its_laplacian() -> None:
    W, b_h, b_r = random_dae(4, 6)
    m = torch.randn(1, 4, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    noise = torch.randn(200_000, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    s = 0.1
    rise = (energy.potential(m + s * noise, W, b_h, b_r) + energy.potential(m - s * noise, W, b_h, b_r)).mean() / 2
    expected = s**2 / 2 * energy.laplacian(m, W, b_h)[0]
    torch.testing.assert_close(rise - energy.potential(m, W, b_h, b_r)[0], expected, rtol=0.05, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_everything_is_finite_far_away_and_very_cold(dtype: torch.dtype) -> None:
    W, b_h, b_r = (p.to(dtype) for p in random_dae(3, 5))
    m = (1e3 * torch.randn(6, 2, 3, generator=torch.Generator().manual_seed(6))).to(dtype).requires_grad_()
    V = energy.potential(m, W, b_h, b_r)
    one = torch.ones(2, dtype=dtype)
    E = energy.compose(V, -5 * one, one, 0.01 * one, torch.full((2, 2), 0.5, dtype=dtype))[3]
    log_alpha = energy.importance(E, 20.0)
    beta = energy.attention(log_alpha.exp(), 3.0, 0.2)
    total = energy.omega(log_alpha, torch.tensor([1.0, -1.0], dtype=dtype)).sum() + beta.sum()
    assert torch.isfinite(total)
    assert torch.isfinite(torch.autograd.grad(total, m)[0]).all()


def random_composition(count: int, rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    V = 6 * torch.rand(rows, count, generator=g, dtype=torch.float64) - 2
    V_min = -3 * torch.rand(count, generator=g, dtype=torch.float64)
    w, b = torch.rand(2, count, generator=g, dtype=torch.float64) + 0.1
    upper = torch.rand(count * (count - 1) // 2, generator=g, dtype=torch.float64)
    return V, V_min, w, b, symmetric(upper, count)


def test_permuting_modalities_permutes_importances() -> None:
    V, V_min, w, b, gamma = random_composition(3, 4, 7)
    log_alpha = energy.importance(energy.compose(V, V_min, w, b, gamma)[3], 0.4)
    for order in permutations(range(3)):
        p = torch.tensor(order)
        E = energy.compose(V[:, p], V_min[p], w[p], b[p], gamma[p][:, p])[3]
        torch.testing.assert_close(energy.importance(E, 0.4), log_alpha[:, p])


def test_scale_of_the_composition_and_coldness_are_redundant() -> None:
    V, V_min, w, b, gamma = random_composition(3, 4, 8)
    E = energy.compose(V, V_min, w, b, gamma)[3]
    scaled = energy.compose(V, V_min, 2.5 * w, 2.5 * b, gamma)[3]
    torch.testing.assert_close(energy.importance(scaled, 0.4 / 2.5), energy.importance(E, 0.4))
    assert not torch.allclose(energy.importance(scaled, 0.4), energy.importance(E, 0.4))


def test_two_modalities_keep_the_order_of_their_energies() -> None:
    for seed in range(200):
        V, V_min, w, b, gamma = random_composition(2, 100, seed)
        _, phi, _, E = energy.compose(V, V_min, w, b, gamma)
        alpha = energy.importance(E, 0.5).exp()
        assert ((phi[:, 0] - phi[:, 1]) * (alpha[:, 0] - alpha[:, 1]) <= 0).all()


def test_derivative_of_omega_by_the_energies() -> None:
    E = torch.tensor([[3.0, 5.0, 4.0]], dtype=torch.float64, requires_grad=True)
    eta, tau = torch.tensor([[1.0, 1.0, -1.0]], dtype=torch.float64), 0.3
    log_alpha = energy.importance(E, tau)
    gradient = torch.autograd.grad(energy.omega(log_alpha, eta).sum(), E)[0]
    torch.testing.assert_close(gradient, -tau * (eta - log_alpha.exp() * eta.sum()))  # Eq. 24-25


@pytest.mark.parametrize("absent", range(3))
def test_absent_modality_equals_a_composition_without_it(absent: int) -> None:
    V, V_min, w, b, gamma = random_composition(3, 4, 9)
    present = torch.ones(4, 3, dtype=torch.bool)
    present[:, absent] = False
    V = V.masked_fill(~present, torch.nan).requires_grad_()
    w.requires_grad_()
    keep = torch.tensor([k for k in range(3) if k != absent])
    _, _, E_partial, E = energy.compose(V, V_min, w, b, gamma, present)
    log_alpha = energy.importance(E, 0.4, present)
    small = energy.compose(V[:, keep], V_min[keep], w[keep], b[keep], gamma[keep][:, keep])
    torch.testing.assert_close(E[:, keep], small[3])
    torch.testing.assert_close(log_alpha[:, keep], energy.importance(small[3], 0.4))
    assert (E[:, absent] == 0).all()
    assert (E_partial[:, absent] == 0).all()
    assert (E_partial[:, :, absent] == 0).all()
    assert (log_alpha[:, absent] == -torch.inf).all()
    eta = torch.tensor([[1.0, -1.0, 1.0]], dtype=torch.float64)
    omega = energy.omega(log_alpha, eta, present)
    torch.testing.assert_close(omega, energy.omega(energy.importance(small[3], 0.4), eta[:, keep]))
    beta = energy.attention(log_alpha.exp(), 3.0, 0.2)
    assert (beta[:, absent] == 0).all()
    for gradient in torch.autograd.grad(omega.sum() + beta.sum(), (V, w)):
        assert torch.isfinite(gradient).all()


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_row_with_nothing_present_is_not_nan() -> None:
    E = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    present = torch.tensor([[False] * 3, [True, True, False]])
    log_alpha = energy.importance(E, 0.4, present)
    assert (log_alpha[0] == -torch.inf).all()
    assert (log_alpha[0].exp() == 0).all()
    assert energy.omega(log_alpha, torch.ones_like(E), present)[0] == 0
    with torch.autograd.detect_anomaly():  # nor NaN on the way, where a later mask would hide it
        total = energy.importance(E, 0.4, present).exp().sum()
        assert torch.isfinite(torch.autograd.grad(total, E)[0]).all()


def test_zero_coldness_masks_all_or_nothing() -> None:
    alpha = energy.importance(torch.tensor([[1.0, 5.0, 9.0]]), 0.0).exp()
    torch.testing.assert_close(alpha, torch.full((1, 3), 1 / 3))
    assert (energy.attention(alpha, 1.5, 0.6) == 0).all()  # the paper says nothing is masked at tau = 0: false
    assert (energy.attention(alpha, 2.0, 0.6) > 0).all()


@pytest.mark.parametrize(("gain", "bias"), [(3.0, 0.5), (0.5, 0.8), (40.0, 3.0)])
def test_capacity_is_the_area_under_the_attention_curve(gain: float, bias: float) -> None:
    a = torch.linspace(0, 1, 200_001, dtype=torch.float64)
    g, b = torch.tensor(gain, dtype=torch.float64), torch.tensor(bias, dtype=torch.float64)
    torch.testing.assert_close(
        energy.capacity(g, b), torch.trapezoid(energy.attention(a, g, b), a), rtol=1e-7, atol=1e-9
    )
    bare = torch.trapezoid(torch.tanh(g * a - b), a)
    torch.testing.assert_close(energy.capacity(g, b, relu=False), bare, rtol=1e-7, atol=1e-9)


def test_a_potential_below_the_clean_minimum_counts_as_normal() -> None:
    V = torch.tensor([[-9.0, 1.0]], requires_grad=True)
    one = torch.ones(2)
    V_prime, _, _, E = energy.compose(V, -one, one, one, symmetric(torch.tensor([0.5]), 2))
    assert V_prime[0, 0].item() == pytest.approx(math.e)
    assert torch.autograd.grad(E.sum(), V)[0][0, 0] == 0
