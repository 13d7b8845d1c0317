"""The sweep equals a naive evaluation of every condition on its own, at any batch size."""

import math

import numpy as np
import pytest
import torch

from benchmark.conditions import resolve, versions
from benchmark.conformance.probe import Probe
from benchmark.evaluate import _Shared, sweep
from benchmark.tally import calibration_error
from datamodules.base import Batches
from datamodules.corruptions import catalogue, corrupt, corruption_key, drop_modalities, noise
from datamodules.spec import Batch
from leaderboard.record import Condition
from methods import Method, Recipe, Tokens, methods

RECIPE = Recipe(width=8, epochs=1, batch_size=64)


def naive(method: Method, datamodule: Probe, condition: Condition) -> torch.Tensor:
    """All test rows at once, everything encoded again: what the sweep must equal."""
    task, split = datamodule.task, datamodule.splits["test"]
    batch: Batch = Batches(split, task.names, 10_000).take(slice(0, len(split.target)))
    inputs, present = dict(batch.inputs), batch.present.clone()
    hit = {m.name: catalogue(m.kind)[0] for m in task.modalities} if condition.kind == "joint" else {}
    if condition.modality and condition.kind != "missing_rate":
        hit = {condition.modality: condition.corruption or "misaligned"}
    for name, corruption in hit.items():
        modality = task.modalities[task.names.index(name)]
        key = corruption_key(task.name, task.version, "test", name, corruption)
        inputs[name] = corrupt(inputs[name], batch.row, name=corruption, severity=condition.severity, key=key,
                               modality=modality, split=split.inputs[name])  # fmt: skip
    for name in condition.absent:
        present[:, task.names.index(name)] = False
    present[~present.any(1)] = batch.present[~present.any(1)]
    if condition.rate is not None:
        key = corruption_key(task.name, task.version, "test", "*", "missing")
        dropped = drop_modalities(present, batch.row, condition.rate, key)
        if condition.modality is None:
            present = dropped
        else:  # this one goes where its own draw says so, unless it is all that a row has
            m = task.names.index(condition.modality)
            gone = (noise.uniforms(key, batch.row, (len(task.names),))[:, m] < condition.rate) & (present.sum(1) > 1)
            present[gone, m] = False
            assert not (dropped.sum(1) > 1)[gone & dropped[:, m]].any()  # paired with the joint condition
    with torch.no_grad():
        return task.goal.prediction(method(inputs, present))


@pytest.mark.parametrize("name", ["concat", "early", "unimodal"])
@pytest.mark.parametrize("shape", ["image_text", "three", "sequence_vector"])
def test_sweep_equals_naive_evaluation(name: str, shape: str) -> None:
    datamodule = Probe(shape=shape)
    torch.manual_seed(0)
    method = methods.get(name)(datamodule.task, RECIPE).train(False)
    conditions = resolve("full", datamodule.task)
    swept = sweep(method, datamodule, conditions)
    assert [c.id for c in swept.conditions] == [c.id for c in conditions]
    target = datamodule.splits["test"].target
    for condition in swept.conditions:
        expected = naive(method, datamodule, condition)
        assert torch.equal(torch.from_numpy(swept.predictions[f"pred:{condition.id}"]).long(), expected), condition.id
        assert condition.score == pytest.approx(float((expected == target).float().mean())), condition.id


@pytest.mark.parametrize("size", [1, 7, 64])
def test_predictions_do_not_depend_on_the_batch_size(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    datamodule = Probe(shape="image_text")
    torch.manual_seed(0)
    method = methods.get("concat")(datamodule.task, RECIPE).train(False)
    conditions = resolve(("single", "joint", "missing_rate", "misaligned"), datamodule.task)
    whole = sweep(method, datamodule, conditions)
    split = datamodule.splits["test"]
    monkeypatch.setattr(Probe, "ordered", lambda self, name: Batches(split, self.task.names, size))
    parts = sweep(method, datamodule, conditions)
    for name, array in whole.predictions.items():
        other = parts.predictions[name]  # a product rounds by the number of its rows, which may show in probabilities
        assert np.allclose(array, other, rtol=1e-5, atol=1e-7) if name.startswith("prob:") else (array == other).all()


def test_calibration_and_probabilities() -> None:
    datamodule = Probe()
    torch.manual_seed(0)
    method = methods.get("concat")(datamodule.task, RECIPE).train(False)
    swept = sweep(method, datamodule, resolve("none", datamodule.task))
    p = torch.from_numpy(swept.predictions["prob:clean"])
    y = torch.from_numpy(swept.predictions["target"])
    found = swept.conditions[0].calibration
    assert found["nll"] == pytest.approx(float(torch.nn.functional.nll_loss(p.log(), y)), rel=1e-4)
    onehot = torch.nn.functional.one_hot(y, 3)
    assert found["brier"] == pytest.approx(float((p - onehot).square().sum(dim=1).mean()), rel=1e-4)


def test_calibration_error_of_known_cases() -> None:
    torch.manual_seed(0)
    confidence = torch.rand(20_000)
    assert calibration_error(confidence, torch.rand(20_000) < confidence) < 0.02
    assert calibration_error(torch.full((300,), 0.9), torch.zeros(300)) == pytest.approx(0.9, abs=1e-5)


def test_weights_and_diagnostics_reach_the_condition() -> None:
    class Weighs(Method):
        def __init__(self, task, recipe):
            super().__init__(task, recipe, fused_dim=recipe.width)

        def weights(self, z, present):
            return present.float() / present.sum(dim=1, keepdim=True)

        def fuse(self, z, present):
            return (self.weights(z, present)[..., None] * z).sum(dim=1)

        def diagnose(self, out, present):
            return {"there": present.float().sum(dim=1)}

    datamodule = Probe()
    swept = sweep(Weighs(datamodule.task, RECIPE), datamodule, resolve(("missing",), datamodule.task))
    by_id = {c.id: c for c in swept.conditions}
    assert by_id["clean"].weights == pytest.approx((0.5, 0.5)) and by_id["clean"].diagnostics["there"] == 2
    assert by_id["missing:a"].weights == pytest.approx((0.0, 1.0)) and by_id["missing:a"].diagnostics["there"] == 1


def test_standard_conditions_are_those_of_the_protocol() -> None:
    task = Probe(shape="three").task
    ids = [c.id for c in resolve("standard", task)]
    assert ids[0] == "clean" and len(ids) == len(set(ids))
    assert len([i for i in ids if i.startswith("single")]) == 3 * 3 * 5
    assert {i for i in ids if i.startswith("joint")} == {f"joint:{s}" for s in range(1, 6)}
    assert {i for i in ids if i.startswith("missing:")} == {
        "missing:a", "missing:b", "missing:c", "missing:a+b", "missing:a+c", "missing:b+c"
    }  # fmt: skip
    assert len([i for i in ids if i.startswith("misaligned")]) == 15
    full = {c.id for c in resolve("full", task)}
    assert set(ids) < full and {"missing_rate:0.3", "missing_rate:b:0.3"} < full
    assert not any("missing_segment" in i or "missing_rate" in i for i in ids)
    sequence = Probe(shape="sequence_vector").task
    assert "single:audio:missing_segment:5" in {c.id for c in resolve("full", sequence)}
    assert not any("missing_segment" in c.id for c in resolve("standard", sequence))


class Gappy(Probe):
    """Test rows of which every third has one modality alone."""

    def load(self):
        splits = super().load()
        there = torch.ones(len(splits["test"].target), len(self.task.names), dtype=torch.bool)
        there[::3, 1:] = False
        return {**splits, "test": splits["test"]._replace(present=there)}


@pytest.mark.parametrize("name", ["concat", "gated", "early"])
def test_rows_that_lack_modalities_never_lose_the_last(name: str) -> None:
    datamodule = Gappy(shape="three")
    torch.manual_seed(0)
    method = methods.get(name)(datamodule.task, RECIPE).train(False)
    seen: list[torch.Tensor] = []
    completions = method.completions
    method.completions = lambda tokens, present, *more: (  # type: ignore[method-assign]
        seen.append(present),
        completions(tokens, present, *more),
    )[1]
    conditions = resolve(("missing", "missing_rate"), datamodule.task)
    swept = sweep(method, datamodule, conditions)
    assert len(seen) == len(conditions) and all(present.any(dim=1).all() for present in seen)
    for condition in swept.conditions:
        expected = naive(method, datamodule, condition)
        assert torch.equal(torch.from_numpy(swept.predictions[f"pred:{condition.id}"]).long(), expected), condition.id
        assert condition.weights is None or all(map(math.isfinite, condition.weights))


def test_a_rate_of_one_modality_is_no_corruption_of_it() -> None:
    task = Probe().task
    conditions = resolve(("missing_rate",), task)
    assert [c.id for c in conditions[1:5]] == [f"missing_rate:{rate}" for rate in (0.1, 0.3, 0.5, 0.7)]
    assert [c.id for c in conditions[5:]] == [f"missing_rate:{m}:{p}" for m in "ab" for p in (0.1, 0.3, 0.5, 0.7)]
    assert set(versions(conditions, task)) == {"missing"}


def test_a_modality_alone_goes_at_its_rate_and_no_other_does() -> None:
    class Counts(methods.get("concat")):  # type: ignore[misc]
        def diagnose(self, out, present):
            return {name: present[:, m].float() for m, name in enumerate(self.task.names)}

    datamodule = Probe()
    swept = sweep(Counts(datamodule.task, RECIPE), datamodule, resolve(("missing_rate",), datamodule.task))
    there = {c.id: c.diagnostics for c in swept.conditions}
    for rate in (0.1, 0.3, 0.5, 0.7):
        assert there[f"missing_rate:a:{rate}"]["b"] == there[f"missing_rate:b:{rate}"]["a"] == 1
        assert there[f"missing_rate:a:{rate}"]["a"] == pytest.approx(1 - rate, abs=0.15)


def test_the_mean_of_clean_tokens_is_taken_once_and_is_not_that_of_what_is_made_of_them() -> None:
    tokens = Tokens(torch.rand(2, 3, 4), (3,))
    shared = _Shared(*tokens)
    first = shared.mean()
    assert torch.equal(first, tokens.mean())
    assert shared.mean() is first
    assert torch.equal(shared._replace(x=-tokens.x).mean(), -first)
