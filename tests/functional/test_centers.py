"""Skewed means and centre regularisers: reference vectors, slow loops, known optima, and what must not happen."""

import itertools
import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.losses import (
    ArcFaceLoss,
    NormalizedSoftmaxLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    SoftTripleLoss,
)
from pytorch_metric_learning.regularizers import BaseRegularizer, RegularFaceRegularizer
from torch import Tensor

from methods.functional import centers
from methods.parts.center_regularizers import FarthestRegularizer, R1Regularizer, Regularizer

VECTORS = json.loads((Path(__file__).parents[1] / "references" / "skewed_mean.json").read_text())["vectors"]
W4 = torch.tensor([[1.0, 0.2, -0.3], [0.4, -1.0, 0.5], [-0.6, 0.7, 0.9], [0.1, 0.3, -1.2]], dtype=torch.float64)
OBJECTIVES = {
    "r1": lambda W: centers.r1(W, 16.0),
    "r1 softplus": lambda W: centers.r1(W, 16.0, 0.3, "softplus"),
    "r2": lambda W: centers.r2(W, 32.0),
    "mhe": lambda W: centers.mhe(W, 1.0),
    "mhe 0": lambda W: centers.mhe(W, 0.0),
    "rooted mhe": lambda W: centers.rooted_mhe(W, 2.0),
    "uniformface": centers.uniformface,
    "regularface": centers.regularface,
    "hard": lambda W: centers.hard_skewed(W, 0.3),
    "power mean distance": lambda W: centers.power_mean_distance(W, -6.0),
    "farthest": centers.farthest,
}


def doubles(values) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def random_centers(count: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def spread(objective, W: Tensor, steps: int, lr: float = 0.05) -> Tensor:
    """Adam with a cosine-decayed rate and a retraction to the sphere at each step."""
    W = F.normalize(W, dim=1).requires_grad_()
    optimizer = torch.optim.Adam([W], lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        objective(W).backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            W.div_(W.norm(dim=1, keepdim=True))
    return W.detach()


def gradient(objective, W: Tensor) -> Tensor:
    W = W.clone().requires_grad_()
    return torch.autograd.grad(objective(W), W)[0]


def evaluate(op: str, i: dict) -> Tensor | float:
    if op == "proxy_anchor":
        loss = ProxyAnchorLoss(len(i["proxies"]), len(i["proxies"][0]), margin=i["margin"], alpha=i["alpha"])
        loss.proxies.data = doubles(i["proxies"])
        return loss(doubles(i["x"]), torch.tensor(i["y"])).detach()
    if "W" in i:
        W = doubles(i["W"])
        return {
            "R1": lambda: centers.r1(W, i["gamma"], i["delta"], i["form"]),
            "R2": lambda: centers.r2(W, i["lam"]),
            "MHE": lambda: centers.mhe(W, i["s"]),
            "Uniformface": lambda: centers.uniformface(W),
        }[op]()
    s = doubles(i["s"])
    return {
        "skewed_mean_discrete": lambda: centers.skewed_mean(s, i["K"]),
        "log_exp_mean": lambda: centers.log_exp_mean(s, i["lam"]),
        "log_exp_mean_base": lambda: centers.log_exp_mean(s, i["lam"], base=i["base"]),
        "power_mean": lambda: centers.power_mean(s, i["lam"]),
        "calibrate": lambda: centers.calibrate(s, i["K"], i["family"]),
    }[op]()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["id"])
def test_reference_vector(vector):
    assert float(evaluate(vector["op"], vector["input"])) == pytest.approx(
        vector["expected"], abs=vector["atol"], rel=0
    )


# --- means ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("K", "expected"), [(1, 0.95), (-1, -0.7), (5, 0.08), (-5, 0.08), (-2, -0.45)])
def test_skewed_mean_ends(K, expected):
    assert centers.skewed_mean(doubles([0.3, -0.7, 0.95, -0.2, 0.05]), K).item() == pytest.approx(expected)


@pytest.mark.parametrize("K", [0, 6, -6])
def test_skewed_mean_rejects_impossible_counts(K):
    with pytest.raises(ValueError, match="`K`"):
        centers.skewed_mean(torch.zeros(5), K)


@pytest.mark.parametrize("lam", [1e-12, -1e-8, 1e-5, 0.3, -7.5, 20.0])
def test_log_exp_mean_against_exact_arithmetic(lam):
    mpmath = pytest.importorskip("mpmath")
    s = [-0.7, -0.2, 0.05, 0.3, 0.95]
    with mpmath.workdps(50):
        exact = mpmath.log(sum(mpmath.exp(mpmath.mpf(lam) * mpmath.mpf(x)) for x in s) / len(s)) / mpmath.mpf(lam)
    assert centers.log_exp_mean(doubles(s), lam).item() == pytest.approx(float(exact), abs=1e-15)


def test_log_exp_mean_keeps_float32_digits_at_small_skew():
    # The direct form is off by 6e-8 / lam here.
    s = torch.tensor([0.1, 0.35, 0.4, 0.8])
    assert centers.log_exp_mean(s, 1e-6).item() == pytest.approx(s.mean().item(), abs=1e-6)


@pytest.mark.parametrize("lam", [1e-9, 0.5, 3.0, -3.0, 400.0])
def test_log_exp_mean_gradient_is_softmax(lam):
    s = doubles([-0.7, -0.2, 0.05, 0.3, 0.95])
    got = gradient(lambda x: centers.log_exp_mean(x, lam), s)
    assert torch.allclose(got, torch.softmax(lam * s, 0), atol=1e-12)


def test_log_exp_mean_by_dimension_and_base():
    s = random_centers(4, 6)
    rows = torch.stack([centers.log_exp_mean(row, 3.0) for row in s])
    assert torch.allclose(centers.log_exp_mean(s, 3.0, dim=1), rows)
    with pytest.raises(ValueError, match="`base`"):
        centers.log_exp_mean(s, 1.0, base=0.5)


@pytest.mark.parametrize("family", [centers.log_exp_mean, centers.power_mean])
def test_means_increase_with_the_skew_between_minimum_and_maximum(family):
    s = doubles([0.1, 0.35, 0.4, 0.8, 1.2, 1.9])
    values = [family(s, lam).item() for lam in (-1e4, -50, -2, -1e-3, 0, 1e-3, 0.9, 1.1, 10, 200, 1e4)]
    assert all(a < b for a, b in itertools.pairwise(values))
    assert values[0] == pytest.approx(0.1, abs=1e-3)
    assert values[-1] == pytest.approx(1.9, abs=1e-3)


def test_power_mean_is_homogeneous_and_euler():
    s = doubles([0.1, 0.35, 0.4, 0.8])
    assert centers.power_mean(3 * s, 2.5).item() == pytest.approx(3 * centers.power_mean(s, 2.5).item())
    assert (s * gradient(lambda x: centers.power_mean(x, 2.5), s)).sum().item() == pytest.approx(
        centers.power_mean(s, 2.5).item()
    )
    assert centers.power_mean(doubles([-1.0, 1.0]), 2.0).isnan()  # never |s|


TABLE = {  # spec section 1.4, on 0.1, ..., 1.0
    10: (0.0, 1.0),
    8: (2.551105, 2.543164),
    5: (8.853733, 8.001576),
    3: (21.830111, 20.756397),
    2: (45.846507, 44.715109),
    -8: (-2.551105, -0.026180),
    -5: (-8.853733, -1.420086),
    -3: (-21.830111, -3.078820),
    -2: (-45.846507, -5.622855),
}


@pytest.mark.parametrize("K", TABLE)
def test_calibration_table(K):
    s = torch.arange(1, 11, dtype=torch.float64) / 10
    log_exp, power = TABLE[K]
    assert centers.calibrate(s, K, "log_exp") == pytest.approx(log_exp, abs=1e-6)
    assert centers.calibrate(s, K, "power") == pytest.approx(power, abs=1e-6)


def test_calibration_without_a_finite_root():
    assert centers.calibrate(doubles([1, 2, 3]), 1, "log_exp") == math.inf
    assert centers.calibrate(doubles([1, 2, 3]), -1, "power") == -math.inf
    assert centers.calibrate(doubles([1, 2, 2]), 2, "power") == math.inf
    assert centers.calibrate(doubles([0.1, 0.1, 0.1, 0.3]), -3, "log_exp") == -math.inf
    with pytest.raises(ValueError, match="positive"):
        centers.calibrate(doubles([-1, 2, 3]), 2, "power")
    with pytest.raises(ValueError, match="`family`"):
        centers.calibrate(doubles([1, 2, 3]), 2, "harmonic")  # pyright: ignore[reportArgumentType]


# --- regularisers against loops ------------------------------------------------------------------------------------


def pairs_of(W: Tensor) -> list[list[float]]:
    rows = [[x / math.hypot(*row) for x in row] for row in W.tolist()]
    return [[sum(a * b for a, b in zip(p, q, strict=True)) for q in rows] for p in rows]


def test_regularisers_against_loops():
    t, n = pairs_of(W4), len(W4)
    ordered = [(i, j) for i in range(n) for j in range(n) if i != j]
    distance = {p: math.sqrt(2 - 2 * t[p[0]][p[1]]) for p in ordered}

    def r1(margin: float, extra: float) -> float:
        rows = [extra + sum(math.exp(16 * (t[i][j] - margin)) for j in range(n) if j != i) for i in range(n)]
        return sum(math.log(row) / 16 for row in rows) / n

    assert centers.r1(W4, 16.0, 0.3, "sum").item() == pytest.approx(r1(0.3, 0))
    assert centers.r1(W4, 16.0, 0.3, "softplus").item() == pytest.approx(r1(0.3, 1))
    assert centers.r2(W4, 16.0).item() == pytest.approx(
        (sum(((1 + t[i][j]) / 2) ** 16 for i, j in ordered) / len(ordered)) ** (1 / 16)
    )
    energy = sum(d**-3 for d in distance.values()) / len(ordered)
    assert centers.mhe(W4, 3.0).item() == pytest.approx(energy)
    assert centers.rooted_mhe(W4, 3.0).item() == pytest.approx(energy ** (1 / 3))
    assert centers.mhe(W4, 0.0).item() == pytest.approx(-sum(map(math.log, distance.values())) / len(ordered))
    nearest = sorted((t[i][j] for i, j in ordered), reverse=True)
    for share, kept in ((0.5, len(ordered) // 2), (1.0, len(ordered)), (1e-6, 1)):
        assert centers.hard_skewed(W4, share).item() == pytest.approx(sum(nearest[:kept]) / kept)
    assert centers.farthest(W4, 4.0).item() == pytest.approx(
        -((sum(d**4 for d in distance.values()) / len(ordered)) ** 0.25)
    )


def test_regularface_is_the_librarys_and_the_limit_of_r1():
    W = random_centers(100, 8)
    expected = RegularFaceRegularizer()(W).item()
    assert centers.regularface(W).item() == pytest.approx(expected, abs=1e-12)
    gaps = [centers.r1(W, gamma).item() - expected for gamma in (16.0, 256.0, 4096.0)]
    assert gaps[0] < gaps[1] < gaps[2] < 0
    assert gaps[2] > -0.002


def cosine(a: Tensor, b: Tensor) -> float:
    return F.cosine_similarity(a.flatten(), b.flatten(), dim=0).item()


@pytest.mark.parametrize("s", [0.5, 1.0, 2.0, 6.0])
def test_energy_is_a_power_mean_of_distance(s):
    W = random_centers(30, 8)
    energy = gradient(lambda x: centers.mhe(x, s), W)
    mean = gradient(lambda x: -centers.power_mean_distance(x, -s), W)
    assert cosine(energy, mean) > 1 - 1e-9
    value = centers.power_mean_distance(W, -s).item()
    assert (energy.norm() / mean.norm()).item() == pytest.approx(s * value ** (-s - 1), rel=1e-9)


def test_special_cases_have_the_same_direction():
    W = random_centers(30, 8)
    log_energy = gradient(lambda x: centers.mhe(x, 0.0), W)
    assert cosine(log_energy, gradient(lambda x: -centers.power_mean_distance(x, 0.0), W)) > 1 - 1e-9
    u = lambda x: F.normalize(x, dim=1)  # noqa: E731
    shifted = gradient(lambda x: -centers.power_mean(1 + (2 - 2 * centers.off_diagonal(u(x) @ u(x).T)).sqrt(), -1.0), W)
    uniformface = gradient(centers.uniformface, W)
    assert cosine(uniformface, shifted) > 1 - 1e-9
    assert cosine(uniformface, gradient(lambda x: centers.mhe(x, 1.0), W)) < 0.99  # without the +1: another objective


def test_margin_is_inert_in_the_mean_form_and_acts_in_softplus():
    def at(delta: float, form: centers.Form) -> Tensor:
        return gradient(lambda x: centers.r1(x, 16.0, delta, form), W4)

    assert torch.allclose(at(0.0, "mean"), at(2.0, "mean"), atol=1e-14)
    assert torch.allclose(at(0.0, "mean"), at(0.5, "sum"), atol=1e-14)
    assert (at(0.0, "softplus") - at(0.5, "softplus")).norm() > 0.1


@pytest.mark.parametrize("name", OBJECTIVES)
def test_invariances(name):
    objective, W = OBJECTIVES[name], random_centers(12, 5)
    value = objective(W).item()
    rotation = torch.linalg.qr(random_centers(5, 5, seed=1)).Q
    scale = torch.rand(12, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 0.1
    assert objective(W.flip(0)).item() == pytest.approx(value, abs=1e-12)
    assert objective(W @ rotation).item() == pytest.approx(value, abs=1e-12)
    assert objective(W * scale).item() == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients(name):
    assert torch.autograd.gradcheck(OBJECTIVES[name], (random_centers(6, 4).requires_grad_(),))


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicated_and_antipodal_centres_are_finite(name, dtype):
    W = torch.tensor([[1.0, 0, 0], [1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0]], dtype=dtype, requires_grad=True)
    value = OBJECTIVES[name](W)
    value.backward()
    assert W.grad is not None
    assert value.isfinite()
    assert W.grad.isfinite().all()


def test_floors_of_antipodal_and_coincident_centres():
    antipodal, coincident = doubles([[1, 0], [-2, 0]]), doubles([[1, 0], [3, 0]])
    assert centers.r2(antipodal, 32.0).item() == pytest.approx(1e-6)
    assert centers.power_mean_distance(coincident, -2.0).item() == pytest.approx(1e-4)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_row_blocks_equal_the_full_matrix(name, monkeypatch):
    W = random_centers(23, 5)
    full, slope = OBJECTIVES[name](W), gradient(OBJECTIVES[name], W)
    monkeypatch.setattr(centers, "FULL_MATRIX_ROWS", 10)
    monkeypatch.setattr(centers, "BLOCK", 7)
    assert OBJECTIVES[name](W).item() == pytest.approx(full.item(), abs=1e-12)
    assert torch.allclose(gradient(OBJECTIVES[name], W), slope, atol=1e-12)


# --- optimisation --------------------------------------------------------------------------------------------------

OPTIMA = {
    "simplex 6 in 5": (6, 5, math.sqrt(2 * 6 / 5)),
    "simplex 9 in 8": (9, 8, 1.5),
    "cross-polytope": (16, 8, math.sqrt(2)),
    "icosahedron": (12, 3, 1.0514622242),
}


@pytest.mark.parametrize("optimum", OPTIMA)
@pytest.mark.parametrize("kind", ["r1", "r2"])
def test_known_optima(optimum, kind):
    count, width, distance = OPTIMA[optimum]
    objective = (lambda W: centers.r1(W, 16.0)) if kind == "r1" else (lambda W: centers.r2(W, 16.0))
    W = spread(objective, random_centers(count, width), steps=300)
    assert centers.center_statistics(W)["min_distance"] == pytest.approx(distance, abs=1e-4)


def test_the_second_story_collapses():
    W = spread(lambda W: centers.farthest(W, 4.0), random_centers(100, 8), steps=300)
    report = centers.center_statistics(W)
    assert report["same_share"] >= 0.95
    assert report["collapsed"] == 1.0
    assert report["top_eigenvalue_share"] > 0.99
    ceiling = (2**3 * 100 / 99) ** 0.25  # spec section 2.2
    assert -centers.farthest(W, 4.0).item() == pytest.approx(ceiling, abs=1e-3)


def test_squared_distances_do_not_spread():
    W = random_centers(100, 8)
    before = centers.center_statistics(W)
    after = centers.center_statistics(spread(lambda W: centers.farthest(W, 2.0), W, steps=150))
    assert after["nearest_distance"] < before["nearest_distance"] + 0.05
    assert after["collapsed"] == 0.0


def test_r1_spreads_a_hundred_centres():
    report = centers.center_statistics(spread(lambda W: centers.r1(W, 16.0), random_centers(100, 8), steps=400))
    assert report["min_distance"] >= 0.95
    assert report["nearest_distance"] >= 1.01


def test_statistics_of_a_cross_polytope():
    W = torch.cat([torch.eye(4), -torch.eye(4)]) * 3
    report = centers.center_statistics(W)
    assert report == pytest.approx(
        {
            "min_distance": math.sqrt(2),
            "nearest_distance": math.sqrt(2),
            "same_share": 0.0,
            "centroid_norm": 0.0,
            "top_eigenvalue_share": 0.25,
            "collapsed": 0.0,
        }
    )


# --- sampling ------------------------------------------------------------------------------------------------------


def test_sampled_gradient_is_unbiased_where_the_naive_one_is_not():
    W, gamma, sample = random_centers(12, 4), 8.0, 3
    u = F.normalize(W, dim=1)
    log_z = torch.logsumexp(gamma * (centers.off_diagonal(u @ u.T) - 1).flatten(), 0) - math.log(12 * 11)
    full = gradient(
        lambda x: centers.log_exp_mean(centers.off_diagonal(F.normalize(x, dim=1) @ F.normalize(x, dim=1).T), gamma),
        W,
    )

    def ratio(x: Tensor) -> Tensor:
        rows = list(itertools.combinations(range(12), sample))  # all draws, so the expectation is exact
        terms = []
        for chosen in rows:
            v = F.normalize(x[list(chosen)], dim=1)
            terms.append((gamma * (centers.off_diagonal(v @ v.T) - 1) - log_z).exp().mean() / gamma)
        return torch.stack(terms).mean()

    assert torch.allclose(gradient(ratio, W), full, atol=1e-12)


def test_sampled_running_normaliser():
    W, generator, state = random_centers(10, 4), torch.Generator().manual_seed(3), {}
    first = centers.r1_sampled(W, 8.0, 4, generator, state)
    assert first.item() == pytest.approx(1 / 8)
    mirror = torch.Generator().manual_seed(3)

    def mean() -> float:
        v = F.normalize(W[torch.randperm(10, generator=mirror)[:4]], dim=1)
        return (8 * (centers.off_diagonal(v @ v.T) - 1)).exp().mean().item()

    z = mean()
    drawn = mean()
    z = 0.99 * z + 0.01 * drawn
    assert centers.r1_sampled(W, 8.0, 4, generator, state).item() == pytest.approx(drawn / z / 8)


def test_sampled_survives_float32_underflow_and_rejects_bad_samples():
    W = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [-1.0, -0.1]], requires_grad=True)
    state = {}
    centers.r1_sampled(W[:2], 512.0, 2, None, state).backward()  # exp(-1024) is 0 in float32
    assert W.grad is not None
    assert W.grad.isfinite().all()
    for sample in (1, 4):
        with pytest.raises(ValueError, match="`sample`"):
            centers.r1_sampled(W, 16.0, sample, None, {})


@pytest.mark.slow
def test_ratio_form_spreads_where_naive_sampling_fails():
    W, generator, state = random_centers(200, 8), torch.Generator().manual_seed(0), {}
    ratio = spread(lambda x: centers.r1_sampled(x, 16.0, 25, generator, state), W, steps=3000, lr=0.01)
    naive = spread(lambda x: centers.r1(x[torch.randperm(200, generator=generator)[:25]], 16.0), W, steps=3000, lr=0.01)
    assert centers.center_statistics(ratio)["nearest_distance"] > 0.8
    assert centers.center_statistics(naive)["nearest_distance"] < 0.7


# --- in pytorch-metric-learning ------------------------------------------------------------------------------------

LOSSES = {
    "proxy anchor": lambda **k: ProxyAnchorLoss(5, 6, **k),
    "proxy nca": lambda **k: ProxyNCALoss(5, 6, softmax_scale=10, **k),
    "normalized softmax": lambda **k: NormalizedSoftmaxLoss(5, 6, **k),
    "arcface": lambda **k: ArcFaceLoss(5, 6, **k),
    "soft triple": lambda **k: SoftTripleLoss(5, 6, centers_per_class=1, **k),
}


def made(kind: str) -> BaseRegularizer:
    built = Regularizer(kind, {"allow_collapse": True} if kind == "farthest" else {}).build()
    assert built is not None
    return built


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["r1", "r2", "mhe", "uniformface", "regularface", "farthest"])
def test_adds_to_the_librarys_losses(loss, kind):
    x, y = random_centers(20, 6), torch.arange(20) % 5
    regularizer = made(kind)
    torch.manual_seed(0)
    plain = LOSSES[loss]()
    torch.manual_seed(0)
    regularised = LOSSES[loss](weight_regularizer=regularizer, weight_reg_weight=2.5)
    expected = plain(x, y)
    W = next(plain.parameters())
    W = W.T if W.shape[0] == 6 else W
    assert regularised(x, y).item() == pytest.approx(expected.item() + 2.5 * regularizer(W).item(), abs=1e-12)


def test_values_of_the_named_regularisers():
    W = random_centers(9, 4)
    expected = {
        "r1": centers.r1(W, 16.0),
        "r2": centers.r2(W, 32.0),
        "mhe": centers.rooted_mhe(W, 1.0),
        "uniformface": centers.uniformface(W),
        "regularface": centers.regularface(W),
        "farthest": -centers.power_mean_distance(W, 4.0),
    }
    for kind, value in expected.items():
        assert made(kind)(W).item() == pytest.approx(value.item(), abs=1e-12), kind
    assert Regularizer("none").build() is None


def test_refusals():
    with pytest.raises(ValueError, match="allow_collapse"):
        FarthestRegularizer()
    with pytest.raises(ValueError, match="allow_collapse"):
        Regularizer("farthest").build()
    with pytest.raises(ValueError, match=r"no regulariser named 'mhx'\. Did you mean 'mhe'"):
        Regularizer("mhx").build()
    with pytest.raises(ValueError, match="r2: no option `gamma`"):
        Regularizer("r2", {"gamma": 4.0}).build()
    with pytest.raises(ValueError, match=r"`gamma` must be a number > 0, got -4\.0"):
        Regularizer("r1", {"gamma": -4.0}).build()
    with pytest.raises(ValueError, match="`regularizer` must be a name or"):
        Regularizer.from_option("regularizer", 3)
    with pytest.raises(ValueError, match="`sample`"):
        R1Regularizer(form="softplus", sample=4)


def test_sampled_regulariser_moves_its_normaliser_only_in_training():
    W, regularizer = random_centers(20, 4), R1Regularizer(sample=5)
    regularizer(W)
    before = dict(regularizer._state)
    regularizer.eval()(W)
    assert regularizer._state == before
    regularizer.train()(W)
    assert regularizer._state != before
