"""The fusion methods: parameter counts, initialisation, missing modalities, and equality with the functional core."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from datamodules.spec import Batch, Task
from methods import Method, Output, Recipe
from methods.functional import fusion
from methods.gated import Gated
from methods.low_rank import LowRank
from methods.polynomial import Polynomial
from methods.tensor import TensorFusion
from tests.methods import conftest

WIDTH = 6
NAMES = ("multiplicative", "polynomial", "tensor", "low_rank", "compact_bilinear", "gated")


def task(count: int, target: str = "multiclass") -> Task:
    return conftest.task(conftest.vectors(count), target, 4)


def build(name: str, count: int = 3, width: int = WIDTH, target: str = "multiclass", **options: Any) -> Any:
    return conftest.build(name, task(count, target), recipe=Recipe(width=width), **options)


def own_parameters(method: Method) -> int:
    """Trainable numbers that are neither the encoders' nor the head's."""
    shared = {id(p) for part in (method.encoders, method.head) if part is not None for p in part.parameters()}
    return sum(p.numel() for p in method.parameters() if id(p) not in shared)


def encodings(count: int = 3, width: int = WIDTH, rows: int = 8) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(rows, count, width), torch.ones(rows, count, dtype=torch.bool)


def gate_parameters(seen: Callable[[int], int], count: int, outputs: int) -> int:
    return count * (seen(count) * WIDTH + 1) * outputs


O = d = WIDTH  # the letters of the formulas
COUNTS: list[tuple[str, dict[str, Any], Callable[[int], int]]] = [
    ("multiplicative", {}, lambda M: O * M * (d + 1)),
    ("multiplicative", {"kind": "bilinear"}, lambda M: O * math.comb(M, 2) * d * d + O),
    ("polynomial", {}, lambda M: O * (1 + M * d + math.comb(M, 2) * d * d)),
    ("polynomial", {"order": 3, "rank": 5}, lambda M: 3 * 5 * O * (1 + M * d)),
    ("polynomial", {"order": 5, "rank": 2}, lambda M: 5 * 2 * O * (1 + M * d)),
    ("tensor", {"features": 3, "outputs": 7}, lambda M: 7 * 4**M + M * 3 * d),
    ("low_rank", {"rank": 5}, lambda M: 5 * O * M * (d + 1) + 5 + O),
    ("compact_bilinear", {}, lambda M: 0),
    ("gated", {}, lambda M: gate_parameters(lambda m: m, M, 1)),
    ("gated", {"sees": "target"}, lambda M: gate_parameters(lambda m: 1, M, 1)),
    ("gated", {"sees": "other", "granularity": "vector"}, lambda M: gate_parameters(lambda m: m - 1, M, O)),
]


@pytest.mark.parametrize(("name", "options", "formula"), COUNTS, ids=lambda v: str(v) if not callable(v) else "")
@pytest.mark.parametrize("count", [2, 3, 4])
def test_parameter_counts(name: str, options: dict[str, Any], formula: Callable[[int], int], count: int):
    method = build(name, count, **options)
    assert own_parameters(method) == formula(count)


@pytest.mark.parametrize("name", NAMES)
def test_under_autocast_products_are_float32(name: str):
    method = build(name).eval()
    z, present = encodings()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert method.fuse(z.bfloat16(), present).dtype == torch.float32


def test_hard_gates_need_one_softmax_weight_per_modality():
    with pytest.raises(ValueError, match="needs `granularity` 'scalar'"):
        build("gated", attention="hard", granularity="vector")


# ---- the initial scale -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "count"),
    [
        ("multiplicative", {"kind": "bilinear"}, 3),
        ("polynomial", {"order": 3}, 3),
        ("polynomial", {"order": 5}, 3),
        ("tensor", {"features": 8}, 3),
        ("tensor", {"features": 8, "orders": (0, 1, 2)}, 3),
        ("low_rank", {}, 2),
        ("low_rank", {}, 3),
        ("low_rank", {}, 5),
    ],
    ids=str,
)
def test_outputs_start_with_unit_variance(name: str, options: dict[str, Any], count: int):
    method = build(name, count, width=32, **options)
    z, present = encodings(count, 32, rows=4000)
    with torch.no_grad():
        std = method.fuse(z, present).std()
    assert 0.75 < std < 1.35


def test_low_rank_starts_around_one_from_four_modalities_on():
    assert not (build("low_rank", 3).factors[0].bias == 1).all()
    method = build("low_rank", 4)
    assert all((factor.bias == 1).all() for factor in method.factors)
    assert method.rank_weights.sum() == 0  # signs alternate
    assert not (build("low_rank", 4, init="unit").factors[0].bias == 1).all()


def test_gates_start_neutral():
    z, present = encodings()
    mean, half_sum = z.mean(dim=1), z.sum(dim=1) / 2
    for granularity in ("scalar", "vector"):
        softmax = build("gated", granularity=granularity, normalisation="softmax")
        torch.testing.assert_close(softmax.fuse(z, present), mean)
        sigmoid = build("gated", granularity=granularity)
        torch.testing.assert_close(sigmoid.fuse(z, present), half_sum)


# ---- equality with the functional core -----------------------------------------------------------------------------


def test_factors_of_a_linear_are_those_of_the_cp_form():
    """From the weights: `h_o = b_o + sum_r w_r prod_m <u_{m,r,o}, [1, z_m]>`, and so for the polynomial."""
    method: LowRank = build("low_rank", rank=5)
    z, present = encodings()
    first, second, third = (f.weight @ z[:, m].T + f.bias[:, None] for m, f in enumerate(method.factors))
    products = (first * second * third).view(5, WIDTH, 8)
    expected = torch.einsum("r,rob->bo", method.rank_weights, products) + method.bias
    torch.testing.assert_close(method.fuse(z, present), expected)
    cubic: Polynomial = build("polynomial", order=3, rank=5)
    first, second, third = (cubic.factors(z.flatten(1)).view(8, 3, 5, WIDTH)).unbind(dim=1)
    torch.testing.assert_close(cubic.fuse(z, present), (first * second * third).sum(dim=1))


def test_polynomial_of_order_two_has_no_triple_interaction():
    z, present = encodings()
    corners = {}
    for name in ("polynomial", "tensor"):
        method = build(name)
        total = torch.zeros(())
        for keep in range(8):  # inclusion-exclusion over present / zero
            on = torch.tensor([(keep >> m) & 1 for m in range(3)]).view(1, 3, 1)
            total = total + (-1) ** int(3 - on.sum()) * method.fuse(z * on, present)
        corners[name] = total.abs().max().item()
    assert corners["polynomial"] < 1e-4
    assert corners["tensor"] > 0.1


# ---- missing modalities --------------------------------------------------------------------------------------------


def test_tensor_with_a_modality_absent_is_the_tensor_fusion_of_the_others():
    method: TensorFusion = build("tensor", features=3)
    z, present = encodings()
    z[:, 1] = 0
    rest = [z[:, m] @ method.projections[m].T for m in (0, 2)]
    torch.testing.assert_close(method.fuse(z, present), fusion.tensor_fusion(rest, method.weight[:, 0]))


@pytest.mark.parametrize("name", ["polynomial", "tensor", "low_rank", "compact_bilinear", "multiplicative"])
def test_the_remaining_modality_still_counts(name: str):
    method = build(name).eval()
    z, present = encodings()
    z[:, 1:] = 0
    assert method.fuse(z, present).std(dim=0).max() > 0.01


def test_gates_renormalise_over_what_is_present():
    z, present = encodings()
    present[:4, 1] = False
    z[:4, 1] = 0
    for attention in ("soft", "hard"):
        method: Gated = build("gated", attention=attention, normalisation="softmax").eval()
        method.gates[1].bias.data.fill_(50.0)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
        weights = method.weights(z, present)
        assert weights is not None
        assert (weights[:4, 1] == 0).all()
        assert (weights[4:, 1] > 0.99).all()
        torch.testing.assert_close(weights.sum(1), torch.ones(8))
        torch.testing.assert_close(method.fuse(z, present), (weights.unsqueeze(-1) * z).sum(1))


def test_weights_of_vector_gates_are_their_means():
    method: Gated = build("gated", granularity="vector", normalisation="softmax")
    torch.manual_seed(3)
    for gate in method.gates:
        nn.init.normal_(gate.weight)  # pyright: ignore[reportArgumentType]
    z, present = encodings()
    weights = method.weights(z, present)
    assert weights is not None
    assert weights.shape == (8, 3)
    torch.testing.assert_close(weights.sum(1), torch.ones(8))
    assert weights.std() > 0.01


@pytest.mark.parametrize(("sees", "changes"), [("target", [0]), ("other", [1, 2]), ("all", [0, 1, 2])])
def test_a_gate_sees_what_it_says(sees: str, changes: list[int]):
    method: Gated = build("gated", sees=sees)
    torch.manual_seed(3)
    for gate in method.gates:
        nn.init.normal_(gate.weight)  # pyright: ignore[reportArgumentType]
    z, _ = encodings()
    moved = z.clone()
    moved[:, 0] += 1
    difference = (method.gate_logits(moved) - method.gate_logits(z)).abs().amax(dim=0)
    assert [m for m in range(3) if difference[m] > 0] == changes


@pytest.mark.parametrize("normalisation", ["sigmoid", "softmax"])
def test_what_a_gate_sees_matters_unless_two_share_a_softmax(normalisation: str):
    z, present = encodings(2)
    torch.manual_seed(3)
    weight = torch.randn(2, 1, WIDTH)
    target: Gated = build("gated", 2, sees="target", normalisation=normalisation)
    other: Gated = build("gated", 2, sees="other", normalisation=normalisation)
    for gate, w in zip(target.gates, weight, strict=True):
        gate.weight.data.copy_(w)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
    # The logit of one, negated, as that of the other: the only difference of a softmax, no difference to it.
    for gate, w in zip(other.gates, -weight.flip(0), strict=True):
        gate.weight.data.copy_(w)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
    same = torch.allclose(target.fuse(z, present), other.fuse(z, present), atol=1e-6)
    assert same == (normalisation == "softmax")
    assert build("gated").normalisation == "sigmoid"


# ---- the order blocks of the tensor --------------------------------------------------------------------------------


def test_order_blocks_add_up_to_the_whole():
    z, present = encodings()
    full: TensorFusion = build("tensor", features=3)
    parts = full.weight[0, 0, 0].expand(8, -1)  # order 0
    for order in (1, 2, 3):
        method: TensorFusion = build("tensor", features=3, orders=(order,))
        method.load_state_dict(full.state_dict())
        parts = parts + method.fuse(z, present)
    torch.testing.assert_close(full.fuse(z, present), parts)
    pairs: TensorFusion = build("tensor", features=3, orders=(0, 1, 2))
    pairs.load_state_dict(full.state_dict())
    weight = full.weight.detach().clone()
    weight[1:, 1:, 1:] = 0
    xs = [z[:, m] @ full.projections[m].T for m in range(3)]
    torch.testing.assert_close(pairs.fuse(z, present), fusion.tensor_fusion(xs, weight))


def test_tensor_refuses_what_does_not_fit():
    assert "low_rank" in (TensorFusion.applies_to(task(5), {}) or "")
    assert TensorFusion.applies_to(task(5), {"features": 8}) is None
    assert TensorFusion.applies_to(task(3), {}) is None
    assert TensorFusion.applies_to(task(3), {"orders": (3,)}) is None
    assert "no block" in (TensorFusion.applies_to(task(2), {"orders": (0, 3)}) or "")
    assert "labels" in (TensorFusion.applies_to(task(2, "pairs"), {}) or "")


# ---- compact bilinear ----------------------------------------------------------------------------------------------


def test_sketches_are_saved_and_independent():
    method = build("compact_bilinear", 2, width=64)
    assert {"hashes", "signs"} <= set(method.state_dict())
    assert not torch.equal(method.hashes[0], method.hashes[1])
    assert not torch.equal(method.signs[0], method.signs[1])
    assert set(method.signs.unique().tolist()) == {-1.0, 1.0}
    assert method.hashes.min() >= 0
    assert method.hashes.max() < 512


def test_compact_bilinear_is_normalised_signed_square_roots():
    method = build("compact_bilinear", 2, sketch=16, constant=False)
    z, present = encodings(2)
    psi = fusion.compact_bilinear(z[:, 0], z[:, 1], *method.hashes, *method.signs, 16)
    root = psi.sign() * psi.abs().sqrt()
    expected = root / root.norm(dim=1, keepdim=True)
    torch.testing.assert_close(method.fuse(z, present), expected, atol=1e-4, rtol=1e-4)


# ---- hard attention ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["multiclass", "multilabel", "regression"])
def test_hard_gates_train_on_the_exact_expected_loss(target: str):
    method: Gated = build("gated", attention="hard", target=target)
    torch.manual_seed(3)
    for gate in method.gates:
        nn.init.normal_(gate.weight)  # pyright: ignore[reportArgumentType]
    z, present = encodings()
    z.requires_grad_()
    present[:3, 2] = False
    labels = {"multiclass": torch.arange(8) % 4, "multilabel": torch.rand(8, 4).round(), "regression": torch.rand(8, 4)}
    batch = Batch({}, labels[target], present, torch.arange(8))
    (stage,) = method.stages()
    assert stage.loss == "terms"
    assert stage.terms == (method.expected_loss,)
    loss = method.expected_loss(Output({}, z, z[:, 0], z[:, 0]), batch)["expected"]
    expected = torch.zeros(())
    for b in range(8):
        probability = method.gate_logits(z)[b].masked_fill(~present[b], -torch.inf).softmax(0)
        for m in range(3):
            row = method.task.goal.loss(method.predict(z[b : b + 1, m]), batch.target[b : b + 1])
            expected = expected + probability[m] * row / 8
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in method.gates.parameters())


def test_hard_gates_are_the_argmax():
    method: Gated = build("gated", attention="hard")
    torch.manual_seed(3)
    for gate in method.gates:
        nn.init.normal_(gate.weight)  # pyright: ignore[reportArgumentType]
    z, present = encodings()
    expected = z[torch.arange(8), method.gate_logits(z).argmax(1)]
    for mode in (True, False):
        assert torch.equal(method.train(mode).fuse(z, present), expected)
