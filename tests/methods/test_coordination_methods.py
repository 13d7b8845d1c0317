"""The coordination methods: what the contract of all methods cannot know of them."""

import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.cross_decomposition
import sklearn.linear_model
import torch
from torch import Tensor

from benchmark.conformance.probe import Probe
from benchmark.seeds import seed_all
from benchmark.trainer import Encodings, fit
from datamodules.base import DataModule
from datamodules.csv_views import CsvViews
from datamodules.registry import datasets
from datamodules.spec import Batch, Modality, Task
from methods.base import Encoded, Method, Output, Recipe
from methods.functional.coordination import clip_loss, dcca_loss
from methods.parts.codes import Codes, fit_probe, report, shared_variance
from methods.parts.coordination import Coordination
from methods.parts.identity import identities
from methods.parts.raw_views import flatten
from methods.registry import methods

RECIPE = Recipe(width=8, epochs=2, batch_size=80, lr=1e-2, patience=2)
NAMES = ("cosine", "kernel", "cca", "dcca", "dccae", "contrastive_hinge", "contrastive", "gated_coordination")
LABEL_FREE = ("cca", "dcca", "dccae", "contrastive_hinge", "contrastive")
POSITIVE_ONLY = ("cosine", "kernel", "gated_coordination")


@pytest.fixture(autouse=True)
def narrow_batches() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*biased upwards.*")
        yield


def build(name: str, task: Task, recipe: Recipe = RECIPE, **options: Any) -> Method:
    seed_all("test", 0)
    return methods.get(name)(task, recipe, **options)


def trained(name: str, datamodule: DataModule, recipe: Recipe = RECIPE, **options: Any) -> Method:
    method = build(name, datamodule.task, recipe, **options)
    fit(method, datamodule, seed=0)
    return method.train(False)


def summary(method: Method, datamodule: DataModule) -> dict[str, float]:
    return method.summary(Encodings(method, datamodule.ordered("train")), Encodings(method, datamodule.ordered("test")))


def batch_of(datamodule: DataModule, rows: int = 80) -> Batch:
    return datamodule.ordered("train").take(slice(0, rows))


def encoders_of(method: Method) -> dict[str, Tensor]:
    return {n: v for n, v in method.state_dict().items() if not n.startswith(("head", "_score"))}


class Relabelled(Probe):
    """The same rows, other targets."""

    def load(self):
        return {name: s._replace(target=s.target.flip(0)) for name, s in super().load().items()}


# --- protocol ---------------------------------------------------------------------------------------------------------


def test_all_coordination_methods_are_registered() -> None:
    classes = [methods.get(name) for name in NAMES]
    assert all(issubclass(cls, Coordination) and cls.family == "coordination" for cls in classes)


@pytest.mark.parametrize("name", LABEL_FREE)
def test_label_free_codes_do_not_depend_on_labels(name: str) -> None:
    one, other = (encoders_of(trained(name, dm)) for dm in (Probe(shape="vectors"), Relabelled(shape="vectors")))
    for key, value in one.items():
        assert torch.equal(value, other[key]), key


def test_supervised_codes_do_depend_on_labels() -> None:
    one, other = (
        encoders_of(trained("contrastive", dm, supervised=True))
        for dm in (Probe(shape="vectors"), Relabelled(shape="vectors"))
    )
    assert not torch.equal(one["project.0.weight"], other["project.0.weight"])


@pytest.mark.parametrize("name", NAMES)
def test_the_probe_learns_the_head_alone(name: str) -> None:
    datamodule = Probe(shape="vectors")
    method = build(name, datamodule.task)
    stage = method.stages()[-1]
    assert stage.name == "probe"
    assert method.head is not None
    with method.in_stage(stage):
        learnt = {n for n, p in method.named_parameters() if p.requires_grad}
    assert learnt == {"head.weight", "head.bias"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", ["pairs", "retrieval", "regression", "multilabel", "three", "image_text"])
def test_summary_on_every_target(name: str, shape: str) -> None:
    datamodule = Probe(shape=shape)
    cls = methods.get(name)
    reason = cls.applies_to(datamodule.task, {})
    if name in POSITIVE_ONLY and shape == "pairs":
        assert reason is not None
        assert "labels" in reason
        return
    assert reason is None
    found = summary(build(name, datamodule.task), datamodule)
    assert all(isinstance(v, float) and math.isfinite(v) for v in found.values())
    assert {"codes_collapsed", "correlation_sum", "recall_at_1", "recall_at_5", "recall_at_10", "median_rank"} <= set(
        found
    )
    assert ("transfer" in found) == (shape not in ("pairs", "retrieval"))
    assert ("class_mean" in found) == (shape in ("three", "image_text"))
    stages = [stage.name for stage in build(name, datamodule.task).stages()]
    assert ("probe" in stages) == (shape not in ("pairs", "retrieval"))


@pytest.mark.parametrize("name", [n for n in NAMES if n != "cca"])
def test_rows_without_both_modalities_are_left_out_of_the_loss(name: str) -> None:
    datamodule = Probe(shape="vectors")
    method = build(name, datamodule.task, components=3)
    batch = batch_of(datamodule)
    present = batch.present.clone()
    present[60:70, 0] = False
    present[70:, 1] = False
    told = batch._replace(present=present)
    few = Batch({n: x[:60] for n, x in batch.inputs.items()}, batch.target[:60], present[:60], batch.row[:60])
    losses = [method.coordinate(method(b.inputs, b.present), b)["coordination"] for b in (told, few)]
    torch.testing.assert_close(losses[0], losses[1])


# --- collapse ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["linear", "polynomial", "rbf", "exponential", "laplacian"])
def test_a_constant_code_has_no_kernel_loss(kind: str) -> None:
    method = build("kernel", Probe(shape="vectors").task, kind=kind, scale=0.7)
    batch = batch_of(Probe(shape="vectors"), 5)
    rows = torch.ones(5, dtype=torch.bool)
    same = torch.randn(1, 8).expand(5, 8).clone().requires_grad_()
    loss = method.pair_loss(same, same * 3, batch, rows)
    assert float(loss.detach()) == pytest.approx(0, abs=1e-6)
    assert torch.autograd.grad(loss, same)[0].isfinite().all()
    apart = method.pair_loss(torch.eye(8)[:5], torch.eye(8)[1:6], batch, rows)
    assert float(apart) > 0.3


@pytest.mark.parametrize("name", ["cosine", "gated_coordination"])
def test_a_constant_code_has_no_cosine_loss(name: str) -> None:
    method = build(name, Probe(shape="vectors").task)
    batch, rows = batch_of(Probe(shape="vectors"), 5), torch.ones(5, dtype=torch.bool)
    same = torch.randn(1, 8).expand(5, 8)
    assert float(method.pair_loss(same, 3 * same, batch, rows)) == pytest.approx(0, abs=1e-6)
    assert float(method.pair_loss(same, -same, batch, rows)) == pytest.approx(2, abs=1e-6)


def test_a_collapsed_model_is_flagged_and_a_fresh_one_is_not() -> None:
    datamodule = Probe(shape="vectors")
    method = build("cosine", datamodule.task)
    assert summary(method, datamodule)["codes_collapsed"] == 0
    for project in method.project:
        torch.nn.init.zeros_(project.weight)
    found = summary(method, datamodule)
    assert found["codes_collapsed"] == 1
    assert found["mean_cosine_a"] == pytest.approx(1)
    assert found["recall_at_10"] == 0  # ties are no hits
    assert found["median_rank"] == 64


@pytest.mark.slow
def test_cosine_without_labels_collapses_and_with_labels_does_not() -> None:
    datamodule = datasets.get("digit_halves")()
    recipe = Recipe(width=32, epochs=60)
    alone = trained("cosine", datamodule, recipe, supervised=False)
    joint = trained("cosine", datamodule, recipe)
    assert summary(alone, datamodule)["codes_collapsed"] == 1
    assert summary(joint, datamodule)["codes_collapsed"] == 0


# --- cca --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("views", ["raw", "encoded"])
def test_cca_does_not_depend_on_the_batch_size(views: str) -> None:
    datamodule = Probe(shape="three")
    fitted = []
    for size in (33, 160):
        method = build("cca", datamodule.task, views=views, ridge=0.1)
        batches = datamodule.ordered("train")
        batches.batch_size = size
        method.stages()[0].solve(Encodings(method.train(False), batches))
        fitted.append(method)
    torch.testing.assert_close(fitted[0].align.projection, fitted[1].align.projection, atol=1e-4, rtol=1e-4)
    assert float(fitted[0].align.projection.abs().sum()) > 0


def test_raw_cca_equals_sklearn_on_views_of_different_width() -> None:
    datamodule = Probe(shape="vectors")
    method = build("cca", datamodule.task, ridge=0.0, components=4)
    method.stages()[0].solve(Encodings(method.train(False), datamodule.ordered("train")))
    inputs = {n: x[:] for n, x in datamodule.splits["train"].inputs.items()}
    z = method(inputs).z
    x, y = (v.double().numpy() for v in inputs.values())
    sk = sklearn.cross_decomposition.CCA(n_components=4, scale=False, tol=1e-14, max_iter=100_000).fit(x, y)
    for i, (u, v) in enumerate(zip(*(a.T for a in sk.transform(x, y)), strict=True)):
        assert abs(np.corrcoef(u, z[:, 0, i].numpy())[0, 1]) == pytest.approx(1, abs=1e-4)
        assert abs(np.corrcoef(v, z[:, 1, i].numpy())[0, 1]) == pytest.approx(1, abs=1e-4)
    assert not z[..., 4:].any()  # beyond the directions there is nothing


def test_cca_refits_from_the_raw_encodings() -> None:
    datamodule = Probe(shape="vectors")
    method = build("cca", datamodule.task).train(False)
    solve = method.stages()[0].solve
    solve(Encodings(method, datamodule.ordered("train")))
    first = method.align.projection.clone()
    solve(Encodings(method, datamodule.ordered("train")))
    torch.testing.assert_close(method.align.projection, first)


def test_raw_views_are_refused_when_too_wide_and_both_are_reported_otherwise() -> None:
    cls = methods.get("cca")
    wide = Task("wide", "1", (Modality("i", "image", (3, 64, 64)), Modality("v", "vector", (5,))), "multiclass", 3)
    assert cls.variants(wide) == ({"views": "encoded"},)
    assert "encoded" in cls.applies_to(wide, {})
    assert cls.variants(Probe(shape="vectors").task) == ({"views": "raw"}, {"views": "encoded"})


def test_text_is_a_bag_of_words() -> None:
    text = Modality("t", "text", (4,), vocabulary=6)
    assert flatten(text, torch.tensor([[1, 5, 5, 0], [0, 0, 0, 0]])).tolist() == [[0, 1, 0, 0, 0, 2], [0] * 6]
    image = torch.rand(2, 3, 4, 4)
    assert torch.equal(flatten(Modality("i", "image", (3, 4, 4)), image), image.view(2, 48))


# --- dcca, dccae ------------------------------------------------------------------------------------------------------


def test_dcca_refuses_and_warns_by_batch_size() -> None:
    task = Probe(shape="vectors").task
    with pytest.raises(ValueError, match=r"8 \+ 8\), got 16"):
        build("dcca", task, Recipe(width=8, batch_size=16), components=8)
    with pytest.warns(UserWarning, match="160 or more"):
        build("dcca", task, Recipe(width=8, batch_size=159), components=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build("dcca", task, Recipe(width=8, batch_size=160), components=8)
    assert build("dcca", task, Recipe(width=64, batch_size=12)).components == 2  # a default always fits


def test_dcca_loss_of_the_method_is_the_mean_correlation_of_pairs() -> None:
    datamodule = Probe(shape="three")
    method = build("dcca", datamodule.task, components=3, ridge=0.01)
    batch = batch_of(datamodule)
    out = method(batch.inputs, batch.present)
    a, b, c = out.z.unbind(dim=1)
    expected = sum(dcca_loss(x, y, 0.01) for x, y in ((a, b), (a, c), (b, c))) / 9
    torch.testing.assert_close(method.coordinate(out, batch)["coordination"], expected)


def test_a_batch_with_few_complete_rows_correlates_the_leading_columns() -> None:
    datamodule = Probe(shape="vectors")
    method = build("dcca", datamodule.task, components=4, ridge=0.01)
    for rows, columns in ((5, 0), (6, 1), (8, 1), (9, 4)):
        batch = batch_of(datamodule, rows)
        out = method(batch.inputs, batch.present)
        loss = method.coordinate(out, batch)["coordination"]
        a, b = out.z[..., :columns].unbind(dim=1)
        expected = dcca_loss(a, b, 0.01) / columns if columns else torch.zeros(())
        torch.testing.assert_close(loss, expected)
        loss.backward()  # a zero with a gradient too: every rank has one


@pytest.mark.filterwarnings("ignore:.*biased upwards")
@pytest.mark.parametrize(("rows", "lacking", "columns"), [(150, 0.0, 20), (60, 0.0, 6), (600, 0.8, 4)])
@pytest.mark.parametrize("name", ["dcca", "dccae"])
def test_small_and_incomplete_tables_are_learnt_from(name: str, rows: int, lacking: float, columns: int, tmp_path):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, rows)
    table = pd.DataFrame(rng.standard_normal((rows, 10)) + label[:, None], columns=[f"c{i}" for i in range(10)])
    table.loc[rng.random(rows) < lacking, ["c5", "c6", "c7", "c8", "c9"]] = np.nan
    table.assign(target=label).to_csv(tmp_path / "table.csv", index=False)
    views = {"a": ["c0..c4"], "b": ["c5..c9"]}
    datamodule = CsvViews(file=str(tmp_path / "table.csv"), modalities=views)
    method = build(name, datamodule.task, Recipe(width=32, epochs=2, batch_size=128))
    coordinate, *_ = fit(method, datamodule, seed=0)
    # Both splits have a correlation, to learn by and to choose the epoch by (beside which dccae rebuilds).
    assert all(epoch["train/coordination"] < -0.1 for epoch in coordinate.history)
    assert name == "dccae" or all(epoch["val/loss"] < -0.1 for epoch in coordinate.history)
    assert summary(method.train(False), datamodule)["trained_columns"] == columns


def test_dcca_aligns_its_codes() -> None:
    datamodule = Probe(shape="vectors")
    method = trained("dcca", datamodule, components=4)
    z = torch.cat([e.z for e in Encodings(method, datamodule.ordered("train"))])
    cross = (z[:, 0] - z[:, 0].mean(0)).T @ (z[:, 1] - z[:, 1].mean(0)) / (len(z) - 1)
    diagonal = cross.diagonal()
    assert float((cross - diagonal.diag()).abs().max()) < 1e-3
    assert (diagonal[:-1] >= diagonal[1:] - 1e-6).all()


def test_dccae_without_reconstruction_is_dcca_to_the_bit() -> None:
    datamodule = Probe(shape="vectors")
    dcca, dccae = trained("dcca", datamodule), trained("dccae", datamodule, reconstruction=0.0)
    assert dcca.state_dict().keys() == dccae.state_dict().keys()
    for key, value in dcca.state_dict().items():
        assert torch.equal(value, dccae.state_dict()[key]), key
    with_decoders = trained("dccae", datamodule)
    assert not torch.equal(with_decoders.project[0].weight, dcca.project[0].weight)


def test_dccae_rebuilds_by_the_stated_normalisation() -> None:
    datamodule = Probe(shape="image_text")
    method = build("dccae", datamodule.task, reconstruction=0.5, weight=0.0)
    batch = batch_of(datamodule)
    present = batch.present.clone()
    present[:9, 1] = False
    batch = batch._replace(present=present)
    out = method(batch.inputs, batch.present)
    total = 0.0
    for m, modality in enumerate(datamodule.task.modalities):
        x = flatten(modality, batch.inputs[modality.name])
        rows = [i for i in range(80) if present[i, m]]
        total += np.mean([(method.decoders[m](out.z[i, m]) - x[i]).square().mean().item() for i in rows])
    terms = method.coordinate(out, batch)
    assert terms["coordination"] == 0  # plain autoencoders
    assert terms["reconstruction"].item() == pytest.approx(0.5 * total, rel=1e-4)


# --- contrastive ------------------------------------------------------------------------------------------------------


def test_contrastive_loss_and_temperature() -> None:
    datamodule = Probe(shape="three")
    method = build("contrastive", datamodule.task)
    assert float(method.log_scale.exp()) == pytest.approx(1 / 0.07)
    batch = batch_of(datamodule)
    out = method(batch.inputs, batch.present)
    a, b, c = out.z.unbind(dim=1)
    expected = sum(clip_loss(x, y, 1 / 0.07) for x, y in ((a, b), (a, c), (b, c))) / 3
    torch.testing.assert_close(method.coordinate(out, batch)["coordination"], expected)


def test_the_logit_scale_ends_at_a_hundred_and_can_come_back() -> None:
    method = build("contrastive", Probe(shape="vectors").task)
    assert method.scale().item() == pytest.approx(1 / 0.07)
    torch.nn.init.constant_(method.log_scale, math.log(100) + 1)
    scale = method.scale()
    assert scale.item() == pytest.approx(100)
    assert torch.autograd.grad(scale, method.log_scale)[0] > 0
    assert any(id(method.log_scale) == id(part) for part, _ in method.stages()[0].rates)  # does not decay


def test_identities_of_texts_and_instances() -> None:
    datamodule = Probe(shape="image_text")
    batch, every = batch_of(datamodule, 6), torch.ones(6, dtype=torch.bool)
    words = torch.tensor([[1, 2, 0], [1, 2, 0], [2, 1, 0], [1, 2, 3], [1, 0, 0], [1, 2, 3]])
    task = Task(
        "t",
        "1",
        (Modality("image", "image", (3, 16, 16)), Modality("question", "text", (3,), vocabulary=11)),
        "multiclass",
        3,
    )
    batch = batch._replace(inputs={**batch.inputs, "question": words})
    ids = identities(task, "auto")(batch, every)
    assert ids is not None
    same = ids.unsqueeze(0) == ids.unsqueeze(1)
    expected = torch.eye(6, dtype=torch.bool)
    expected[0, 1] = expected[1, 0] = expected[3, 5] = expected[5, 3] = True
    assert torch.equal(same, expected)
    pairs = Probe(shape="pairs").task
    assert torch.equal(identities(pairs, "auto")(batch, every), batch.target)
    assert identities(Probe(shape="vectors").task, "auto")(batch, every) is None
    assert identities(task, "none")(batch, every) is None
    with pytest.raises(ValueError, match="needs a text"):
        identities(pairs, "text")
    with pytest.raises(ValueError, match="classes or instances"):
        identities(Probe(shape="regression").task, "target")


# --- gated ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("granularity", ["scalar", "vector"])
def test_gates_start_at_a_half_and_an_open_gate_is_the_identity(granularity: str) -> None:
    datamodule = Probe(shape="three")
    method = build("gated_coordination", datamodule.task, granularity=granularity)
    batch = batch_of(datamodule, 5)
    out = method(batch.inputs, batch.present)
    torch.testing.assert_close(out.fused, 0.5 * out.z.flatten(1))
    torch.testing.assert_close(method.weights(out.z, batch.present), torch.full((5, 3), 0.5))
    torch.nn.init.constant_(method.gate.bias, 100.0)
    torch.testing.assert_close(method.codes(out.z, batch.present), out.z)
    present = batch.present.clone()
    present[:, 1] = False
    assert not method.weights(method(batch.inputs, present).z, present)[:, 1].any()


# --- what is reported -------------------------------------------------------------------------------------------------


def test_the_transfer_probe_is_penalised_logistic_regression() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(200, 4, generator=generator) * torch.tensor([1.0, 5.0, 0.1, 1.0]) + 2
    target = (z[:, :3] + torch.randn(200, 3, generator=generator)).argmax(1)
    task = Task("t", "1", Probe(shape="vectors").task.modalities, "multiclass", 3)
    weight, bias = fit_probe(task, z, target, decay=1e-2)
    x = ((z - z.mean(0)) / z.std(0, unbiased=False)).numpy()
    sk = sklearn.linear_model.LogisticRegression(C=1 / (2 * 1e-2 * 200), tol=1e-10, max_iter=10_000).fit(x, target)
    np.testing.assert_allclose((z.double() @ weight + bias).softmax(1), sk.predict_proba(x), atol=1e-4)


def test_transfer_and_class_means_are_perfect_for_shared_codes_and_chance_for_rotated_ones() -> None:
    task = Task("t", "1", Probe(shape="vectors").task.modalities, "multiclass", 4)
    target = torch.arange(80) % 4
    generator = torch.Generator().manual_seed(0)
    code = torch.eye(4)[target] + 0.01 * torch.randn(80, 4, generator=generator)
    present = torch.ones(80, 2, dtype=torch.bool)
    shared = Codes(torch.stack([code, code], 1), present, target)
    permuted = Codes(torch.stack([code, code.roll(1, dims=1)], 1), present, target)
    found, rotated = report(task, shared, shared), report(task, permuted, permuted)
    assert found["transfer"] == found["class_mean"] == found["class_recall_at_1"] == found["recall_at_1"] == 1
    assert found["probe_a"] == rotated["probe_a"] == rotated["probe_b"] == 1
    assert "zero_shot" not in found, "labels of training rows make the means"
    assert rotated["transfer"] == rotated["class_mean"] == 0
    assert found["recall_at_1_a_to_b"] == 1
    # A linear CCA undoes the permutation: correlations do not see it.
    assert rotated["correlation_sum"] == pytest.approx(found["correlation_sum"], abs=1e-6)


def test_held_out_correlations_are_not_refitted_on_the_test_rows() -> None:
    task = Probe(shape="vectors").task
    generator = torch.Generator().manual_seed(0)

    def noise(rows: int) -> Codes:
        z = torch.randn(rows, 2, 12, generator=generator)
        return Codes(z, torch.ones(rows, 2, dtype=torch.bool), torch.arange(rows) % 3)

    found = report(task, noise(60), noise(60))
    assert found["correlation_sum_train"] > 3  # independent views, few rows: all of it is chance
    assert abs(found["correlation_sum"]) < 1.5
    assert found["correlation_directions"] == 10


def test_absent_rows_are_left_out_of_the_summary() -> None:
    datamodule = Probe(shape="vectors")
    method = build("contrastive", datamodule.task).train(False)

    def stream(split: Any) -> list[Encoded]:
        batch = datamodule.ordered(split).take(slice(0, 64))
        present = batch.present.clone()
        present[50:, 0] = False
        with torch.no_grad():
            return [Encoded(method(batch.inputs, present).z, present, batch.target, batch.row)]

    def kept(split: Any) -> list[Encoded]:
        return [Encoded(*(part[:50] for part in e)) for e in stream(split)]

    found, few = (method.summary(s("train"), s("test")) for s in (stream, kept))
    for key in ("recall_at_5", "correlation_sum", "mean_cosine_a", "probe_a"):
        assert found[key] == pytest.approx(few[key]), key
    out = Output({}, stream("test")[0].z, torch.empty(0), torch.empty(0))
    assert len(method.diagnose(out, stream("test")[0].present)["paired_cosine"]) == 50


def test_a_logarithm_needs_a_positive_kernel() -> None:
    with pytest.raises(ValueError, match="positive kernel"):
        build("kernel", Probe(shape="vectors").task, kind="linear", loss="log")


# --- what they are for, on real data ----------------------------------------------------------------------------------


def accuracy(method: Method, datamodule: DataModule) -> float:
    out = [(method(b.inputs, b.present).logits.argmax(-1) == b.target) for b in datamodule.ordered("test")]
    return float(torch.cat(out).double().mean())


def raw_probe(datamodule: DataModule, view: str) -> float:
    """Test accuracy of a linear probe on one raw view, its penalty chosen on the validation rows."""
    splits = datamodule.splits
    train = splits["train"]

    def score(split: Any, decay: float) -> float:
        weight, bias = fit_probe(datamodule.task, train.inputs[view][:], train.target, decay)
        guess = (splits[split].inputs[view][:].double() @ weight + bias).argmax(-1)
        return float((guess == splits[split].target).double().mean())

    return score("test", max((1e-4, 1e-3, 1e-2), key=lambda decay: score("val", decay)))


@pytest.mark.slow
def test_dcca_correlates_more_than_cca_and_both_probes_beat_the_better_view() -> None:
    datamodule = datasets.get("multi_digits")(views=("fou", "zer"))
    recipe = Recipe(epochs=40)
    better = max(raw_probe(datamodule, view) for view in ("fou", "zer"))
    cca, dcca = trained("cca", datamodule, recipe), trained("dcca", datamodule, recipe)
    linear, deep = summary(cca, datamodule), summary(dcca, datamodule)
    assert linear["correlation_directions"] == deep["correlation_directions"] == 10
    assert deep["correlation_sum"] > linear["correlation_sum"] + 0.2
    assert deep["transfer"] > linear["transfer"]
    assert accuracy(cca, datamodule) > better
    assert accuracy(dcca, datamodule) > better


@pytest.mark.slow
def test_contrastive_codes_beat_those_of_untrained_encoders() -> None:
    datamodule = datasets.get("av_digits")()
    recipe = Recipe(epochs=10)
    method = trained("contrastive", datamodule, recipe)
    untrained = build("contrastive", datamodule.task, recipe)
    (probe,) = untrained.probe_stages()
    untrained.stages = lambda: (probe,)  # pyright: ignore[reportAttributeAccessIssue] - the probe alone
    fit(untrained, datamodule, seed=0)
    after, before = summary(method, datamodule), summary(untrained.train(False), datamodule)
    assert accuracy(method, datamodule) > accuracy(untrained, datamodule)
    for k in (1, 5, 10):
        assert after[f"recall_at_{k}"] > before[f"recall_at_{k}"]
        assert after[f"class_recall_at_{k}"] > before[f"class_recall_at_{k}"]
    assert after["median_rank"] < before["median_rank"]
    assert after["class_mean"] > 0.5
    assert after["codes_collapsed"] == 0


@pytest.mark.parametrize(("common", "expected"), [(6, 1.0), (3, 0.5), (0, 0.0)])
def test_shared_variance_tells_strong_partial_and_no_coordination(common: int, expected: float) -> None:
    draw = torch.Generator().manual_seed(0)

    def codes(rows: int) -> Codes:
        a, b = torch.randn(2, rows, 6, generator=draw)
        b[:, :common] = 2 * a[:, :common].flip(1)  # the same directions, in another order and scale
        b[:, common:] *= 2
        return Codes(torch.stack([a, b], dim=1), torch.ones(rows, 2, dtype=torch.bool), torch.zeros(rows))

    found = shared_variance(codes(2000), codes(1000))["shared_variance"]
    assert found == pytest.approx(expected, abs=0.02)
