"""The fusion methods: parameter counts, initialisation, missing modalities, and equality with the functional core."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from datamodules.spec import Batch, Modality, Task
from methods import Method, Output, Recipe, methods
from methods.functional import fusion
from methods.gated import Gated, straight_through
from methods.low_rank import LowRank
from methods.polynomial import Polynomial
from methods.tensor import TensorFusion

WIDTH = 6
NAMES = ("multiplicative", "polynomial", "tensor", "low_rank", "compact_bilinear", "gated")


def task(count: int, target: str = "multiclass") -> Task:
    views = tuple(Modality(f"m{i}", "vector", (3,)) for i in range(count))
    return Task("toy", "1", views, target, 4)  # pyright: ignore[reportArgumentType]


def build(name: str, count: int = 3, width: int = WIDTH, target: str = "multiclass", **options: Any) -> Any:
    torch.manual_seed(0)
    return methods.get(name)(task(count, target), Recipe(width=width), **options)


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
VARIANTS = [
    *[(name, options) for name, options, _ in COUNTS],
    ("tensor", {"features": 3, "tri": False}),
    ("low_rank", {"init": "ones"}),
    ("gated", {"attention": "hard"}),
    ("gated", {"normalisation": "sigmoid", "granularity": "vector"}),
    ("compact_bilinear", {"sketch": 31, "constant": False}),
]


@pytest.mark.parametrize(("name", "options", "formula"), COUNTS, ids=lambda v: str(v) if not callable(v) else "")
@pytest.mark.parametrize("count", [2, 3, 4])
def test_parameter_counts(name: str, options: dict[str, Any], formula: Callable[[int], int], count: int):
    method = build(name, count, **options)
    assert own_parameters(method) == formula(count)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
@pytest.mark.parametrize("count", [2, 3])
def test_fuse_has_the_width_of_the_head_and_trains_every_parameter(name: str, options: dict[str, Any], count: int):
    method = build(name, count, **options)
    z, present = encodings(count)
    fused = method.fuse(z.requires_grad_(), present)
    assert fused.shape == (8, method.head.in_features)
    if options.get("attention") == "hard":
        return  # trained by expected_loss, below
    (fused * torch.randn(fused.shape)).sum().backward()
    assert z.grad is not None
    assert (z.grad.abs().amax(dim=(0, 2)) > 0).all()
    own = {n: p for n, p in method.named_parameters() if not n.startswith(("encoders.", "head."))}
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in own.values())
    assert all(p.grad.any() for p in own.values())


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_state_dict_round_trip(name: str, options: dict[str, Any]):
    first = build(name, **options)
    torch.manual_seed(5)
    second = methods.get(name)(task(3), Recipe(width=WIDTH), **options)
    second.load_state_dict(first.state_dict())
    z, present = encodings()
    assert torch.equal(first.eval().fuse(z, present), second.eval().fuse(z, present))


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_forward_on_meta(name: str, options: dict[str, Any]):
    with torch.device("meta"):
        method = methods.get(name)(task(3), Recipe(width=WIDTH), **options)
        out = method({f"m{i}": torch.empty(2, 3) for i in range(3)})
    assert out.logits.shape == (2, 4)


@pytest.mark.parametrize("name", NAMES)
def test_under_autocast_products_are_float32(name: str):
    method = build(name).eval()
    z, present = encodings()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert method.fuse(z.bfloat16(), present).dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("multiplicative", {"kind": "tucker"}, "one of 'hadamard', 'bilinear', got 'tucker'"),
        ("polynomial", {"order": 1}, "`order` must be an integer >= 2, got 1"),
        ("polynomial", {"order": 3, "rank": 0}, "`rank` must be an integer >= 1, got 0"),
        ("tensor", {"features": 0}, "`features` must be an integer >= 1, got 0"),
        ("tensor", {"uni": False, "bi": False, "tri": False}, "at least one of"),
        ("low_rank", {"rank": 0}, "`rank` must be an integer >= 1, got 0"),
        ("low_rank", {"init": "xavier"}, "got 'xavier'"),
        ("compact_bilinear", {"sketch": 1}, "`sketch` must be an integer >= 2, got 1"),
        ("gated", {"sees": "none"}, "`sees` must be one of 'target', 'other', 'all', got 'none'"),
        ("gated", {"attention": "hard", "granularity": "vector"}, "needs `granularity` 'scalar'"),
    ],
)
def test_bad_options_are_named(name: str, options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        build(name, **options)


# ---- the initial scale -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "count"),
    [
        ("multiplicative", {"kind": "bilinear"}, 3),
        ("polynomial", {"order": 3}, 3),
        ("polynomial", {"order": 5}, 3),
        ("tensor", {"features": 8}, 3),
        ("tensor", {"features": 8, "tri": False}, 3),
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
        torch.testing.assert_close(build("gated", granularity=granularity).fuse(z, present), mean)
        sigmoid = build("gated", granularity=granularity, normalisation="sigmoid")
        torch.testing.assert_close(sigmoid.fuse(z, present), half_sum)


# ---- equality with the functional core -----------------------------------------------------------------------------


def test_low_rank_method_is_the_function():
    method: LowRank = build("low_rank", rank=5)
    z, present = encodings()
    factors = []
    for linear in method.factors:
        assert isinstance(linear, nn.Linear)
        u = torch.cat([linear.bias.unsqueeze(1), linear.weight], dim=1)  # [r * O, D], the constant first
        factors.append(u.view(5, WIDTH, -1).transpose(1, 2))
    expected = fusion.low_rank(z.unbind(1), factors, method.rank_weights, method.bias)
    torch.testing.assert_close(method.fuse(z, present), expected)


def test_polynomial_method_is_the_function():
    method: Polynomial = build("polynomial", order=3, rank=5)
    z, present = encodings()
    a = torch.cat([method.factors.bias.unsqueeze(1), method.factors.weight], dim=1)
    factors = a.view(3, 5, WIDTH, -1).transpose(2, 3)
    torch.testing.assert_close(method.fuse(z, present), fusion.polynomial(z.unbind(1), factors))


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
        method: Gated = build("gated", attention=attention).eval()
        method.gates[1].bias.data.fill_(50.0)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
        weights = method.weights(z, present)
        assert weights is not None
        assert (weights[:4, 1] == 0).all()
        assert (weights[4:, 1] > 0.99).all()
        torch.testing.assert_close(weights.sum(1), torch.ones(8))
        torch.testing.assert_close(method.fuse(z, present), (weights.unsqueeze(-1) * z).sum(1))


def test_weights_of_vector_gates_are_their_means():
    method: Gated = build("gated", granularity="vector")
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


# ---- the order blocks of the tensor --------------------------------------------------------------------------------


def test_order_blocks_can_be_switched_off():
    z, present = encodings()
    full: TensorFusion = build("tensor", features=3)
    parts = torch.zeros(8, 64)
    for block in ("bias", "uni", "bi", "tri"):
        off = {name: False for name in ("bias", "uni", "bi", "tri") if name != block}
        if block == "bias":
            parts = parts + full.weight[0, 0, 0]
            continue
        method: TensorFusion = build("tensor", features=3, **off)
        method.load_state_dict(full.state_dict())
        parts = parts + method.fuse(z, present)
    torch.testing.assert_close(full.fuse(z, present), parts)
    no_tri: TensorFusion = build("tensor", features=3, tri=False)
    no_tri.load_state_dict(full.state_dict())
    weight = full.weight.detach().clone()
    weight[1:, 1:, 1:] = 0
    xs = [z[:, m] @ full.projections[m].T for m in range(3)]
    torch.testing.assert_close(no_tri.fuse(z, present), fusion.tensor_fusion(xs, weight))


def test_tensor_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="low_rank"):
        build("tensor", 5)
    assert "low_rank" in (TensorFusion.applies_to(task(5), {}) or "")
    assert TensorFusion.applies_to(task(5), {"features": 8}) is None
    assert TensorFusion.applies_to(task(3), {}) is None
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


def test_hard_gates_are_the_argmax_in_eval_and_when_enumerated():
    method: Gated = build("gated", attention="hard")
    torch.manual_seed(3)
    for gate in method.gates:
        nn.init.normal_(gate.weight)  # pyright: ignore[reportArgumentType]
    z, present = encodings()
    expected = z[torch.arange(8), method.gate_logits(z).argmax(1)]
    for mode in (True, False):
        assert torch.equal(method.train(mode).fuse(z, present), expected)


def test_beyond_eight_modalities_hard_gates_are_sampled_in_training_only():
    method: Gated = build("gated", 9, attention="hard")
    (stage,) = method.stages()
    assert stage.loss == "task"
    z, present = encodings(9)
    method.train()
    torch.manual_seed(0)
    first, second = method.fuse(z, present), method.fuse(z, present)
    assert not torch.equal(first, second)
    distance = torch.cdist(first.unsqueeze(1), z).squeeze(1).min(dim=1).values
    assert distance.max() < 1e-5  # each row is one of its modalities
    first.square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in method.gates.parameters())
    method.eval()
    assert torch.equal(method.fuse(z, present), method.fuse(z, present))


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_gumbel_frequencies_are_the_softmax(temperature: float):
    torch.manual_seed(0)
    logits = torch.tensor([0.3, -1.0, 0.8, 2.0]).expand(200_000, 4)
    present = torch.tensor([True, True, True, False]).expand(200_000, 4)
    sample = straight_through(logits, present, temperature)
    expected = torch.tensor([0.3, -1.0, 0.8]).softmax(0)
    torch.testing.assert_close(sample.mean(0)[:3], expected, atol=5e-3, rtol=0)
    assert (sample[:, 3] == 0).all()
    torch.testing.assert_close(sample.max(dim=1).values, torch.ones(200_000))


def test_the_temperature_falls_to_three_tenths(monkeypatch: pytest.MonkeyPatch):
    method: Gated = build("gated", 9, attention="hard")
    found = []
    for epoch in (0, method.recipe.epochs - 1, 10 * method.recipe.epochs):
        monkeypatch.setattr(Gated, "current_epoch", epoch)
        found.append(method._temperature())
    assert found == pytest.approx([1.0, 0.3, 0.3])
