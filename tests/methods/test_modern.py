"""The modern fusion methods: what each promises beyond the contract, and the parts of the contract made for them."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmark.conformance.case import Case
from benchmark.conformance.probe import PROBES, Probe
from benchmark.conformance.training import check_gradients
from benchmark.seeds import seed_all
from benchmark.trainer import Encodings, fit
from datamodules.spec import Batch, Task
from methods import Base, Method, Output, Recipe, Stage, methods
from methods.bottleneck import Bottleneck
from methods.co_attention import CoAttention, Unit
from methods.cross_attention import CrossAttention
from methods.distilled_missing import DistilledMissing
from methods.embrace import Embrace
from methods.evidential import Evidential
from methods.film import Film
from methods.functional.balance import blending_weights
from methods.gradient_blending import GradientBlending
from methods.gradient_modulation import GradientModulation
from methods.parts.row_memory import RowMemory
from methods.parts.token_attention import with_positions
from methods.predicted_confidence import PredictedConfidence
from methods.product_of_experts import ProductOfExperts
from methods.quality_weighted import QualityWeighted
from methods.shared_specific import SharedSpecific

RECIPE = Recipe(width=8, epochs=2, batch_size=64, lr=1e-2, patience=2)
NAMES = ("bottleneck", "co_attention", "cross_attention", "distilled_missing", "embrace", "evidential", "film",
         "gradient_blending", "gradient_modulation", "predicted_confidence", "product_of_experts", "quality_weighted",
         "shared_specific")  # fmt: skip


def batch_of(shape: str, rows: int = 12) -> tuple[Task, Batch]:
    datamodule = Probe(shape=shape)
    return datamodule.task, datamodule.ordered("train").take(slice(0, rows))


def build(cls: type[Method], task: Task, **options: Any) -> Any:
    seed_all("modern", 0)
    return cls(task, RECIPE, **options)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


def without(present: Tensor, *gone: int) -> Tensor:
    present = present.clone()
    present[:, list(gone)] = False
    return present


# ---- every method ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_declared_variant_learns_all_of_itself(name: str) -> None:
    cls: Any = methods.get(name)
    assert len(cls.checked) >= 2 and cls.checked[0] == {}
    applied = set()
    for options in cls.checked:
        for probe in PROBES:
            datamodule = Probe(shape=probe)
            if cls.applies_to(datamodule.task, options) is None:
                applied.add(probe)
                assert check_gradients(Case(cls, options, datamodule)) == "", (options, probe)
    assert {"images", "image_text"} <= applied


@pytest.mark.parametrize("name", NAMES)
def test_docstrings_name_their_source(name: str) -> None:
    text = methods.get(name).__doc__ or ""
    assert "(" in text and any(f"20{year}" in text for year in range(18, 25)), "authors and year"


@pytest.mark.parametrize("cls", [ProductOfExperts, Evidential, QualityWeighted, PredictedConfidence])
def test_weights_are_zero_where_absent(cls: type[Method]) -> None:
    task, batch = batch_of("three")
    method = build(cls, task).train(False)
    present = batch.present.clone()
    present[::2, 1] = False
    out = method(batch.inputs, present)
    weights = method.weights(out.z, present)
    assert weights.shape == present.shape and (weights >= 0).all()
    assert (weights[~present] == 0).all() and (weights[present] > 0).any()


# ---- the contract ---------------------------------------------------------------------------------------------------


class Paced(Method):
    """Only the second encoder may learn."""

    def __init__(self, task: Task, recipe: Recipe) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return z.sum(dim=1)

    def pace(self, out: Output, batch: Batch) -> Tensor:
        assert not torch.is_grad_enabled()
        return torch.tensor([0.0, 1.0])


def moved(method: Method, datamodule: Probe) -> list[bool]:
    encoders = method.modality_encoders()
    before = [[p.clone() for p in e.parameters()] for e in encoders]
    fit(method, datamodule)
    return [
        any(not torch.equal(a, b) for a, b in zip(old, e.parameters(), strict=True))
        for old, e in zip(before, encoders, strict=True)
    ]


def test_pace_is_the_learning_rate_of_an_encoder() -> None:
    datamodule = Probe()
    assert moved(build(Paced, datamodule.task), datamodule) == [False, True]


@pytest.mark.parametrize("base", ["additive", "concat", "transformer"])
def test_without_strength_and_noise_modulation_is_the_base_bit_for_bit(base: str) -> None:
    datamodule = Probe()
    alone = build(methods.get(base), datamodule.task)
    around = build(GradientModulation, datamodule.task, base=Base(base), alpha=0.0, noise=False, until=1.0)
    fit(alone, datamodule)
    fit(around, datamodule)
    for name, value in alone.state_dict().items():
        assert torch.equal(value, around.base.state_dict()[name]), name


def test_modulation_slows_whoever_is_ahead() -> None:
    task, batch = batch_of("vectors", 64)
    method = build(GradientModulation, task, alpha=0.5)
    out = method(batch.inputs, batch.present)
    pace = method.pace(out, batch)
    scores = []
    for m in range(2):
        with torch.no_grad():
            only = method.base(batch.inputs, without(batch.present, 1 - m)).logits
        scores.append(only.softmax(dim=1)[torch.arange(64), batch.target].mean().item())
    ahead = max(range(2), key=scores.__getitem__)
    wanted = [1.0, 1.0]
    wanted[ahead] = 1 - math.tanh(0.5 * scores[ahead] / scores[1 - ahead])
    assert pace.tolist() == pytest.approx(wanted, rel=1e-5)
    assert method.training, "the measurement must leave the mode as it was"


def test_a_stage_may_be_shorter_than_the_recipe_and_keep_its_last_epoch() -> None:
    class Short(Paced):
        def stages(self) -> tuple[Stage, ...]:
            last = Stage(self, "last", epochs=3, select="last", stop_early=False, terms=(self.worse,))
            return (last, Stage(self, "many", epochs=100, stop_early=False))

        def worse(self, out: Output, batch: Batch) -> dict[str, Tensor]:
            return {"worse": out.z.sum() * 0 + 10 * self.current_epoch}

    datamodule = Probe()
    method = Short(datamodule.task, replace(RECIPE, epochs=8, lr=0.3))
    first, second = fit(method, datamodule)
    assert (first.epochs, second.epochs) == (3, 5)
    assert first.best_epoch == 2, "the last one, whatever its score"
    assert first.monitor == "" and first.converged, "nothing was chosen"


def test_encodings_say_which_rows_they_are() -> None:
    datamodule = Probe()
    datamodule.batch_size = 50
    stream = Encodings(build(Paced, datamodule.task), datamodule.ordered("train"))
    assert torch.equal(torch.cat([e.row for e in stream]), torch.arange(160))


def test_row_memory_equals_a_dictionary() -> None:
    memory, seen = RowMemory(), {}
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        row = torch.randperm(9, generator=generator)[:4]
        values = torch.rand(4, 2, generator=generator)
        present = torch.rand(4, 2, generator=generator) < 0.7
        memory.add(row, values, present)
        for i, r in enumerate(row.tolist()):
            for m in range(2):
                if present[i, m]:
                    seen.setdefault((r, m), []).append(values[i, m].item())
    mean = {key: sum(v) / len(v) for key, v in seen.items()}
    relative, known = memory.relative(torch.arange(12), torch.zeros(12, 2))
    for m in range(2):
        column = [v for (_, modality), v in mean.items() if modality == m]
        for r in range(12):
            assert bool(known[r, m]) == ((r, m) in mean)
            wanted = (mean[r, m] - min(column)) / (max(column) - min(column)) if (r, m) in mean else 0.0
            assert relative[r, m].item() == pytest.approx(wanted, abs=1e-6)


# ---- tokens ---------------------------------------------------------------------------------------------------------


def test_film_starts_as_its_twin_and_hears_only_the_others() -> None:
    task, batch = batch_of("image_text")
    film, twin = build(Film, task), build(Film, task, condition="none")
    twin.load_state_dict(film.state_dict(), strict=False)
    close(film(batch.inputs).logits, twin(batch.inputs).logits)
    nn.init.normal_(film.scale[0])
    nn.init.normal_(film.shift[0])
    tokens = film.tokenize(batch.inputs, batch.present)
    z = film.pool(tokens, batch.present)
    means = Method.pool(film, tokens, batch.present)
    for m, name in enumerate(task.names):
        x, other = tokens[name].x, means[:, 1 - m]
        scale, shift = (other @ w[0][m, 1 - m].T for w in (film.scale, film.shift))
        y = x + ((1 + scale[:, None]) * film.project[0][name](x) + shift[:, None]).relu()
        mask = tokens[name].mask if tokens[name].mask is not None else torch.ones(y.shape[:2], dtype=torch.bool)
        for b in range(len(y)):
            close(z[b, m], y[b][mask[b]].mean(dim=0))


@pytest.mark.parametrize("cls", [CrossAttention, Bottleneck, CoAttention])
def test_padding_is_as_if_it_were_not_there(cls: type[Method]) -> None:
    task, batch = batch_of("image_text")
    method = build(cls, task).train(False)
    short = {**batch.inputs, "question": batch.inputs["question"][:, :-2]}  # its last two tokens are padding
    assert not batch.inputs["question"][:, -2:].any()
    close(method(batch.inputs).logits, method(short).logits)


def test_cross_attention_equals_the_equations() -> None:
    task, batch = batch_of("images")
    method = build(CrossAttention, task, layers=2, memory=0).train(False)
    tokens = method.tokenize(batch.inputs, batch.present)
    placed = {}
    for name, t in tokens.items():
        length, width = t.x.shape[1:]
        table = torch.tensor([[math.sin(p * math.exp(-9.21 * 2 * i / width)) for i in range(width // 2)]
                              + [math.cos(p * math.exp(-9.21 * 2 * i / width)) for i in range(width // 2)]
                              for p in range(length)])  # fmt: skip
        placed[name] = t.x + 0.1 * table
    h, other = placed["left"], placed["right"]
    for block in method.cross["right_to_left"]:
        q, k = block.norm(h), block.norm(other)
        h = h + block.attend.attention(q, k, k)[0]
        h = h + block.feed(block.last_norm(h))
    close(method.pool(tokens, batch.present)[:, 0], h.mean(dim=1))
    alone = method.pool(tokens, without(batch.present, 1))
    close(alone[:, 0], placed["left"].mean(dim=1))


def test_bottleneck_equals_the_equations() -> None:
    task, batch = batch_of("images")
    method = build(Bottleneck, task).train(False)
    tokens = {n: t._replace(x=torch.randn_like(t.x)) for n, t in method.tokenize(batch.inputs, batch.present).items()}
    for present in (batch.present, without(batch.present, 1)):
        here = [m for m in range(2) if present[0, m]]
        x = [torch.cat([method.start[n].expand(12, 1, -1), with_positions(tokens[n].x)], dim=1) for n in task.names]
        x = [method.layers[n][0](x[m]) for m, n in enumerate(task.names)]
        b = method.shared.expand(12, -1, -1)
        x = [method.layers[n][1](torch.cat([x[m], b], dim=1)) for m, n in enumerate(task.names)]
        z = torch.stack([method.norm(one[:, 0]) for one in x], dim=1)
        got = method.pool(tokens, present)
        close(got[:, here], z[:, here])
        close(method.fuse(got, present), z[:, here].mean(dim=1))


def test_without_bottlenecks_nothing_is_exchanged() -> None:
    task, batch = batch_of("images")
    for count, exchanges in ((0, False), (4, True)):
        # Tokens written in one layer are read in the next.
        method = build(Bottleneck, task, bottlenecks=count, layers=3, fusion_layer=0).train(False)
        tokens = method.tokenize(batch.inputs, batch.present)
        other = {**tokens, "right": tokens["right"]._replace(x=tokens["right"].x.flip(0))}
        same = torch.equal(method.pool(tokens, batch.present)[:, 0], method.pool(other, batch.present)[:, 0])
        assert same is not exchanges


def test_co_attention_unit_equals_the_equations_and_an_absent_guide_is_silent() -> None:
    torch.manual_seed(0)
    unit, x, guide = Unit(8, 2, 0.0, guided=True), torch.randn(3, 5, 8), torch.randn(3, 4, 8)
    assert unit.ask is not None
    every, seen = torch.ones(3, 5, dtype=torch.bool), torch.ones(3, 4, dtype=torch.bool)
    y = unit.norms[0](x + unit.look.attention(x, x, x)[0])
    told = unit.norms[1](y + unit.ask.attention(y, guide, guide)[0])
    close(unit(x, every, guide, seen), unit.norms[2](told + unit.feed(told)))
    silent = unit.norms[1](y)
    close(unit(x, every, guide, ~seen), unit.norms[2](silent + unit.feed(silent)))


def test_co_attention_is_guided_by_the_text_and_pools_as_asked() -> None:
    task, batch = batch_of("image_text")
    method = build(CoAttention, task, pooling="continuous_softmax")
    assert method.guide == "question" and type(method.base).__name__ == "ContinuousSoftmax"
    tokens = method.tokenize(batch.inputs, batch.present)
    other = method.tokenize({**batch.inputs, "image": batch.inputs["image"].flip(0)}, batch.present)
    assert torch.equal(tokens["question"].x, other["question"].x), "nobody guides the guide"
    asked = method.tokenize({**batch.inputs, "question": batch.inputs["question"].flip(0)}, batch.present)
    assert not torch.allclose(tokens["image"].x, asked["image"].x)
    assert set(method.base.attention(tokens, batch.present)) == {"image", "question"}


# ---- vectors --------------------------------------------------------------------------------------------------------


def test_embrace_tests_with_the_expectation_of_its_training() -> None:
    task, batch = batch_of("three", 4)
    method = build(Embrace, task)
    z, present = method(batch.inputs).z.detach(), batch.present.clone()
    present[0, 1] = False
    samples = torch.stack([method.fuse(z, present) for _ in range(4000)])
    docked = torch.stack([dock(z[:, m]) for m, dock in enumerate(method.dock)], dim=1)
    mean = method.train(False).fuse(z, present)
    close(mean[0], docked[0, [0, 2]].mean(dim=0))
    close(mean[1:], docked[1:].mean(dim=1))
    assert (samples.mean(dim=0) - mean).abs().max() < 0.1
    assert ((samples[:, 0].unsqueeze(1) == docked[0, [0, 2]]).any(dim=1)).all(), "copies, of those that are present"


def test_an_expert_alone_is_shrunk_by_one_prior() -> None:
    task, batch = batch_of("vectors")
    method = build(ProductOfExperts, task).train(False)
    present = without(batch.present, 1)
    out = method(batch.inputs, present)
    mu, log_var = method.experts[0](out.z[:, 0]).chunk(2, dim=1)
    precision = (-log_var).exp()
    close(out.fused, mu * precision / (1 + precision))


def test_evidence_is_a_dirichlet_mean_and_absence_is_neutral() -> None:
    task, batch = batch_of("vectors")
    method = build(Evidential, task).train(False)
    present = without(batch.present, 1)
    out = method(batch.inputs, present)
    alpha = method.evidence(out.z)[:, 0] + 1
    close(out.logits.softmax(dim=1), alpha / alpha.sum(dim=1, keepdim=True))
    found = method.diagnose(out, present)
    assert (found[f"uncertainty_{task.names[1]}"] == 1).all()
    close(found["uncertainty"], 3 / alpha.sum(dim=1))


def test_shared_specific_replaces_what_is_missing() -> None:
    task, batch = batch_of("three")
    method = build(SharedSpecific, task).train(False)
    out = method(batch.inputs, without(batch.present, 1))
    shared = method.share(out.z)
    close(out.fused.unflatten(1, (3, -1))[:, 1], (shared[:, 0] + shared[:, 2]) / 2)
    terms = method.auxiliary(out, batch._replace(present=without(batch.present, 1)))
    close(terms["shared"], 0.1 * (shared[:, 0] - shared[:, 2]).abs().mean())


# ---- confidence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [QualityWeighted, PredictedConfidence])
def test_the_joint_loss_does_not_teach_the_weights(cls: type[Method]) -> None:
    task, batch = batch_of("vectors")
    method = build(cls, task)
    z = method(batch.inputs).z.detach()
    weights, decisions = method.weights(z, batch.present), method.decisions(z)
    close(method.fuse(z, batch.present), (weights.unsqueeze(-1) * decisions).sum(dim=1))
    parameters = list(method.parameters())
    constant = (weights.detach().unsqueeze(-1) * decisions).sum()
    got, wanted = (
        torch.autograd.grad(total, parameters, allow_unused=True, materialize_grads=True)
        for total in (method.fuse(z, batch.present).sum(), constant)
    )
    for a, b in zip(got, wanted, strict=True):
        close(a, b)


def test_confidence_is_regressed_without_moving_the_encoders() -> None:
    task, batch = batch_of("vectors")
    method = build(PredictedConfidence, task)
    method.auxiliary(method(batch.inputs), batch)["confidence"].backward()
    assert all(p.grad is None or not p.grad.any() for p in method.encoders.parameters())
    assert all(p.grad is None or not p.grad.any() for p in method.decisions.parameters())
    assert all(p.grad is not None for p in method.regressors.parameters())


def test_hardness_is_kept_by_row_in_training_only() -> None:
    task, batch = batch_of("vectors")
    method = build(QualityWeighted, task)
    out = method(batch.inputs)
    assert method.auxiliary(out, batch)["rank"] == 0, "no row has a history yet"
    assert method.auxiliary(out, batch)["rank"] > 0
    before = method.hardness.relative(batch.row, out.z[..., 0])
    assert "rank" not in method.train(False).auxiliary(out, batch)
    after = method.hardness.relative(batch.row, out.z[..., 0])
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert not any("hardness" in name for name in method.state_dict())


# ---- balance and protocol -------------------------------------------------------------------------------------------


def test_blending_goes_back_to_its_beginning_and_weighs_what_it_measured() -> None:
    datamodule = Probe()
    datamodule.batch_size = 64
    method = build(GradientBlending, datamodule.task)
    start = {k: v.clone() for k, v in method.state_dict().items()}
    stages = method.stages()
    assert [s.name for s in stages] == [
        "before", "probe_singles", "after_singles", "probe_joint", "after_joint", "train"]  # fmt: skip
    stream = Encodings(method, datamodule.ordered("train"))
    measured = []
    for stage in stages[:-1]:
        with method.in_stage(stage), torch.no_grad():
            if stage.solve:
                measured.append(method.measure(stream))
                stage.solve(stream)
            else:
                for p in method.parameters():
                    p.add_(0.05 * torch.randn_like(p))
    for name, value in method.state_dict().items():
        assert name == "blend" or torch.equal(value, start[name]), name
    before, singles, joint = measured
    after = [torch.cat([s[:2], j[2:]]) for s, j in zip(singles, joint, strict=True)]
    close(method.blend, blending_weights(before[0], before[1], after[0], after[1]).float())


def test_probes_do_not_learn_from_held_out_rows_and_training_does() -> None:
    task, batch = batch_of("vectors", 160)
    method = build(GradientBlending, task, held_out=0.3)
    held = method.is_held_out(batch.row)
    assert 0.2 < held.float().mean() < 0.4
    other = batch._replace(target=torch.where(held, (batch.target + 1) % 3, batch.target))
    out = method(batch.inputs)
    for term, changes in ((method.singles, False), (method.joint, False), (method.blended, True)):
        a, b = (torch.stack(list(term(out, given).values())).sum() for given in (batch, other))
        assert torch.equal(a, b) is not changes
    learnt, held_out = method.measure(Encodings(method, Probe().ordered("train")))
    z, logits = out.z, out.logits
    cross_entropy = nn.functional.cross_entropy
    close(held_out[2].float(), cross_entropy(logits[held], batch.target[held]))
    close(learnt[0].float(), cross_entropy(method.decisions(z)[~held, 0], batch.target[~held]))


def test_the_teacher_is_the_bases_own_cell_and_sees_complete_rows() -> None:
    datamodule = Probe()
    alone = build(methods.get("concat"), datamodule.task)
    alone.recipe = replace(alone.recipe, epochs=1)  # of two: the student has the other half
    method = build(DistilledMissing, datamodule.task)
    fit(alone, datamodule)
    fit(method, datamodule)
    for name, value in alone.state_dict().items():
        assert torch.equal(value, method.teacher.state_dict()[name]), name
    batch = datamodule.ordered("train").take(slice(0, 64))
    stage = method.stages()[-1]
    assert stage.augment is not None
    dropped = stage.augment(batch, 1)
    assert not dropped.present.all()
    method.base.load_state_dict(method.teacher.state_dict())
    method.train(False)
    whole = method.imitate(method(batch.inputs, batch.present), dropped)["distil"]
    assert whole.item() == pytest.approx(0, abs=1e-9), "a student that sees everything equals its teacher"
    assert method.imitate(method(dropped.inputs, dropped.present), dropped)["distil"] > 1e-4
