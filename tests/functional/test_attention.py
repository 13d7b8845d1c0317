"""Discrete and continuous attention against the public vectors, independent quadrature and known identities."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor
from torch.autograd import gradcheck

from methods.functional import attention as A
from methods.functional.mixture import random_start
from methods.functional.paraboloid import SHORT, _long_slice, _short_slice, slice_integrals

REFERENCE = Path(__file__).parents[1] / "references" / "continuous_attention.json"
VECTORS = json.loads(REFERENCE.read_text())["vectors"]
DTYPES = {"float64": torch.float64, "float32": torch.float32}
GRID = (14, 14)


def of_kind(*kinds: str) -> list:
    found = [pytest.param(v, id=v["id"]) for v in VECTORS if v["kind"] in kinds]
    assert found, f"no vector of kind {kinds}"
    return found


def tensor(x: object) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def assert_close(got: Tensor, want: object, dtype: torch.dtype, tight: float) -> None:
    want = want if isinstance(want, Tensor) else tensor(want)
    tolerance = tight if dtype == torch.float64 else 2e-5
    scale = max(want.abs().max().item(), 1e-3)
    torch.testing.assert_close(got.to(torch.float64), want, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
@pytest.mark.parametrize("vector", of_kind("softmax", "sparsemax2d"))
def test_expectation_vectors(vector: dict, dtype: torch.dtype) -> None:
    i, o, soft = vector["inputs"], vector["outputs"], vector["kind"] == "softmax"
    mu = tensor([i["mu"]]).to(dtype).requires_grad_()
    cov = tensor([i["Sigma"] if soft else i["Var"]]).to(dtype).requires_grad_()
    rbf = tensor([i["mu_j"]]).to(dtype), tensor([i["Sigma_j"]]).to(dtype)
    r = A.gaussian_expectation(mu, cov, *rbf) if soft else A.paraboloid_expectation(mu, cov, *rbf, nodes=512)
    assert r.dtype == dtype
    by_mu, by_cov = torch.autograd.grad(r.sum(), (mu, cov))
    assert_close(r, [[o["r"]]], dtype, 1e-10)
    assert_close(by_mu, [o["dr_dmu"]], dtype, 1e-9)
    assert_close(by_cov, [o["dr_dSigma" if soft else "dr_dVar"]], dtype, 1e-8)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
@pytest.mark.parametrize("vector", of_kind("sparsemax1d"))
def test_interval_vectors(vector: dict, dtype: torch.dtype) -> None:
    i, o = vector["inputs"], vector["outputs"]
    mu, var = (tensor([[i["mu"]]]).to(dtype).requires_grad_(), tensor([[[i["var"]]]]).to(dtype).requires_grad_())
    r = A.paraboloid_expectation(mu, var, tensor([[i["mu_j"]]]).to(dtype), tensor([[[i["var_j"]]]]).to(dtype))
    by_mu, by_var = torch.autograd.grad(r.sum(), (mu, var))
    assert_close(r, [[o["r"]]], dtype, 1e-11)
    assert_close(by_mu, [[o["dr_dmu"]]], dtype, 1e-10)
    assert_close(by_var, [[[o["dr_dvar"]]]], dtype, 1e-9)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
@pytest.mark.parametrize("vector", of_kind("em"))
def test_em_vectors(vector: dict, dtype: torch.dtype) -> None:
    i, o = vector["inputs"], vector["outputs"]
    start = (tensor([i[k]]).to(dtype) for k in ("pi0", "mu0", "Sigma0"))
    weights = 3 * tensor([i["weights"]]).to(dtype)  # normalised inside
    fit = A.weighted_em(A.cell_centers(i["grid"]), weights, *start, iterations=i["iterations"], reg=i["reg_covar"])
    for got, name in zip(fit, ("pi", "mu", "Sigma", "weighted_loglik"), strict=True):
        assert got.dtype == dtype
        assert_close(got[0], o[name], dtype, 1e-11)


@pytest.mark.parametrize("vector", of_kind("ridge_padded"))
def test_ridge_vectors(vector: dict) -> None:
    i = vector["inputs"]
    got = A.ridge_operator(i["grid"], i["rbf_grid"], i["rbf_var"], i["ridge"], pad=True)
    assert got.dtype == torch.float64
    torch.testing.assert_close(got, tensor(vector["outputs"]["G_inner_LxN"]), rtol=0, atol=1e-13)


@pytest.mark.parametrize("vector", of_kind("discrete_sparsemax"))
def test_sparsemax_vectors(vector: dict) -> None:
    z, want = tensor(vector["inputs"]["z"]), tensor(vector["outputs"]["p"])
    torch.testing.assert_close(A.sparsemax(z), want, rtol=0, atol=1e-14)
    torch.testing.assert_close(A.sparsemax(z[:, None].repeat(1, 2), dim=0)[:, 1], want, rtol=0, atol=1e-14)


# --- an independent rule: Gauss-Legendre in the radius, trapezoid in the angle, on u = R^-1 (t - mu)


def polar_oracle(
    mu: Tensor, cov: Tensor, centers: Tensor, covs: Tensor, radial: int = 96, angular: int = 512
) -> Tensor:
    nodes, weights = (torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(radial))
    rho, weights = 0.5 * (nodes + 1), 0.5 * weights
    angle = torch.arange(angular, dtype=torch.float64) * 2 * math.pi / angular
    u = (rho[:, None, None] * torch.stack([angle.cos(), angle.sin()], -1)).reshape(-1, 2)
    mass = (weights * rho * (1 - rho**2) * 2 * math.pi / angular * 2 / math.pi)[:, None].expand(-1, angular).reshape(-1)
    t = mu[:, None] + u @ torch.linalg.cholesky(6 * cov).transpose(-1, -2)  # [B, P, 2]
    values = torch.stack([A.gaussian_density(points, centers, covs) for points in t])  # [B, N, P]
    return values @ mass


def attention_rows() -> dict[str, Tensor]:
    line, one_hot, corners = torch.zeros(3, 14, 14, dtype=torch.float64)
    line.fill_diagonal_(1 / 14)
    one_hot[3, 9] = 1
    corners[0, 0] = corners[13, 13] = 0.5
    row = torch.zeros(14, 14, dtype=torch.float64)
    row[5] = 1 / 14
    uniform = torch.full((14, 14), 1 / 196, dtype=torch.float64)
    rows = {"one_hot": one_hot, "uniform": uniform, "line": line, "corners": corners, "row": row}
    return {k: v.flatten() for k, v in rows.items()}


@pytest.mark.parametrize("var", [0.001, 0.01])
@pytest.mark.parametrize("name", list(attention_rows()))
def test_chord_rule_on_degenerate_attention(name: str, var: float) -> None:
    mu, cov = (x.requires_grad_() for x in A.moments(A.cell_centers(GRID), attention_rows()[name][None]))
    axis = A.rbf_axes((4, 5))
    centers, covs = A.tensor_grid(A.rbf_axes((4, 5))), (var * torch.eye(2, dtype=torch.float64)).expand(20, 2, 2)
    want = polar_oracle(mu, cov, centers, covs)
    probe = torch.linspace(-1, 1, 20, dtype=torch.float64)
    want_grads = torch.autograd.grad((want * probe).sum(), (mu, cov))
    for got in (
        A.grid_paraboloid_expectation(mu, cov, *axis, var, nodes=192),
        A.paraboloid_expectation(mu, cov, centers, covs, nodes=192),
    ):
        grads = torch.autograd.grad((got * probe).sum(), (mu, cov))
        torch.testing.assert_close(got, want, rtol=0, atol=1e-8 * want.max().item())
        for g, w in zip(grads, want_grads, strict=True):
            w = 0.5 * (w + w.transpose(-1, -2)) if w.dim() == 3 else w
            torch.testing.assert_close(g, w, rtol=0, atol=1e-6 * max(w.abs().max().item(), 1.0))


def test_rules_agree_on_full_covariances() -> None:
    (mu, cov), rbfs = random_density(2), random_rbfs(2)
    chord = A.paraboloid_expectation(mu, cov, *rbfs, nodes=256)
    polar = polar_oracle(mu, cov, *rbfs)
    torch.testing.assert_close(polar, chord, rtol=1e-10, atol=1e-12)
    for a, b in zip(*(torch.autograd.grad(r.sum(), (mu, cov)) for r in (chord, polar)), strict=True):
        b = 0.5 * (b + b.transpose(-1, -2)) if b.dim() == 3 else b
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", list(attention_rows()))
def test_float32_attention_matches_float64(name: str) -> None:
    weights, points, axis = attention_rows()[name][None], A.cell_centers(GRID), A.rbf_axes((10, 10))
    centers, covs = A.tensor_grid(A.rbf_axes((10, 10))), (0.001 * torch.eye(2, dtype=torch.float64)).expand(100, 2, 2)
    for rule in (
        lambda m, c: A.grid_paraboloid_expectation(m, c, *axis, 0.001),
        lambda m, c: A.gaussian_expectation(m, c, centers, covs),
    ):
        mu, cov = A.moments(points, weights)
        wide = rule(mu, cov)
        # The inputs are rounded to float32 first: what is compared is the arithmetic, on the same numbers.
        narrow = rule(mu.float(), cov.float())
        exact = rule(mu.float().double(), cov.float().double())
        assert narrow.dtype == torch.float32
        torch.testing.assert_close(narrow.double(), exact, rtol=2e-5, atol=2e-5 * wide.max().item())
        torch.testing.assert_close(narrow.double(), wide, rtol=0, atol=2e-5 * wide.max().item())


def test_chord_rule_survives_a_singular_covariance() -> None:
    mu = tensor([[0.4, 0.6]]).requires_grad_()
    cov = tensor([[[0.01, 0.01], [0.01, 0.01]]]).requires_grad_()
    r = A.grid_paraboloid_expectation(mu, cov, *A.rbf_axes((5, 5)), 0.01, nodes=160)
    grads = torch.autograd.grad(r.sum(), (mu, cov))
    assert all(g.isfinite().all() for g in (r, *grads))

    # The limit is a density proportional to (1 - v^2)^(3/2) along the diagonal, of half-width sqrt(6 Var).
    def along(v: float, centre: Tensor) -> float:
        t = tensor([[0.4 + math.sqrt(0.06) * v, 0.6 + math.sqrt(0.06) * v]])
        height = A.gaussian_density(t, centre[None], 0.01 * torch.eye(2, dtype=torch.float64)[None]).item()
        return (1 - v * v) ** 1.5 * 8 / (3 * math.pi) * height

    centers = A.tensor_grid(A.rbf_axes((5, 5)))
    want = tensor([[integrate.quad(along, -1, 1, args=(c,))[0] for c in centers]])
    torch.testing.assert_close(r.detach(), want, rtol=0, atol=1e-5 * want.max().item())


def test_noncentral_chi_squared_oracle() -> None:
    mu, cov, d = tensor([[0.45, 0.55]]), tensor([[[0.02, 0.008], [0.008, 0.015]]]), 0.3
    centers = tensor([[0.4, 0.5], [0.7, 0.2], [0.1, 0.9]])
    support = 6 * cov[0]
    delta = centers - mu
    nc = (delta @ torch.linalg.inv(d * support) * delta).sum(-1)
    h = 2 / (math.pi * support.det().sqrt().item())
    cdf = [torch.from_numpy(stats.ncx2.cdf(1 / d, k, nc.numpy())) for k in (2, 4, 6)]
    want = h * (cdf[0] - d * (2 * cdf[1] + nc * cdf[2]))
    got = A.paraboloid_expectation(mu, cov, centers, (d * support).expand(3, 2, 2))
    torch.testing.assert_close(got[0], want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kappa", [1e-6, 1e-3, 0.05, SHORT - 1e-6, SHORT, 0.7, 4.0, 30.0])
@pytest.mark.parametrize("delta", [0.0, 0.3, -2.0, 5.0])
def test_slice_integrals(kappa: float, delta: float) -> None:
    def moment(power: int) -> float:
        def f(v: float) -> float:  # z = kappa v
            return v**power * math.exp(-0.5 * (kappa * v - delta) ** 2) / math.sqrt(2 * math.pi)

        peak = [min(max(delta / kappa, -1), 1)]
        return kappa * integrate.quad(f, -1, 1, points=peak, epsabs=1e-14, epsrel=1e-12)[0]

    m0, m1, m2 = (moment(p) for p in range(3))
    # The closed form is exact relative to 1, the series relative to its value: that is what tiny supports need.
    floor = 1e-12 if kappa >= SHORT else 1e-14 * kappa
    value, slope, growth = slice_integrals(tensor(kappa), tensor(delta))
    assert value.item() == pytest.approx(m0 - m2, rel=1e-10, abs=floor)
    assert slope.item() == pytest.approx(m1 / kappa, rel=1e-9, abs=max(floor, 1e-15))
    assert growth.item() == pytest.approx(3 * m2 - m0, rel=1e-9, abs=floor)


def test_slice_branches_meet() -> None:
    delta = torch.linspace(-9, 9, 181, dtype=torch.float64)
    pairs = zip(_short_slice(tensor(SHORT), delta), _long_slice(tensor(SHORT), delta), strict=True)
    assert all((a - b).abs().max() < 1e-12 for a, b in pairs)


# --- gradients of every custom Function


def random_density(dim: int, rows: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    mu = torch.rand(rows, dim, generator=generator, dtype=torch.float64)
    root = 0.2 * torch.randn(rows, dim, dim, generator=generator, dtype=torch.float64)
    cov = root @ root.mT + 0.01 * torch.eye(dim, dtype=torch.float64)
    return mu.requires_grad_(), cov.requires_grad_()


def random_rbfs(dim: int) -> tuple[Tensor, Tensor]:
    mu, cov = random_density(dim, rows=4)
    return mu.detach().flip(0), cov.detach()


def test_gradcheck_sparsemax() -> None:
    z = torch.randn(3, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    assert gradcheck(A.sparsemax, (z,))


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_gradcheck_gaussian(dim: int) -> None:
    rbfs = [x.requires_grad_() for x in random_rbfs(dim)]
    assert gradcheck(A.gaussian_expectation, (*random_density(dim), *rbfs))


@pytest.mark.parametrize("dim", [1, 2])
def test_gradcheck_paraboloid(dim: int) -> None:
    centers, covs = random_rbfs(dim)
    assert gradcheck(lambda m, c: A.paraboloid_expectation(m, c, centers, covs), random_density(dim))


def test_gradcheck_grid() -> None:
    axes = A.rbf_axes((3, 4))
    assert gradcheck(lambda m, c: A.grid_paraboloid_expectation(m, c, *axes, (0.02, 0.03)), random_density(2))


def test_gradcheck_mixture_through_em() -> None:
    points, axes = A.cell_centers((4, 4)), A.rbf_axes((3, 3))
    scores = torch.randn(2, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()

    def pooled(z: Tensor) -> Tensor:
        w = z.softmax(-1)
        pi, mu, cov, _ = A.weighted_em(points, w, *A.region_start(points, w, 2), iterations=3)
        mixture = A.Mixture(A.sparsemax(3 * pi), mu, cov)
        return A.mixture_expectation(mixture, lambda m, c: A.grid_paraboloid_expectation(m, c, *axes, 0.02))

    assert gradcheck(pooled, (scores,))


def test_rbfs_of_the_paraboloid_are_constants() -> None:
    centers, covs = random_rbfs(2)
    with pytest.raises(ValueError, match="constants"):
        A.paraboloid_expectation(*random_density(2), centers.requires_grad_(), covs)


# --- densities


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_paraboloid_density_has_its_moments_and_exact_support(dim: int) -> None:
    mu = torch.full((1, dim), 0.5, dtype=torch.float64)
    root = torch.tril(torch.full((dim, dim), 0.02, dtype=torch.float64)) + 0.04 * torch.eye(dim, dtype=torch.float64)
    cov = (root @ root.T)[None]
    points = A.cell_centers((4000, 400, 80)[dim - 1 : dim] * dim)
    p = A.paraboloid_density(points, mu, cov)[0]
    cell = 1 / len(points)
    mean, var = A.moments(points, (p * cell / (p * cell).sum())[None], eps=0)
    assert (p * cell).sum().item() == pytest.approx(1, abs=2e-3)
    torch.testing.assert_close(mean, mu, rtol=0, atol=1e-9)
    torch.testing.assert_close(var, cov, rtol=0, atol=2e-3 * cov.max().item())
    distance = ((points - mu[0]) @ torch.linalg.inv((dim + 4) * cov[0]) * (points - mu[0])).sum(-1)
    assert (p[distance > 1 + 1e-12] == 0).all()
    assert (p[distance < 1 - 1e-12] > 0).all()
    assert (distance > 1 + 1e-12).any()


def test_support_ellipse_is_the_zero_level() -> None:
    mu, cov = (x.detach() for x in random_density(2, rows=1))
    edge = A.support_ellipse(mu, cov)[0]
    outside, inside = mu + 1.0001 * (edge - mu), mu + 0.9999 * (edge - mu)
    assert (A.paraboloid_density(outside, mu, cov) == 0).all()
    assert (A.paraboloid_density(inside, mu, cov) > 0).all()


# --- moments, EM, selection


def test_moments_are_two_pass() -> None:
    weights = torch.full((1, 196), 1e-6, dtype=torch.float32)
    weights[0, -1] = 1 - 195e-6
    _, cov = A.moments(A.cell_centers(GRID).float(), weights, eps=0)
    _, want = A.moments(A.cell_centers(GRID), weights.double(), eps=0)
    torch.testing.assert_close(cov.double(), want, rtol=1e-5, atol=0)
    assert torch.linalg.eigvalsh(cov).min() >= 0


def two_blobs(batch: int = 1) -> Tensor:
    points = A.cell_centers(GRID)
    blobs = [
        A.gaussian_density(points, tensor([c]), 0.002 * torch.eye(2, dtype=torch.float64)[None])
        for c in ([0.2, 0.2], [0.8, 0.7])
    ]
    return (0.6 * blobs[0] + 0.4 * blobs[1]).expand(batch, -1) / 196


def test_em_never_decreases_and_keeps_the_moments() -> None:
    points, weights = A.cell_centers(GRID), two_blobs()
    weights = weights + 0.002 * torch.rand(1, 196, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = weights / weights.sum()
    mean, var = A.moments(points, weights, eps=0)
    state = random_start(1, 3, 2, 1, 0, weights)
    last = -math.inf
    for _ in range(15):
        *state, ll = A.weighted_em(points, weights, *state, iterations=1, reg=0.0)
        assert ll.item() >= last - 1e-12
        last = ll.item()
        pi, mu, cov = state
        spread = cov + (mu - mean[:, None])[..., None] * (mu - mean[:, None])[..., None, :]
        torch.testing.assert_close((pi[..., None] * mu).sum(1), mean, rtol=0, atol=1e-12)
        torch.testing.assert_close((pi[..., None, None] * spread).sum(1), var, rtol=0, atol=1e-12)


@pytest.mark.parametrize("components", [2, 4])
def test_region_start_without_mass_is_finite(components: int) -> None:
    points = A.cell_centers(GRID)
    scores = torch.full((2, 196), -800.0, dtype=torch.float64)
    scores[0, 0] = scores[1, 195] = 0.0
    scores.requires_grad_()
    weights = scores.softmax(-1)
    start = A.region_start(points, weights, components)
    fit = A.weighted_em(points, weights, *start, iterations=5)
    torch.testing.assert_close(start.pi.sum(-1), torch.ones(2, dtype=torch.float64))
    for x in (*start, *fit):
        assert x.isfinite().all()
    (grad,) = torch.autograd.grad(sum(x.sum() for x in fit), scores)
    assert grad.isfinite().all()
    # The empty region of row 0 farthest from the mass starts at its own centre.
    torch.testing.assert_close(start.mu[0, -1], tensor([0.75, 0.5 if components == 2 else 0.75]))


def test_selection_finds_the_number_of_modes_row_by_row() -> None:
    points = A.cell_centers(GRID)
    one = A.gaussian_density(points, tensor([[0.5, 0.4]]), 0.015 * torch.eye(2, dtype=torch.float64)[None]) / 196
    weights = torch.cat([two_blobs(), one])
    mixture, sizes = A.select_mixture(points, weights, max_components=4, penalty=1.0)
    assert sizes.tolist() == [2, 1]
    assert (mixture.pi > 0).sum(-1).tolist() == [2, 1]
    torch.testing.assert_close(mixture.pi.sum(-1), torch.ones(2, dtype=torch.float64))
    # A row's choice ignores the rest of the batch: the published scores sum over it.
    alone, _ = A.select_mixture(points, weights[:1], max_components=4, penalty=1.0)
    for a, b in zip(alone, mixture, strict=True):
        torch.testing.assert_close(a[0], b[0])
    assert A.select_mixture(points, weights, max_components=4, penalty=100.0)[1].tolist() == [1, 1]


@pytest.mark.parametrize("grid", [(8, 8), (14, 14), (6, 11)])
@pytest.mark.parametrize("sd", [0.03, 0.05])
def test_selection_finds_blobs_and_not_cells(grid: tuple[int, int], sd: float) -> None:
    points = A.cell_centers(grid)
    generator = torch.Generator().manual_seed(0)
    rows = []
    for _ in range(20):
        centre = 0.2 + 0.2 * torch.rand(2, generator=generator, dtype=torch.float64)
        blobs = [(-(points - m).square().sum(-1) / (2 * sd**2)).softmax(0) for m in (centre, centre + 0.4)]
        rows += [blobs[0], 0.6 * blobs[0] + 0.4 * blobs[1]]
    _, sizes = A.select_mixture(points, torch.stack(rows), max_components=5, penalty=1.0)
    assert sizes.tolist() == [1, 2] * 20


def test_cell_variance_is_that_of_a_uniform_cell() -> None:
    torch.testing.assert_close(A.cell_variance(A.cell_centers((8, 5))), tensor([1 / 8**2 / 12, 1 / 5**2 / 12]))
    torch.testing.assert_close(A.cell_variance(A.cell_centers((1,))), tensor([1 / 12]))


# --- sparsemax and the value function


def test_sparsemax_ignores_masked_entries() -> None:
    z = tensor([[0.3, -torch.inf, 0.1, -torch.inf], [5.0, 1.0, -30.0, -torch.inf]]).requires_grad_()
    p = A.sparsemax(z)
    torch.testing.assert_close(p[0, [0, 2]], A.sparsemax(tensor([0.3, 0.1])))
    assert p[1].tolist() == [1, 0, 0, 0]
    assert p[0, 1] == 0
    (grad,) = torch.autograd.grad((p * torch.arange(4.0)).sum(), z)
    assert grad.isfinite().all()
    assert (grad[:, 3] == 0).all()


def test_padding_is_regression_on_zeros() -> None:
    grid, rbfs, var, ridge = (4, 6), (3, 4), 0.03, 0.01
    tokens = torch.randn(24, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    got = A.ridge_operator(grid, rbfs, var, ridge).T @ tokens
    axes = [(torch.arange(2 * n, dtype=torch.float64) + 0.5) / n - 0.5 for n in grid]
    points = torch.cartesian_prod(*axes)
    inside = ((points > 0) & (points < 1)).all(-1)
    design = A.gaussian_density(
        points, A.tensor_grid(A.rbf_axes(rbfs)), (var * torch.eye(2, dtype=torch.float64)).expand(12, 2, 2)
    )
    values = torch.zeros(len(points), 5, dtype=torch.float64)
    values[inside] = tokens
    augmented = torch.cat([design.T, math.sqrt(ridge) * torch.eye(12, dtype=torch.float64)])
    want = torch.linalg.lstsq(augmented, torch.cat([values, values.new_zeros(12, 5)])).solution
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)


def test_ridge_operator_refuses_odd_padding_and_works_in_1d() -> None:
    with pytest.raises(ValueError, match="even"):
        A.ridge_operator((7, 8), (3, 3), 0.01, 0.01)
    assert A.ridge_operator((7, 8), (3, 3), 0.01, 0.01, pad=False).shape == (56, 9)
    assert A.ridge_operator((12,), (5,), 0.01, 0.01).shape == (12, 5)


def test_leading_dimensions_and_meta_device() -> None:
    mu, cov = (x.detach() for x in random_density(2, rows=6))
    axes, centers = A.rbf_axes((3, 4)), A.tensor_grid(A.rbf_axes((3, 4)))
    covs = (0.02 * torch.eye(2, dtype=torch.float64)).expand(12, 2, 2)
    rules = (
        lambda m, c, like: A.grid_paraboloid_expectation(m, c, *(a.to(like) for a in axes), 0.02),
        lambda m, c, like: A.paraboloid_expectation(m, c, centers.to(like), covs.to(like)),
        lambda m, c, like: A.gaussian_expectation(m, c, centers.to(like), covs.to(like)),
    )
    for rule in rules:
        flat = rule(mu, cov, mu)
        torch.testing.assert_close(rule(mu.view(2, 3, 2), cov.view(2, 3, 2, 2), mu).flatten(0, 1), flat)
        meta = rule(mu.to("meta").float(), cov.to("meta").float(), mu.to("meta"))
        assert (meta.shape, meta.dtype, meta.device.type) == (flat.shape, torch.float32, "meta")
