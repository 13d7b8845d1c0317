"""EMMA as a module and as a method, its twins, and the corrupted batches they share."""

import math
import os
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor

from benchmark.trainer import fit
from datamodules.corruptions import corrupt, corruption_key
from datamodules.digit_halves import DigitHalves
from datamodules.pulsars import Pulsars
from datamodules.spec import Batch, Modality, Task
from methods import Base, Encoded, Method, Recipe, methods
from methods.emma import Emma, corruption_labels
from methods.parts.augmentation import SEVERITIES, augment, decoder
from methods.parts.energy_attention import DenoisingAutoencoder, EnergyAttention
from tests.methods import conftest

COUNT, DIM = 3, 4
RECIPE = Recipe(width=8, epochs=1, batch_size=128)


def features(rows: int = 6, seed: int = 0, count: int = COUNT) -> tuple[Tensor, Tensor]:
    """Encodings `[B, M, D]`, all present."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, count, DIM, generator=generator), torch.ones(rows, count, dtype=torch.bool)


def encoded(z: Tensor, present: Tensor) -> list[Encoded]:
    return [Encoded(z, present, torch.zeros(len(z)), torch.arange(len(z)))]


def attention(**options: object) -> EnergyAttention:
    """One with parameters away from their symmetric start."""
    torch.manual_seed(0)
    module = EnergyAttention(COUNT, DIM, **options)  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        for parameter in module.learned():
            parameter.add_(0.5 * torch.randn_like(parameter))
    module.standardize(encoded(*features(200, 1)))
    module.calibrate(encoded(*features(200, 1)))
    return module


def without(module: EnergyAttention, absent: int) -> EnergyAttention:
    """The same attention for all modalities but one."""
    keep = [k for k in range(len(module.daes)) if k != absent]
    small = EnergyAttention(len(keep), DIM, tau=module.tau, bias="free")
    small.daes = torch.nn.ModuleList(module.daes[k] for k in keep)
    with torch.no_grad():
        small.raw_w.copy_(module.raw_w[keep])
        small.raw_b.copy_(module.raw_b[keep])
        small.raw_gamma.copy_(module.gamma[keep[0], keep[1]].logit().reshape(1))
        small.raw_gain.copy_(module.raw_gain)
        small.raw_bias.copy_(module.bias.expm1().log())
    return small


# ---- the module ----


def test_rows_are_independent() -> None:
    module, (z, present) = attention(), features()
    out, info = module(z, present), module.attend(z, present)
    for b in range(len(z)):
        row = slice(b, b + 1)
        torch.testing.assert_close(module(z[row], present[row]), out[row])
        for together, apart in zip(info, module.attend(z[row], present[row]), strict=True):
            torch.testing.assert_close(together[row], apart)
    crowd = module(torch.cat([z, 50 * z]), torch.cat([present, present]))
    torch.testing.assert_close(crowd[: len(z)], out)


def test_potentials_are_float64_and_survive_autocast() -> None:
    module, (z, present) = attention(), features()
    plain = module.attend(z, present)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = module.attend(z, present)
    assert plain.V.dtype == torch.float64
    torch.testing.assert_close(cast.V, plain.V, rtol=0, atol=0)
    torch.testing.assert_close(cast.log_alpha, plain.log_alpha, rtol=0, atol=0)


def test_finite_for_huge_features_and_a_cold_softmax() -> None:
    module, (z, present) = attention(tau=20.0), features()
    z = (1e3 * z).requires_grad_()
    log_alpha = module.attend(z, present).log_alpha
    omega = module.regularizer(log_alpha, torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64), present)
    (module(z, present).sum() + omega).backward()
    assert torch.isfinite(log_alpha).all()
    for tensor in (*module.learned(), z):
        assert tensor.grad is not None
        assert torch.isfinite(tensor.grad).all()


@pytest.mark.parametrize("coupling", ["symmetric", "signed", "none"])
def test_constraints_hold_after_any_optimiser_step(coupling: str) -> None:
    module, (z, present) = attention(coupling=coupling), features()
    optimizer = torch.optim.SGD(module.learned(), lr=1e3)
    for _ in range(5):
        optimizer.zero_grad()
        (module(z, present).square().sum() - module.attend(z, present).log_alpha[:, 0].sum()).backward()
        optimizer.step()
        gamma = module.gamma
        assert (module.w >= 0).all()
        assert (module.b >= 0).all()
        assert module.gain >= 0
        assert module.bias >= 0
        assert ((gamma >= 0) & (gamma <= 1)).all()
        assert (gamma.diagonal() == 1).all()
        if coupling == "symmetric":
            assert torch.equal(gamma, gamma.T)


def test_without_coupling_the_energy_of_a_mode_is_its_own() -> None:
    module, (z, present) = attention(coupling="none"), features()
    info = module.attend(z, present)
    torch.testing.assert_close(info.E, torch.where(present, info.phi, 0.0))
    other = z.clone()
    other[:, 1] += 3.0
    torch.testing.assert_close(module.attend(other, present).E[:, [0, 2]], info.E[:, [0, 2]], rtol=0, atol=0)


def test_permuting_modalities_permutes_the_output() -> None:
    module, (z, present) = attention(), features()
    order = [2, 0, 1]
    other = EnergyAttention(COUNT, DIM)
    other.daes = torch.nn.ModuleList(module.daes[k] for k in order)
    with torch.no_grad():
        for name in ("raw_w", "raw_b"):
            getattr(other, name).copy_(getattr(module, name)[order])
        gamma = module.gamma[order][:, order]
        other.raw_gamma.copy_(torch.stack([gamma[i, j] for i, j in other.pairs.tolist()]).logit())
        other.raw_gain.copy_(module.raw_gain)
        other.raw_bias.copy_(module.raw_bias)
    torch.testing.assert_close(other(z[:, order], present), module(z, present)[:, order])


@pytest.mark.parametrize("absent", range(3))
def test_absent_modality_equals_an_attention_without_it(absent: int) -> None:
    module, (z, present) = attention(tau=0.1), features()
    present[:, absent] = False
    z[:, absent] = 0
    out, info = module(z, present), module.attend(z, present)
    keep = [k for k in range(3) if k != absent]
    rest, alone = z[:, keep], present[:, keep]
    small = without(module, absent).attend(rest, alone)
    torch.testing.assert_close(info.alpha[:, keep], small.alpha)
    torch.testing.assert_close(info.beta[:, keep], small.beta)
    torch.testing.assert_close(info.S, small.S * (3 / 2) ** 2)  # nine pairs at the mean of four
    torch.testing.assert_close(out[:, keep], without(module, absent)(rest, alone))
    assert (out[:, absent] == 0).all()
    assert (info.beta[:, absent] == 0).all()


def test_system_energy_does_not_fall_because_a_modality_is_missing() -> None:
    module, (z, present) = attention(), features()
    with torch.no_grad():
        module.raw_w.fill_(1.0)
        module.raw_b.fill_(1.0)
    for dae in module.daes:
        dae.load_state_dict(module.daes[0].state_dict())
    z = z[:, :1].expand(-1, COUNT, -1)  # all modes look alike, so whichever is missing, the row is as normal
    complete = module.attend(z, present)
    torch.testing.assert_close(complete.S, complete.E.sum(-1), rtol=0, atol=0)
    for absent in range(COUNT):
        there = present.clone()
        there[:, absent] = False
        torch.testing.assert_close(module.attend(z, there).S, complete.S)


@pytest.mark.parametrize("bias", ["safe", "free"])
def test_separate_curves_start_as_the_shared_one_and_learn_apart(bias: str) -> None:
    z, present = features()
    shared, separate = attention(bias=bias), attention(bias=bias, shared=False)
    separate.load_state_dict(
        {k: v.expand(COUNT) if k in ("raw_gain", "raw_bias") else v for k, v in shared.state_dict().items()}
    )
    for one, each in ((shared(z, present), separate(z, present)), (shared.capacity(), separate.capacity())):
        torch.testing.assert_close(one, each)
    separate(z, present)[:, 0].sum().backward()
    assert separate.raw_gain.grad is not None
    assert separate.raw_gain.grad[0] != 0 and (separate.raw_gain.grad[1:] == 0).all()


def test_laplacian_eta_is_the_sign_of_each_laplacian() -> None:
    module, (z, present) = attention(), features(40)
    z, present[:5, 1] = 4 * z, False
    eta = module.normality(z, present)
    for m, dae in enumerate(module.autoencoders):
        sign = torch.where(dae.laplacian(z[:, m]) > 0, 1.0, -1.0).to(eta.dtype)
        assert torch.equal(eta[:, m], torch.where(present[:, m], sign, 0.0))
    assert not eta.requires_grad


def test_nothing_present_gives_zeros() -> None:
    module, (z, present) = attention(), features()
    assert (module(z, ~present) == 0).all()
    assert (module.attend(z, ~present).alpha == 0).all()


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0, 1e3])
def test_safe_bias_keeps_one_mode_alive(scale: float) -> None:
    module, (z, present) = attention(tau=5.0), features(100)
    with torch.no_grad():
        module.raw_bias.fill_(8.0)  # nearly G / M
    assert (module.attend(scale * z, present).beta > 0).any(dim=1).all()
    free = attention(tau=0.0, bias="free")
    with torch.no_grad():
        free.raw_bias.fill_(20.0)
    assert (free.attend(z, present).beta == 0).all()  # what the safe form protects from


def test_start_hardly_changes_clean_features() -> None:
    module = EnergyAttention(2, DIM, tau=0.0)
    torch.testing.assert_close(module.attend(*features(3, count=2)).beta, torch.full((3, 2), 0.9))


def test_encoders_cannot_game_the_potential() -> None:
    module, (z, present) = attention(), features()
    z.requires_grad_()
    info = module.attend(z, present)
    assert not info.V.requires_grad or torch.autograd.grad(info.V.sum(), z, allow_unused=True) == (None,)
    gradient = torch.autograd.grad(module(z, present).sum(), z)[0]
    torch.testing.assert_close(gradient, info.beta.unsqueeze(-1).expand_as(gradient))


def test_shift_sends_a_masked_mode_to_its_mean() -> None:
    module, (z, present) = attention(shift=True), features()
    mean, beta = module.autoencoders[0].mean, module.attend(z, present).beta
    torch.testing.assert_close(module(z, present)[:, 0], mean + beta[:, :1] * (z[:, 0] - mean))


def test_calibration_reads_clean_rows_only_where_present() -> None:
    module, (z, present) = attention(), features(50, seed=3)
    present[::2, 1] = False
    spoiled = z.clone()
    spoiled[::2, 1] = 1e6
    for method in (module.standardize, module.calibrate):
        method(encoded(spoiled, present))
    dae, clean = module.autoencoders[1], z[1::2, 1]
    torch.testing.assert_close(dae.mean, clean.mean(0))
    V = dae.potential(clean)
    torch.testing.assert_close(dae.V_min.double(), V.min(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(dae.v_scale.double(), V.std(correction=0), rtol=1e-5, atol=1e-6)


def test_potentials_count_in_units_of_their_clean_spread() -> None:
    module = attention()
    info = module.attend(*features())
    for i, dae in enumerate(module.autoencoders):
        assert dae.v_scale != 1
        excess = ((info.V[:, i] - dae.V_min) / dae.v_scale).clamp_min(0) + math.e
        torch.testing.assert_close(info.phi[:, i], module.w[i] * excess + module.b[i])


def test_calibration_needs_rows() -> None:
    z, present = features()
    present[:, 1] = False
    with pytest.raises(ValueError, match="modality 1"):
        attention().calibrate(encoded(z, present))


def test_regulariser_is_a_batch_mean_and_bounded_for_corrupted_modes() -> None:
    module, present = attention(), torch.ones(1, 2, dtype=torch.bool)
    log_alpha = torch.tensor([[-50.0, -1e-9]], dtype=torch.float64, requires_grad=True)
    eta = torch.tensor([[-1.0, 1.0]], dtype=torch.float64)
    once = module.regularizer(log_alpha, eta, present)
    seven = module.regularizer(log_alpha.expand(7, 2), eta.expand(7, 2), present.expand(7, 2))
    torch.testing.assert_close(seven, once)
    assert once.item() == pytest.approx(10.0)
    assert torch.autograd.grad(once, log_alpha)[0][0, 0] == 0
    buried = module.regularizer(log_alpha, -eta, present)  # a normal mode far down must still be pulled up
    assert torch.autograd.grad(buried, log_alpha)[0][0, 0] == 1


def test_autoencoder_recovers_the_score_of_a_gaussian() -> None:
    # r(x) - x = sigma^2 d/dx log p_sigma(x): for N(0, 1) a line of slope -sigma^2 / (1 + sigma^2).
    torch.manual_seed(0)
    dae = DenoisingAutoencoder(1, 32, sigma=0.6)
    optimizer = torch.optim.Adam(dae.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 800)
    for _ in range(800):
        m = torch.randn(256, 1)
        optimizer.zero_grad()
        dae.denoising_loss(m, torch.randn(256, 1)).mean().backward()
        optimizer.step()
        schedule.step()
    x = torch.tensor([[-1.0], [1.0]])
    with torch.no_grad():
        left, right = (dae.reconstruct(x) - x).flatten().tolist()
        rise = (dae.potential(torch.tensor([[1.5]])) - dae.potential(torch.zeros(1, 1))).item()
    assert (right - left) / 2 == pytest.approx(-0.36 / 1.36, abs=0.05)
    assert rise == pytest.approx(0.298, abs=0.06)


# ---- corrupted batches ----

TASK = Task(
    "toy",
    "1",
    (
        Modality("a", "vector", (4,)),
        Modality("b", "image", (1, 6, 6)),
        Modality("c", "text", (5,), vocabulary=9),
        Modality("d", "sequence", (7, 2)),
    ),
    "multiclass",
    3,
)


def toy_batch(rows: int = 400) -> Batch:
    g = torch.Generator().manual_seed(0)
    inputs = {
        "a": torch.randn(rows, 4, generator=g),
        "b": torch.rand(rows, 1, 6, 6, generator=g),
        "c": torch.randint(1, 9, (rows, 5), generator=g),
        "d": torch.randn(rows, 7, 2, generator=g),
    }
    present = torch.rand(rows, 4, generator=g) < 0.8
    present[~present.any(dim=1)] = True
    return Batch(inputs, torch.zeros(rows, dtype=torch.long), present, torch.arange(rows))


def test_augment_leaves_its_inputs_alone_and_is_pure() -> None:
    batch = toy_batch()
    before = {name: x.clone() for name, x in batch.inputs.items()}
    present = batch.present.clone()
    first, again, other = augment(TASK, batch, 5), augment(TASK, batch, 5), augment(TASK, batch, 6)
    for name, x in before.items():
        assert torch.equal(batch.inputs[name], x)
        assert torch.equal(first.inputs[name], again.inputs[name])
        assert not torch.equal(first.inputs[name], other.inputs[name])
    assert torch.equal(batch.present, present)
    assert batch.corrupted is None


def test_augment_does_not_depend_on_the_batch_around_a_row() -> None:
    batch = toy_batch()
    some = torch.tensor([300, 7, 8, 150])
    part = Batch({n: x[some] for n, x in batch.inputs.items()}, batch.target[some], batch.present[some], some)
    whole, alone = augment(TASK, batch, 5), augment(TASK, part, 5)
    assert whole.corrupted is not None
    assert alone.corrupted is not None
    assert torch.equal(whole.corrupted[some], alone.corrupted)
    for name in batch.inputs:
        assert torch.equal(whole.inputs[name][some], alone.inputs[name])


def test_augment_corrupts_just_under_half_of_the_present_modalities() -> None:
    batch = toy_batch(4000)
    corrupted = augment(TASK, batch, 5).corrupted
    assert corrupted is not None
    assert not (corrupted & ~batch.present).any()
    count, there = corrupted.sum(dim=1), batch.present.sum(dim=1)
    touched = count > 0
    assert torch.equal(count[touched], (there // 2)[touched])
    share = touched[there > 1].double().mean().item()
    assert share == pytest.approx(0.5, abs=0.03)
    full = corrupted[batch.present.all(dim=1) & touched]
    for m in range(4):  # uniform over modalities
        assert full[:, m].double().mean().item() == pytest.approx(0.5, abs=0.05)


def test_augment_changes_exactly_the_modes_it_reports() -> None:
    batch = toy_batch(2000)
    done = augment(TASK, batch, 5)
    assert done.corrupted is not None
    gone = batch.present & ~done.present
    assert (gone <= done.corrupted).all()
    assert done.present.any(dim=1).all()
    share = gone.sum() / done.corrupted.sum()
    assert share.item() == pytest.approx(1 / (len(SEVERITIES) + 1), abs=0.05)
    for m, name in enumerate(TASK.names):
        changed = (done.inputs[name] != batch.inputs[name]).flatten(1).any(dim=1)
        assert not (changed & ~done.corrupted[:, m]).any()
        noisy = done.corrupted[:, m] & ~gone[:, m]
        assert changed[noisy].double().mean() > (0.5 if name == "c" else 0.99)  # a short text may lose no token


def test_noise_is_fresh_for_every_key_and_modality() -> None:
    names = "abcd"
    task = Task("vectors", "1", tuple(Modality(n, "vector", (4,)) for n in names), "multiclass", 2)
    still = torch.zeros(4000, 4)
    rows = torch.arange(4000)
    batch = Batch(dict.fromkeys(names, still), rows, torch.ones(4000, 4, dtype=torch.bool), rows)
    first, second = augment(task, batch, 5).inputs, augment(task, batch, 6).inputs
    for one, other in ((first["a"], second["a"]), (first["a"], first["b"])):  # zeros in, so that noise comes out
        both = (one != 0).all(dim=1) & (other != 0).all(dim=1)
        assert both.sum() > 100
        correlation = torch.corrcoef(torch.stack([one[both].sign().flatten(), other[both].sign().flatten()]))[0, 1]
        assert correlation.abs() < 0.15


def test_dropout_only_drops_the_same_modes() -> None:
    batch = toy_batch()
    noisy, dropped = augment(TASK, batch, 5), augment(TASK, batch, 5, drop_only=True)
    assert noisy.corrupted is not None
    assert dropped.corrupted is not None
    assert torch.equal(noisy.corrupted, dropped.corrupted)
    assert torch.equal(dropped.present, batch.present & ~dropped.corrupted)
    assert all(dropped.inputs[name] is x for name, x in batch.inputs.items())


def test_labels_are_balanced_and_ignore_rows_with_nothing_to_tell_apart() -> None:
    corrupted = torch.tensor([[True, False, False], [False, False, False], [True, False, False], [True, False, False]])
    present = torch.tensor([[True, True, True], [True, True, True], [False, True, True], [True, True, False]])
    want = torch.tensor([[-1, 1, 1], [0, 0, 0], [0, 0, 0], [-1, 1, 0]])
    assert torch.equal(corruption_labels(corrupted, present), want)


# ---- the method and its twins ----


@pytest.fixture(scope="module")
def digits() -> DigitHalves:
    return DigitHalves()


def build(name: str, digits: DigitHalves, recipe: Recipe = RECIPE, **options: object) -> Method:
    return conftest.build(name, digits.task, recipe=recipe, **options)


def state_at_start_of_last_stage(method: Method) -> tuple[dict[str, Tensor], Callable[[], tuple]]:
    """Stages of the method, with a hook that copies its state when the last one begins."""
    kept: dict[str, Tensor] = {}
    stages = method.stages()
    last = stages[-1]
    assert last.augment is not None
    inner = last.augment

    def spying(batch: Batch, key: int) -> Batch:
        if not kept:
            kept.update({name: value.clone() for name, value in method.state_dict().items()})
        return inner(batch, key)

    object.__setattr__(last, "augment", spying)
    return kept, lambda: stages


@pytest.mark.parametrize("finetune", ["none", "decoder"])
def test_last_stage_moves_only_what_it_may(digits: DigitHalves, monkeypatch: pytest.MonkeyPatch, finetune: str) -> None:
    method = build("emma", digits, finetune=finetune)
    before, stages = state_at_start_of_last_stage(method)
    monkeypatch.setattr(method, "stages", stages)
    reports = fit(method, digits)
    assert [r.name for r in reports] == ["train", "statistics", "energy", "calibration", "attention"]
    after = method.state_dict()
    moved = {name for name, value in before.items() if not torch.equal(value, after[name])}
    decoder_names = {f"base.{n}" for n in ("mix.0.weight", "mix.0.bias", "head.weight", "head.bias")}
    attention_names = {f"attention.{n}" for n in ("raw_w", "raw_b", "raw_gamma", "raw_gain", "raw_bias")}
    assert moved == attention_names | (decoder_names if finetune == "decoder" else set())
    # What must not move was learnt before: encoders, autoencoders, V_min.
    start = build("emma", digits).state_dict()
    for name in ("attention.daes.0.weight", "attention.daes.1.V_min", "attention.daes.1.mean", "base.mix.0.weight"):
        assert not torch.equal(before[name], start[name])


def test_twins_have_one_budget_and_start_from_the_base_itself(digits: DigitHalves) -> None:
    recipe = replace(RECIPE, epochs=4)
    alone = build("concat", digits, recipe)
    (own,) = fit(alone, digits)
    half = build("concat", digits, replace(recipe, epochs=2))
    fit(half, digits)
    trained = {name: value.clone() for name, value in half.state_dict().items()}
    caps = {}
    for name in ("emma", "augmented", "modality_dropout", "distilled_missing"):
        method = build(name, digits, recipe)
        kept, stages = state_at_start_of_last_stage(method)
        method.stages = stages  # pyright: ignore[reportAttributeAccessIssue]
        reports = fit(method, digits)
        caps[name] = [r.cap for r in reports if r.cap]
        assert reports[0].history == own.history[:2], "the beginning of the base's own cell"
        assert not stages()[-1].stop_early
        assert method.track == "augmented"
        prefix = "teacher" if name == "distilled_missing" else "base"
        for key, value in trained.items():
            assert torch.equal(kept[f"{prefix}.{key}"], value), f"{name}: {key}"
    assert caps.pop("emma") == [2, 1, 1]
    assert all(own == [2, 2] for own in caps.values())


def test_modality_dropout_differs_from_augmentation(digits: DigitHalves) -> None:
    batch = next(iter(digits.train_dataloader()))
    noisy, dropped = (build(name, digits).stages()[-1].augment for name in ("augmented", "modality_dropout"))
    assert noisy is not None
    assert dropped is not None
    assert not torch.equal(noisy(batch, 1).inputs["upper"], batch.inputs["upper"])
    assert torch.equal(dropped(batch, 1).inputs["upper"], batch.inputs["upper"])


def test_decoder_is_what_lies_behind_the_encodings(digits: DigitHalves) -> None:
    concat = build("concat", digits)
    names = {id(p): name for name, p in concat.named_parameters()}
    found = {names[id(p)] for p in decoder(concat)}
    assert found == {"mix.0.weight", "mix.0.bias", "head.weight", "head.bias"}
    transformer = build("transformer", digits)  # everything but the head comes before z
    names = {id(p): name for name, p in transformer.named_parameters()}
    assert {names[id(p)] for p in decoder(transformer)} == {"head.weight", "head.bias"}


def test_weights_and_diagnoses(digits: DigitHalves) -> None:
    method = build("emma", digits, base=Base("additive"))
    batch = next(iter(digits.train_dataloader()))
    out = method(batch.inputs, batch.present)
    weights = method.weights(out.z, batch.present)
    assert weights is not None
    assert weights.shape == batch.present.shape
    found = method.diagnose(out, batch.present)
    upper, lower = digits.task.names
    assert set(found) == {f"{k}_{m}" for k in ("alpha", "beta") for m in (upper, lower)} | {"system_energy", "capacity"}
    torch.testing.assert_close(found[f"beta_{lower}"], weights[:, 1])
    torch.testing.assert_close(method.base.fuse(out.z * weights.unsqueeze(-1), batch.present), out.fused)  # pyright: ignore


def test_denoising_noise_is_fresh_in_training_and_fixed_in_validation(digits: DigitHalves) -> None:
    method = build("emma", digits)
    assert isinstance(method, Emma)
    batch = next(iter(digits.train_dataloader()))
    out = method(batch.inputs, batch.present)

    def loss(training: bool, seed: int = 0) -> float:
        method.attention.daes.train(training)
        method.augment_seed = seed
        return sum(method.denoise(out, batch).values()).item()  # pyright: ignore[reportAttributeAccessIssue]

    assert loss(False) == loss(False)
    assert loss(True) == loss(False, seed=1)  # epoch 0 of training uses the key after validation's
    assert loss(True) != loss(False)


def test_needs_labels(digits: DigitHalves) -> None:
    pairs = Task("pairs", "1", digits.task.modalities, "pairs", 0)
    for name in ("emma", "augmented", "modality_dropout"):
        assert "needs labels" in (methods.get(name).applies_to(pairs, {}) or "")
        assert methods.get(name).applies_to(digits.task, {}) is None


@pytest.mark.slow
@pytest.mark.skipif("POLYMODAL_DATA" not in os.environ, reason="needs HTRU2: set POLYMODAL_DATA")
def test_attention_leaves_a_modality_that_gets_noisier() -> None:
    pulsars = Pulsars()
    torch.manual_seed(0)
    method = methods.get("emma")(pulsars.task, Recipe(width=32, epochs=10, batch_size=256, lr=2e-3))
    fit(method, pulsars)
    test = pulsars.ordered("test").take(slice(0, len(pulsars.splits["test"].target)))
    for m, modality in enumerate(pulsars.task.modalities):
        key = corruption_key("pulsars", pulsars.version, "test", modality.name, "gaussian_noise")
        means = []
        for severity in range(6):
            x = test.inputs[modality.name]
            x = corrupt(x, test.row, name="gaussian_noise", severity=severity, key=key, modality=modality)
            with torch.no_grad():
                out = method({**test.inputs, modality.name: x}, test.present)
                beta = method.weights(out.z, test.present)
            assert beta is not None
            means.append(beta.mean(dim=0))
        assert spearmanr(range(6), [b[m].item() for b in means]).statistic < -0.8
        assert means[5][1 - m] >= means[0][1 - m]  # what it leaves goes to the other one
