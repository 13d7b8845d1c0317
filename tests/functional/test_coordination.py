"""The coordination core against public vectors, libraries and slow loops written from the equations."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import sklearn.cross_decomposition
import sklearn.metrics.pairwise as kernels
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from open_clip.loss import ClipLoss
from torch import Tensor

from methods.functional import coordination as C

REFERENCES = Path(__file__).parents[1] / "references" / "fusion.json"


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def views(n: int = 60, widths: tuple[int, ...] = (4, 3), seed: int = 0) -> list[Tensor]:
    """Views that share two latent directions."""
    shared = randn(n, 2, seed=seed)
    return [
        shared @ randn(2, d, seed=seed + 10 + m) + randn(n, d, seed=seed + 20 + m) + m for m, d in enumerate(widths)
    ]


@pytest.fixture(scope="module")
def vectors() -> dict[str, dict]:
    return {v["id"]: v for v in json.loads(REFERENCES.read_text())["vectors"]}


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# --- public vectors ---------------------------------------------------------------------------------------------------


def test_kernel_vector(vectors: dict[str, dict]) -> None:
    v = vectors["kernels_0"]
    a, b, p = tensor(v["inputs"]["a"]), tensor(v["inputs"]["b"]), v["params"]
    cases = {
        "cosine": C.similarity(a, b, "cosine"),
        "linear": C.similarity(a, b, "linear"),
        "poly": C.similarity(a, b, "polynomial", degree=p["degree"], gamma=p["gamma"], coef0=p["coef0"]),
        "rbf": C.similarity(a, b, "rbf", sigma=p["sigma"]),
        "exponential_l2": C.similarity(a, b, "exponential", length=p["length"]),
        "exponential_l1": C.similarity(a, b, "laplacian", gamma=p["l1_gamma"]),
    }
    for name, got in cases.items():
        torch.testing.assert_close(got, tensor(v["outputs"][name]), atol=v["atol"], rtol=1e-9)


def test_cca_vector(vectors: dict[str, dict]) -> None:
    v = vectors["cca_0"]
    x, y, o, ridge = tensor(v["inputs"]["X"]), tensor(v["inputs"]["Y"]), v["outputs"], v["params"]["ridge"]
    torch.testing.assert_close(C.canonical_correlations(x, y), tensor(o["rho"]), atol=1e-9, rtol=0)
    torch.testing.assert_close(C.canonical_correlations(x, y, ridge), tensor(o["rho_ridge"]), atol=1e-9, rtol=0)
    torch.testing.assert_close(C.dcca_loss(x, y, 0.0), tensor(o["dcca_loss"]), atol=1e-9, rtol=0)
    torch.testing.assert_close(C.dcca_loss(x, y, ridge), tensor(o["dcca_loss_ridge"]), atol=1e-9, rtol=0)
    torch.testing.assert_close(C.dcca_loss(x, y, 0.0, "frobenius"), tensor(o["dcca_fro_loss"]), atol=1e-9, rtol=0)


def test_dcca_gradient_vector(vectors: dict[str, dict]) -> None:
    v = vectors["dcca_grad_0"]
    x = tensor(v["inputs"]["X"]).requires_grad_()
    C.dcca_loss(x, tensor(v["inputs"]["Y"]), ridge=v["params"]["ridge"]).backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad[:2], tensor(v["outputs"]["grad_rows_0_1"]), atol=1e-6, rtol=0)


def test_contrastive_vectors(vectors: dict[str, dict]) -> None:
    v = vectors["clip_0"]
    a, b = tensor(v["inputs"]["a"]), tensor(v["inputs"]["b"])
    for scale in (1.0, 3.0):  # rows are normalised inside
        got = C.clip_loss(scale * a, b / scale, v["params"]["logit_scale"])
        torch.testing.assert_close(got, tensor(v["outputs"]["loss"]), atol=v["atol"], rtol=1e-9)
    v = vectors["hinge_0"]
    a, b, margin = tensor(v["inputs"]["a"]), tensor(v["inputs"]["b"]), v["params"]["margin"]
    torch.testing.assert_close(C.hinge_loss(3 * a, b, margin), tensor(v["outputs"]["mean_all"]), atol=1e-9, rtol=0)
    hardest = C.hinge_loss(a, b, margin, negatives="hardest")
    torch.testing.assert_close(hardest, tensor(v["outputs"]["hardest"]), atol=1e-9, rtol=0)


# --- similarities -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "params", "reference"),
    [
        ("cosine", {}, kernels.cosine_similarity),
        ("linear", {}, kernels.linear_kernel),
        ("polynomial", {"degree": 3, "gamma": 0.5, "coef0": 1.0}, kernels.polynomial_kernel),
        ("laplacian", {"gamma": 0.4}, kernels.laplacian_kernel),
        ("rbf", {"sigma": 0.8}, lambda a, b, sigma: kernels.rbf_kernel(a, b, gamma=1 / (2 * sigma**2))),
        ("exponential", {"length": 1.5}, lambda a, b, length: np.exp(-kernels.euclidean_distances(a, b) / length)),
    ],
)
def test_similarity_equals_sklearn(kind: str, params: dict[str, float], reference) -> None:
    a, b = randn(7, 5), randn(4, 5, seed=1)
    got = C.similarity(a, b, kind, **params)
    np.testing.assert_allclose(got, reference(a.numpy(), b.numpy(), **params), atol=1e-12)


def test_rbf_is_a_function_of_the_cosine_on_the_sphere() -> None:
    a, b = (torch.nn.functional.normalize(randn(6, 4, seed=s), dim=1) for s in (0, 1))
    expected = torch.exp((C.similarity(a, b, "cosine") - 1) / 0.7**2)
    torch.testing.assert_close(C.similarity(a, b, "rbf", sigma=0.7), expected)


def test_distances_survive_a_large_mean_and_identical_rows() -> None:
    a = (100 + randn(40, 8)).float().requires_grad_()
    for kind in ("rbf", "exponential", "laplacian"):
        k = C.similarity(a, a, kind)
        torch.testing.assert_close(k.diagonal(), torch.ones(40), atol=1e-6, rtol=0)
        (grad,) = torch.autograd.grad(k.sum(), a)
        assert grad.isfinite().all(), kind


def test_unknown_kinds_and_parameters_are_errors() -> None:
    a = randn(3, 2)
    with pytest.raises(ValueError, match="cosine"):
        C.similarity(a, a, "cosin")
    with pytest.raises(TypeError, match="sigma"):
        C.similarity(a, a, "cosine", sigma=1.0)


# --- CCA --------------------------------------------------------------------------------------------------------------


def test_cca_equals_sklearn() -> None:
    x, y = views()
    sk = sklearn.cross_decomposition.CCA(n_components=3, scale=False, tol=1e-14, max_iter=100_000).fit(
        x.numpy(), y.numpy()
    )
    u, v = sk.transform(x.numpy(), y.numpy())
    expected = [np.corrcoef(u[:, i], v[:, i])[0, 1] for i in range(3)]
    np.testing.assert_allclose(C.canonical_correlations(x, y), expected, atol=1e-8)
    fitted = C.StreamingCCA().partial_fit(x, y).finalize(3)
    np.testing.assert_allclose(fitted.correlations, expected, atol=1e-8)
    ours = (x - fitted.means[0]) @ fitted.projections[0]
    for i in range(3):  # the same directions, up to sign
        assert abs(np.corrcoef(u[:, i], ours[:, i].numpy())[0, 1]) == pytest.approx(1, abs=1e-8)


@pytest.mark.parametrize("widths", [(4, 3), (4, 3, 5), (2, 3, 3, 4)])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_cca_equals_the_generalised_eigenproblem(widths: tuple[int, ...], ridge: float) -> None:
    data = views(widths=widths)
    k = min(widths)
    fitted = C.StreamingCCA().partial_fit(*data).finalize(k, ridge)
    full = np.cov(torch.cat(data, 1).T.numpy()) + ridge * np.eye(sum(widths))
    inside = scipy.linalg.block_diag(*[np.ones((d, d)) for d in widths])
    values, vectors = scipy.linalg.eigh(full, full * inside)
    np.testing.assert_allclose(fitted.correlations, (values[::-1][:k] - 1) / (len(widths) - 1), atol=1e-8)
    start = 0
    for d, u in zip(widths, fitted.projections, strict=True):
        block, w = full[start : start + d, start : start + d], vectors[start : start + d, ::-1][:, :k]
        np.testing.assert_allclose(np.diag(u.numpy().T @ block @ u.numpy()), 1, atol=1e-8)
        w = w / np.sqrt(np.diag(w.T @ block @ w))  # per block unit variance, as documented
        np.testing.assert_allclose(np.abs(np.diag(w.T @ block @ u.numpy())), 1, atol=1e-7)
        start += d


def test_two_views_are_whitened_and_signed() -> None:
    x, y = views()
    (u, v), means, rho = C.StreamingCCA().partial_fit(x, y).finalize(3)
    a, b = (x - means[0]) @ u, (y - means[1]) @ v
    torch.testing.assert_close(a.T @ a / 59, torch.eye(3).double(), atol=1e-10, rtol=0)
    torch.testing.assert_close(a.T @ b / 59, rho.diag(), atol=1e-10, rtol=0)
    assert (u.gather(0, u.abs().argmax(0, keepdim=True)) > 0).all()
    assert (rho[:-1] >= rho[1:]).all()


def test_correlations_are_affine_invariant() -> None:
    x, y = views()
    moved = x @ randn(4, 4, seed=5) + 3
    torch.testing.assert_close(C.canonical_correlations(moved, y), C.canonical_correlations(x, y), atol=1e-10, rtol=0)


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(1, 59), max_size=5, unique=True), workers=st.integers(1, 3), seed=st.integers(0, 9))
def test_streaming_equals_batch_equals_merged(cuts: list[int], workers: int, seed: int) -> None:
    data = [1e3 + v for v in views(widths=(4, 3, 2), seed=seed)]
    whole = C.StreamingCCA().partial_fit(*data)
    parts = [C.StreamingCCA() for _ in range(workers)]
    edges = [0, *sorted(cuts), 60]
    for i, (start, stop) in enumerate(itertools.pairwise(edges)):
        parts[i % workers].partial_fit(*[v[start:stop] for v in data])
    merged = parts[-1]
    for part in parts[:-1]:
        merged.merge(part)
    assert merged.count == whole.count
    for ridge in (0.0, 0.1):
        a, b = whole.finalize(2, ridge), merged.finalize(2, ridge)
        torch.testing.assert_close(a.correlations, b.correlations, atol=1e-10, rtol=0)
        for left, right in zip(a.projections + a.means, b.projections + b.means, strict=True):
            torch.testing.assert_close(left, right, atol=1e-8, rtol=1e-8)
    pair = [v.clone() for v in data[:2]]
    streamed = C.StreamingCCA().partial_fit(*[v[:7] for v in pair]).partial_fit(*[v[7:] for v in pair]).finalize(3)
    torch.testing.assert_close(streamed.correlations, C.canonical_correlations(*pair), atol=1e-10, rtol=0)


def test_streaming_survives_a_large_mean_in_float32() -> None:
    x, y = (v.float() + 1e4 for v in views(n=400))
    s = C.StreamingCCA()
    for start in range(0, 400, 32):
        s.partial_fit(x[start : start + 32], y[start : start + 32])
    torch.testing.assert_close(s.covariance(), torch.cov(torch.cat([x, y], 1).double().T), atol=1e-10, rtol=1e-10)


def test_rank_deficient_views_lose_their_null_directions() -> None:
    x, y = views()
    dead = torch.cat([x, x[:, :2] @ randn(2, 2), torch.zeros(60, 3).double()], dim=1)  # rank 4 of 9
    expected = C.canonical_correlations(x, y)
    torch.testing.assert_close(C.canonical_correlations(dead, y), expected, atol=1e-9, rtol=0)
    fitted = C.StreamingCCA().partial_fit(dead, y).finalize()
    torch.testing.assert_close(fitted.correlations, expected, atol=1e-9, rtol=0)
    assert all(p.isfinite().all() for p in fitted.projections)
    constant = torch.ones(60, 4).double()
    torch.testing.assert_close(C.canonical_correlations(constant, y), torch.zeros(3).double())
    with pytest.raises(ValueError, match="rank"):
        C.StreamingCCA().partial_fit(constant, y).finalize(1)


def test_streaming_rejects_what_it_cannot_use() -> None:
    x, y = views()
    s = C.StreamingCCA().partial_fit(x, y)
    with pytest.raises(ValueError, match="widths"):
        s.partial_fit(y, x)
    with pytest.raises(ValueError, match="finite"):
        s.partial_fit(x * torch.nan, y)
    with pytest.raises(ValueError, match="2 views"):
        s.partial_fit(x)
    with pytest.raises(ValueError, match="leading shape"):
        s.partial_fit(x, y[:5])
    with pytest.raises(ValueError, match="2 rows"):
        C.StreamingCCA().finalize(1)
    assert s.count == 60
    assert s.merge(C.StreamingCCA()).count == 60


def test_relative_ridge_follows_the_scale_of_each_view() -> None:
    x, y = views()
    padded = torch.cat([100 * x, torch.zeros(60, 5).double()], 1)
    plain = C.StreamingCCA().partial_fit(x, y)
    scaled = C.StreamingCCA().partial_fit(padded, y)
    a = plain.finalize(3, plain.relative_ridge(0.1))
    b = scaled.finalize(3, scaled.relative_ridge(0.1))
    assert plain.relative_ridge(0.1)[0] == pytest.approx(0.1 * float(x.var(0).mean()))
    torch.testing.assert_close(a.correlations, b.correlations)


# --- DCCA -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["nuclear", "frobenius"])
def test_dcca_gradcheck(norm) -> None:
    x, y = (v.requires_grad_() for v in views(n=12, widths=(3, 2)))
    assert torch.autograd.gradcheck(lambda a, b: C.dcca_loss(a, b, 1e-3, norm), (x, y))


def test_dcca_is_minus_the_sum_of_correlations() -> None:
    x, y = views()
    rho = C.canonical_correlations(x, y, ridge=0.01)
    torch.testing.assert_close(C.dcca_loss(x, y, 0.01), -rho.sum())
    torch.testing.assert_close(C.dcca_loss(x, y, 0.01, "frobenius"), -rho.square().sum())


def test_dcca_gradient_equals_the_closed_form() -> None:
    x, y = views()
    n, r = 59, 1e-3
    x.requires_grad_()
    C.dcca_loss(x, y, r).backward()
    xc, yc = (x - x.mean(0)).detach(), y - y.mean(0)
    s1, s2, s12 = xc.T @ xc / n + r * torch.eye(4), yc.T @ yc / n + r * torch.eye(3), xc.T @ yc / n
    h1, h2 = (torch.tensor(scipy.linalg.fractional_matrix_power(s.numpy(), -0.5)) for s in (s1, s2))
    p, d, qh = torch.linalg.svd(h1 @ s12 @ h2, full_matrices=False)
    d12, d11 = h1 @ p @ qh @ h2, -0.5 * h1 @ p @ d.diag() @ p.T @ h1
    torch.testing.assert_close(x.grad, -(2 * xc @ d11 + yc @ d12.T) / n, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ["whitened", "collapsed", "rank one and large", "both equal"])
def test_dcca_gradient_is_finite_where_training_ends(dtype: torch.dtype, case: str) -> None:
    x, y = views(n=64, widths=(4, 4))
    if case == "whitened":  # the optimum of DCCA: equal singular values everywhere
        x = torch.linalg.qr(x - x.mean(0)).Q * math.sqrt(63)
        y = x.clone()
    elif case == "collapsed":
        x = torch.ones_like(x)
    elif case == "rank one and large":
        x = 1e3 * x[:, :1] @ torch.ones(1, 4).double()
    else:
        y = x.clone()
    x, y = x.to(dtype).requires_grad_(), y.to(dtype).requires_grad_()
    loss = C.dcca_loss(x, y)
    assert loss.dtype == dtype
    for grad in torch.autograd.grad(loss, (x, y)):
        assert grad.isfinite().all()


def test_dcca_needs_more_rows_than_widths() -> None:
    x, y = views(n=7)
    with pytest.raises(ValueError, match="4 \\+ 3, but got 7"):
        C.dcca_loss(x, y)
    # With n - 1 < d1 + d2, some correlations are 1 whatever the encoder: why the loss refuses.
    a, b = randn(15, 10), randn(15, 10, seed=1)
    assert int((C.canonical_correlations(a, b) > 1 - 1e-9).sum()) == 10 + 10 - 14
    with pytest.raises(ValueError, match="singular"):
        C.dcca_loss(torch.ones(20, 3), randn(20, 3).float(), ridge=0.0)
    with pytest.raises(ValueError, match="norm"):
        C.dcca_loss(*views(), norm="nuclaer")  # type: ignore[arg-type]


# --- contrastive ------------------------------------------------------------------------------------------------------


def test_clip_loss_equals_open_clip() -> None:
    for n in (1, 2, 9):
        a, b = (torch.nn.functional.normalize(randn(n, 5, seed=s), dim=1) for s in (0, 1))
        expected = ClipLoss()(a, b, torch.tensor(14.3, dtype=torch.float64))
        torch.testing.assert_close(C.clip_loss(a, b, 14.3), expected, atol=1e-12, rtol=0)


def test_clip_loss_at_chance_and_at_large_scale() -> None:
    a = torch.ones(8, 3)
    torch.testing.assert_close(C.clip_loss(a, a, 100.0), torch.tensor(math.log(8)))
    x = randn(8, 3, dtype=torch.float32).requires_grad_()
    loss = C.clip_loss(x, -x, 500.0)
    (grad,) = torch.autograd.grad(loss, x)
    assert loss.isfinite()
    assert grad.isfinite().all()


def test_hinge_sign_and_loop() -> None:
    eye = torch.eye(4).double()
    assert C.hinge_loss(eye, eye, 0.2) == 0
    assert C.hinge_loss(eye, -eye, 0.2) > 1
    a, b, margin = randn(6, 4), randn(6, 4, seed=1), 0.3
    s = C.similarity(a, b, "cosine")
    terms = [
        max(0.0, margin - s[i, i].item() + pair)
        for i in range(6)
        for j in range(6)
        if i != j
        for pair in (s[i, j].item(), s[j, i].item())
    ]
    assert C.hinge_loss(a, b, margin).item() == pytest.approx(np.mean(terms), abs=1e-12)
    rows = [max(margin - s[i, i] + s[i, j] for j in range(6) if i != j).clamp(min=0) for i in range(6)]
    columns = [max(margin - s[i, i] + s[j, i] for j in range(6) if i != j).clamp(min=0) for i in range(6)]
    assert C.hinge_loss(a, b, margin, "hardest").item() == pytest.approx(np.mean(rows + columns), abs=1e-12)


def test_duplicates_are_no_negatives() -> None:
    a, b = randn(3, 4), randn(3, 4, seed=1)
    ids = torch.tensor([0, 1, 2])
    double_a, double_b = torch.cat([a, a]), torch.cat([b, b])
    for loss in (lambda *x, **k: C.clip_loss(*x, 5.0, **k), lambda *x, **k: C.hinge_loss(*x, 0.2, "hardest", **k)):
        torch.testing.assert_close(loss(a, b, same_id=ids), loss(a, b))
        assert loss(double_a, double_b, same_id=ids.repeat(2)) < loss(double_a, double_b)
    # By hand: with the copy excluded each row sees its positive and two distinct negatives, twice each.
    logits = 5 * C.similarity(a, b, "cosine")
    other = ~torch.eye(3, dtype=torch.bool)

    def nll(m: Tensor) -> Tensor:
        return torch.stack(
            [torch.log(m[i, i].exp() + 2 * m[i][other[i]].exp().sum()) - m[i, i] for i in range(3)]
        ).mean()

    got = C.clip_loss(double_a, double_b, 5.0, same_id=ids.repeat(2))
    torch.testing.assert_close(got, (nll(logits) + nll(logits.T)) / 2)


def test_zero_shot_loop() -> None:
    image, templates = randn(5, 4), randn(3, 2, 4, seed=1)
    rows = []
    for x in image:
        scores = []
        for prompts in templates:
            w = sum(t / t.norm() for t in prompts) / 2
            scores.append(20 * x @ w / (x.norm() * w.norm()))
        rows.append(torch.stack(scores).softmax(0))
    torch.testing.assert_close(C.zero_shot(image, templates, 20.0), torch.stack(rows))
    assert C.zero_shot(image.view(5, 1, 4), templates, 1.0).shape == (5, 1, 3)


# --- codes ------------------------------------------------------------------------------------------------------------


def test_collapse_is_seen() -> None:
    healthy, collapsed = randn(200, 6), torch.ones(200, 6) + 1e-9 * randn(200, 6).float()
    u = torch.nn.functional.normalize(healthy, dim=1)
    expected = (u @ u.T)[~torch.eye(200, dtype=torch.bool)].mean()
    torch.testing.assert_close(C.mean_cosine(healthy), expected)
    assert C.mean_cosine(collapsed) > 0.999
    assert C.effective_rank(collapsed) == 0
    assert 5 < C.effective_rank(healthy) <= 6
    line = healthy[:, :1] @ torch.ones(1, 6).double()
    assert C.effective_rank(line).item() == pytest.approx(1, abs=1e-6)
    assert C.effective_rank(healthy * torch.nan).isnan()


def test_retrieval_ranks_against_a_loop_and_ties_are_no_hits() -> None:
    a, b = randn(50, 4), randn(50, 4, seed=1) + randn(50, 4)
    s = C.similarity(a, b, "cosine")
    ranks = np.array([1 + int((s[i] > s[i, i]).sum()) for i in range(50)])
    assert C.retrieval(a, b) == {
        **{f"R@{k}": np.mean(ranks <= k) for k in (1, 5, 10)},
        "median_rank": torch.tensor(ranks).median(),
    }
    same = torch.ones(21, 4)
    assert C.retrieval(same, same) == {"R@1": 0, "R@5": 0, "R@10": 0, "median_rank": 21}
    assert C.retrieval(same * torch.nan, same)["R@10"] == 0
    assert C.retrieval(a, a)["R@1"] == 1


# --- precision and shapes ---------------------------------------------------------------------------------------------

FUNCTIONS = {
    "similarity": lambda a, b: C.similarity(a, b, "rbf"),
    "canonical_correlations": C.canonical_correlations,
    "dcca_loss": C.dcca_loss,
    "clip_loss": lambda a, b: C.clip_loss(a, b, 10.0),
    "hinge_loss": lambda a, b: C.hinge_loss(a, b, 0.2),
    "zero_shot": lambda a, b: C.zero_shot(a, b.view(8, 4, 4), 10.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_half_precision_is_computed_in_full(name: str) -> None:
    a, b = randn(32, 4), randn(32, 4, seed=1) + randn(32, 4)
    for dtype in (torch.float16, torch.bfloat16):
        low, low_b = a.to(dtype), b.to(dtype)
        got = FUNCTIONS[name](low, low_b)
        assert got.dtype == dtype
        assert got.isfinite().all()
        expected = FUNCTIONS[name](low.double(), low_b.double())
        torch.testing.assert_close(got, expected.to(dtype), atol=1e-3, rtol=1e-2)
    full = FUNCTIONS[name](a.float(), b.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(FUNCTIONS[name](a.float(), b.float()), full, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("similarity", "zero_shot")])
def test_leading_dimensions_are_rows(name: str) -> None:
    a, b = randn(32, 4), randn(32, 4, seed=1)
    strided = torch.stack([a, a], -1)[..., 0].view(4, 8, 4)
    assert not strided.is_contiguous()
    torch.testing.assert_close(FUNCTIONS[name](strided, b.view(4, 8, 4)), FUNCTIONS[name](a, b))
    with pytest.raises(ValueError, match="paired"):
        FUNCTIONS[name](a, b[:-1])
