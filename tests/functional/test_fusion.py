"""The fusion core against its reference vectors, obvious loops, and the identities that tie the methods together."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from methods.functional import fusion

VECTORS = json.loads((Path(__file__).parents[1] / "references" / "fusion.json").read_text())["vectors"]
Vector = dict[str, Any]


def numbers(value: Any, dtype: torch.dtype) -> Tensor:
    return torch.tensor(value, dtype=torch.float64).to(dtype)


def run_additive(xs: list[Tensor], w: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"z": fusion.additive(xs, [w[f"W{m + 1}"] for m in range(len(xs))], w["b"])}


def run_hadamard(xs: list[Tensor], w: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"z": fusion.hadamard(xs, [w[f"P{m + 1}"] for m in range(len(xs))])}


def run_bilinear(xs: list[Tensor], w: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"z": fusion.bilinear(xs[0], xs[1], w["W"], w["b"])}


def run_poly2(xs: list[Tensor], w: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"z": fusion.polynomial2(xs, [w["W1"], w["W2"]], {(0, 1): w["W12"]}, w["b"])}


def run_tensor3(xs: list[Tensor], w: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"z": fusion.tensor_fusion(xs, w["W"])}


def run_lowrank3(xs: list[Tensor], w: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"z": fusion.low_rank(xs, [w["U1"], w["U2"], w["U3"]], w["w"], w["b"])}


def run_poly_order3(xs: list[Tensor], w: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"z": fusion.polynomial(xs, w["A"])}


def run_gate_sigmoid_all(xs: list[Tensor], w: dict[str, Tensor]) -> dict[str, Tensor]:
    seen = torch.cat(xs, dim=1)
    logits = torch.cat([seen @ w["G1"].T + w["c1"], seen @ w["G2"].T + w["c2"]], dim=1)
    g1, g2 = fusion.gates(logits, "sigmoid").split(1, dim=1)
    return {"z": fusion.gated(xs, logits, "sigmoid"), "g1": g1, "g2": g2}


def run_gate_softmax(xs: list[Tensor], w: dict[str, Tensor]) -> dict[str, Tensor]:
    logits = torch.cat(xs, dim=1) @ w["G"].T
    return {
        "z": fusion.gated(xs, logits, "softmax"),
        "z_hard": fusion.gated(xs, logits, "hard"),
        "p": fusion.gates(logits, "softmax"),
    }


RUN: dict[str, Callable[[list[Tensor], dict[str, Tensor]], dict[str, Tensor]]] = {
    "additive": run_additive,
    "hadamard": run_hadamard,
    "bilinear": run_bilinear,
    "poly2": run_poly2,
    "tensor3": run_tensor3,
    "lowrank3": run_lowrank3,
    "poly_order3": run_poly_order3,
    "gate_sigmoid_all": run_gate_sigmoid_all,
    "gate_softmax": run_gate_softmax,
}
FUSION_VECTORS = [v for v in VECTORS if v["id"].rsplit("_", 1)[0] in RUN]


def test_every_function_has_a_vector():
    assert {v["id"].rsplit("_", 1)[0] for v in FUSION_VECTORS} == set(RUN)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("vector", FUSION_VECTORS, ids=lambda v: v["id"])
def test_vectors(vector: Vector, dtype: torch.dtype):
    xs = [numbers(vector["inputs"][f"x{m}"], dtype) for m in (1, 2, 3) if f"x{m}" in vector["inputs"]]
    weights = {name: numbers(value, dtype) for name, value in vector["weights"].items()}
    found = RUN[vector["id"].rsplit("_", 1)[0]](xs, weights)
    tolerance = vector["atol"] if dtype == torch.float64 else 1e-5
    for name, value in found.items():
        assert value.dtype == dtype
        torch.testing.assert_close(value, numbers(vector["outputs"][name], dtype), atol=tolerance, rtol=tolerance)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def inputs(*dims: int, rows: tuple[int, ...] = (5,)) -> list[Tensor]:
    return [torch.randn(*rows, d, dtype=torch.float64) for d in dims]


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def outer_fusion(xs: list[Tensor], weight: Tensor) -> Tensor:
    """Tensor fusion by its definition: the whole outer product, row by row."""
    rows = []
    for row in zip(*xs, strict=True):
        product = torch.ones(1, dtype=weight.dtype)
        for x in row:
            product = torch.kron(product, torch.cat([torch.ones(1, dtype=x.dtype), x]))
        rows.append(product @ weight.reshape(-1, weight.shape[-1]))
    return torch.stack(rows)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


def test_additive_is_a_sum_over_modalities():
    xs, weights, bias = inputs(3, 4, 2), [normal(6, d) for d in (3, 4, 2)], normal(6)
    close(fusion.additive(xs, weights, bias), sum(x @ w.T for x, w in zip(xs, weights, strict=True)) + bias)
    # and additive in the strict sense: no interaction contrast
    a, b = inputs(3, 4)
    contrast = sum(
        sign * fusion.additive([x, y], weights[:2], bias)
        for sign, x, y in ((1, a, b), (-1, a, b + 1), (-1, a * 2, b), (1, a * 2, b + 1))
    )
    close(contrast, torch.zeros(5, 6, dtype=torch.float64))


def test_bilinear_is_kronecker():
    (x, y), weight, bias = inputs(3, 4), normal(3, 4, 5), normal(5)
    found = fusion.bilinear(x, y, weight, bias)
    kron = torch.stack([torch.kron(a, b) for a, b in zip(x, y, strict=True)])
    close(found, kron @ weight.reshape(12, 5) + bias)
    close(found, F.bilinear(x, y, weight.permute(2, 0, 1).contiguous(), bias))


def test_pairwise_is_the_sum_of_its_bilinear_maps():
    xs = inputs(3, 4, 2)
    weights = {(i, j): normal(xs[i].shape[1], xs[j].shape[1], 5) for i, j in itertools.combinations(range(3), 2)}
    close(fusion.pairwise(xs, weights), sum(fusion.bilinear(xs[i], xs[j], w) for (i, j), w in weights.items()))
    with pytest.raises(ValueError, match="at least one pair"):
        fusion.pairwise(xs, {})


def test_polynomial2_is_tensor_fusion_without_the_higher_blocks():
    xs = inputs(3, 4, 2)
    weights, bias = [normal(5, d) for d in (3, 4, 2)], normal(5)
    pairs = {(i, j): normal(xs[i].shape[1], xs[j].shape[1], 5) for i, j in itertools.combinations(range(3), 2)}
    full = torch.zeros(4, 5, 3, 5, dtype=torch.float64)
    full[0, 0, 0] = bias
    full[1:, 0, 0], full[0, 1:, 0], full[0, 0, 1:] = (w.T for w in weights)
    full[1:, 1:, 0], full[1:, 0, 1:], full[0, 1:, 1:] = pairs[0, 1], pairs[0, 2], pairs[1, 2]
    close(fusion.polynomial2(xs, weights, pairs, bias), fusion.tensor_fusion(xs, full))


@pytest.mark.parametrize("dims", [(3, 4), (1, 6), (3, 2, 4), (2, 1, 3, 2), (1, 2, 1, 2, 2)])
@pytest.mark.parametrize("outputs", [1, 7])
def test_split_gemm_is_the_outer_product(dims: tuple[int, ...], outputs: int):
    xs = [x.requires_grad_() for x in inputs(*dims)]
    weight = normal(*[d + 1 for d in dims], outputs).requires_grad_()
    found, expected = fusion.tensor_fusion(xs, weight), outer_fusion(xs, weight)
    close(found, expected)
    direction = normal(*found.shape)
    for a, b in zip(
        torch.autograd.grad(found, [*xs, weight], direction),
        torch.autograd.grad(expected, [*xs, weight], direction),
        strict=True,
    ):
        close(a, b)


def test_split_point_minimises_the_intermediate():
    assert fusion.split_point((33, 33, 33), 64) == 2  # 33 + 69,696 or 1,089 + 2,112
    assert fusion.split_point((129, 129), 64) == 1  # there is no other cut
    assert fusion.split_point((2, 2, 2, 20), 1) == 3  # 2 + 80, 4 + 40 or 8 + 20
    assert fusion.split_point((20, 2, 2, 2), 1) == 1  # 20 + 8, 40 + 4 or 80 + 2
    assert fusion.split_point((20, 2, 2, 2), 8) == 2  # 20 + 64, 40 + 32 or 80 + 16


def test_split_gemm_never_holds_the_outer_product():
    dims, rows, outputs = (16, 16, 16), 32, 4
    xs = [torch.randn(rows, d, requires_grad=True) for d in dims]
    weight = torch.randn(17, 17, 17, outputs, requires_grad=True)
    sizes: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() != weight.data_ptr():
            sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        fusion.tensor_fusion(xs, weight)
    assert 0 < max(sizes) < rows * 17**3 / 4


def test_tensor_fusion_names_the_shape_it_expects():
    with pytest.raises(ValueError, match=r"\(4, 5, 'O'\)"):
        fusion.tensor_fusion(inputs(3, 4), normal(3, 4, 2))


def test_low_rank_is_tensor_fusion_with_the_reconstructed_weight():
    xs, dims = inputs(3, 4, 2), (4, 5, 3)
    factors, w, bias = [normal(6, d, 5) for d in dims], normal(6), normal(5)
    weight = torch.einsum("r,rio,rjo,rko->ijko", w, *factors)
    close(fusion.low_rank(xs, factors, w, bias), fusion.tensor_fusion(xs, weight) + bias)


def test_two_modalities_have_an_exact_low_rank_form():
    xs, weight = inputs(3, 5), normal(4, 6, 7)
    left, values, right = torch.linalg.svd(weight.permute(2, 0, 1), full_matrices=False)  # one per output
    u = (left * values.unsqueeze(1)).permute(2, 1, 0)  # [r, D_1, O]
    v = right.permute(1, 2, 0)  # [r, D_2, O]
    rank = min(4, 6)
    assert u.shape == (rank, 4, 7)
    assert v.shape == (rank, 6, 7)
    close(fusion.low_rank(xs, [u, v], torch.ones(rank).double(), None), fusion.tensor_fusion(xs, weight))


def test_polynomial_is_the_full_tensor_on_the_concatenation():
    xs, factors = inputs(2, 1), normal(3, 4, 4, 5)
    c = fusion.with_one(torch.cat(xs, 1))
    weight = torch.einsum("rio,rjo,rko->ijko", *factors)
    close(fusion.polynomial(xs, factors), torch.einsum("bi,bj,bk,ijko->bo", c, c, c, weight))


def test_polynomial_with_one_modality_per_factor_is_low_rank():
    xs, dims = inputs(3, 4, 2), (3, 4, 2)
    factors = [normal(6, d + 1, 5) for d in dims]
    wide = torch.zeros(3, 6, 10, 5, dtype=torch.float64)
    start = 1
    for m, d in enumerate(dims):
        wide[m, :, 0], wide[m, :, start : start + d] = factors[m][:, 0], factors[m][:, 1:]
        start += d
    close(fusion.polynomial(xs, wide), fusion.low_rank(xs, factors, torch.ones(6).double(), None))


def test_an_absent_modality_leaves_the_lower_order_terms():
    xs, dims = inputs(3, 4, 2), (4, 5, 3)
    xs[1] = torch.zeros_like(xs[1])
    rest = [xs[0], xs[2]]
    weight = normal(*dims, 6)
    close(fusion.tensor_fusion(xs, weight), fusion.tensor_fusion(rest, weight[:, 0]))
    factors, w, bias = [normal(3, d, 6) for d in dims], normal(3), normal(6)
    absorbed = [factors[0] * factors[1][:, :1], factors[2]]
    close(fusion.low_rank(xs, factors, w, bias), fusion.low_rank(rest, absorbed, w, bias))
    a = normal(3, 4, 10, 6)
    keep = [0, 1, 2, 3, 8, 9]
    close(fusion.polynomial(xs, a), fusion.polynomial(rest, a[:, :, keep]))


def test_softmax_gates_give_a_convex_combination():
    values = inputs(4, 4, 4)
    z = fusion.gated(values, normal(5, 3, 4), "softmax")
    stacked = torch.stack(values)
    assert (z <= stacked.max(0).values).all()
    assert (z >= stacked.min(0).values).all()
    assert not torch.equal(z, stacked.mean(0))


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 4)])
def test_neutral_gates(shape: tuple[int, ...]):
    values = inputs(4, 4, 4)
    zero = torch.zeros(shape, dtype=torch.float64)
    close(fusion.gated(values, zero, "softmax"), torch.stack(values).mean(0))
    close(fusion.gated(values, zero, "sigmoid"), torch.stack(values).sum(0) / 2)


@pytest.mark.parametrize("kind", ["sigmoid", "softmax", "hard"])
def test_gates_of_absent_modalities_are_zero_and_the_others_renormalise(kind: fusion.Gate):
    values, logits = inputs(4, 4, 4), normal(5, 3)
    logits[:, 1] += 100  # the absent one would win
    present = torch.tensor([True, False, True]).expand(5, 3)
    found = fusion.gated(values, logits, kind, present)
    close(found, fusion.gated([values[0], values[2]], logits[:, [0, 2]], kind))
    assert (fusion.gates(logits, kind, present)[:, 1] == 0).all()


def test_hard_gates_pick_the_largest_logit():
    values, logits = inputs(4, 4, 4), normal(5, 3)
    expected = torch.stack(values, 1)[torch.arange(5), logits.argmax(1)]
    assert torch.equal(fusion.gated(values, logits, "hard"), expected)
    with pytest.raises(ValueError, match="'soft'"):
        fusion.gated(values, logits, "soft")  # pyright: ignore[reportArgumentType]


def test_compact_bilinear_is_a_count_sketch_of_the_outer_product():
    for m in (7, 8):  # odd lengths need n=m in the inverse transform
        (x, y), h1, h2 = inputs(4, 3), torch.randint(m, (4,)), torch.randint(m, (3,))
        s1, s2 = torch.randint(2, (4,)) * 2.0 - 1, torch.randint(2, (3,)) * 2.0 - 1
        expected = torch.zeros(5, m, dtype=torch.float64)
        for i, j in itertools.product(range(4), range(3)):
            expected[:, (h1[i] + h2[j]) % m] += s1[i] * s2[j] * x[:, i] * y[:, j]
        close(fusion.compact_bilinear(x, y, h1, h2, s1, s2, m), expected)


def test_tensor_sketch_is_a_chain_of_compact_bilinear():
    m, xs = 8, inputs(4, 3, 5)
    hashes = [torch.randint(m, (x.shape[1],)) for x in xs]
    signs = [torch.randint(2, (x.shape[1],)).double() * 2 - 1 for x in xs]
    first = fusion.compact_bilinear(xs[0], xs[1], hashes[0], hashes[1], signs[0], signs[1], m)
    chained = fusion.compact_bilinear(first, xs[2], torch.arange(m), hashes[2], torch.ones(m).double(), signs[2], m)
    close(fusion.tensor_sketch(xs, hashes, signs, m), chained)


def test_compact_bilinear_is_unbiased_over_all_sketches():
    d, m = 2, 3
    x, y, x_, y_ = (normal(1, d) for _ in range(4))
    total, count = 0.0, 0
    hashes = [torch.tensor(h) for h in itertools.product(range(m), repeat=d)]
    signs = [torch.tensor(s) for s in itertools.product((-1.0, 1.0), repeat=d)]
    for h1, h2, s1, s2 in itertools.product(hashes, hashes, signs, signs):
        a, b = (fusion.compact_bilinear(*pair, h1, h2, s1, s2, m) for pair in ((x, y), (x_, y_)))
        total, count = total + float(a @ b.T), count + 1
    assert count == 1296
    assert total / count == pytest.approx(float((x @ x_.T) * (y @ y_.T)), rel=1e-10)


def test_signed_sqrt_has_a_finite_gradient_at_zero():
    x = torch.tensor([-4.0, 0.0, 9.0], requires_grad=True)
    found = fusion.signed_sqrt(x)
    close(found.detach(), torch.tensor([-2.0, 0.0, 3.0]), 1e-6)
    assert torch.isfinite(torch.autograd.grad(found.sum(), x)[0]).all()


def everything(xs: list[Tensor], rounded: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Every function on three modalities of width 4, with fixed weights, `rounded` and then of the inputs' dtype."""
    generator = torch.Generator().manual_seed(1)

    def weight(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(rounded).to(xs[0].dtype)

    h = [torch.randint(8, (4,), generator=generator) for _ in xs]
    s = [torch.randint(2, (4,), generator=generator) * 2.0 - 1 for _ in xs]
    logits = weight(*xs[0].shape[:-1], 3)
    square = [weight(4, 4) for _ in xs]
    pairs = {(0, 1): weight(4, 4, 4), (1, 2): weight(4, 4, 4)}
    return {
        "additive": fusion.additive(xs, square, weight(4)),
        "hadamard": fusion.hadamard(xs, square, [weight(4) for _ in xs]),
        "bilinear": fusion.bilinear(xs[0], xs[1], weight(4, 4, 3), weight(3)),
        "polynomial2": fusion.polynomial2(xs, square, pairs, weight(4)),
        "tensor_fusion": fusion.tensor_fusion(xs, weight(5, 5, 5, 2)),
        "low_rank": fusion.low_rank(xs, [weight(2, 5, 3) for _ in xs], weight(2), weight(3)),
        "polynomial": fusion.polynomial(xs, weight(3, 2, 13, 2)),
        "gated": fusion.gated(xs, logits, "softmax"),
        "compact_bilinear": fusion.compact_bilinear(xs[0], xs[1], h[0], h[1], s[0], s[1], 8),
    }


def test_leading_dimensions_and_memory_layout_do_not_matter():
    flat = inputs(4, 4, 4, rows=(6,))
    expected = everything(flat)
    strided = [torch.stack([x, x], dim=1)[:, 0] for x in flat]  # non-contiguous
    strided = [x.t().contiguous().t() for x in strided]
    for name, value in everything(strided).items():
        close(value, expected[name])
    generator_free = {name for name in expected if name != "gated"}  # its logits are drawn with the rows' shape
    for name, value in everything([x.reshape(2, 3, 4) for x in flat]).items():
        assert value.shape[:-1] == (2, 3), name
        if name in generator_free:
            close(value.reshape(6, -1), expected[name])


def test_one_row_keeps_its_batch_axis():
    for name, value in everything(inputs(4, 4, 4, rows=(1,))).items():
        assert value.shape[0] == 1, name
        assert value.dim() == 2, name


def test_different_rows_are_refused_by_name():
    x, y = torch.randn(5, 3), torch.randn(4, 3)
    with pytest.raises(ValueError, match=r"\(5, 3\), \(4, 3\)"):
        fusion.additive([x, y], [torch.randn(2, 3)] * 2)
    with pytest.raises(ValueError, match="leading dimensions"):
        fusion.bilinear(x, y, torch.randn(3, 3, 2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_inputs_are_multiplied_in_float32(dtype: torch.dtype):
    xs = [x.to(dtype) for x in inputs(4, 4, 4)]
    single = everything([x.float() for x in xs], rounded=dtype)
    for name, value in everything(xs, rounded=dtype).items():
        # One rounding, at the end; a product in half precision would round at every step.
        assert torch.equal(value, single[name].to(dtype)), name
    big = torch.full((1, 2), 300.0, dtype=dtype)
    half = torch.full((2, 2, 1), 1e-3, dtype=dtype)
    assert torch.isfinite(fusion.bilinear(big, big, half)).all()


def test_autocast_is_switched_off_inside():
    xs = [x.float() for x in inputs(4, 4, 4)]
    expected = everything(xs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.nn.functional.linear(xs[0], torch.randn(2, 4)).dtype == torch.bfloat16  # it is on
        found = everything(xs)
        low = fusion.hadamard([x.half() * 300 for x in xs], [torch.eye(4)] * 3)
    for name, value in found.items():
        assert value.dtype == torch.float32, name
        assert torch.equal(value, expected[name]), name
    assert low.dtype == torch.float32  # beyond the range of float16, as PyTorch's own float32 operations
    assert torch.isfinite(low).all()
    assert low.abs().max() > torch.finfo(torch.float16).max


def test_everything_runs_on_the_meta_device():
    xs = [x.to("meta") for x in inputs(4, 4)]
    weight = torch.empty(5, 5, 3, dtype=torch.float64, device="meta")
    assert fusion.tensor_fusion(xs, weight).shape == (5, 3)
    assert fusion.tensor_fusion([x.half() for x in xs], weight.half()).dtype == torch.float16
