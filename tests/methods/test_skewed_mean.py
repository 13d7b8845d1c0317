"""skewed_mean: any fusion with a cosine head, a library loss and a centre regulariser."""

import math
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from lightning import Trainer
from pytorch_metric_learning.losses import NormalizedSoftmaxLoss, ProxyAnchorLoss
from torch import Tensor

from datamodules.spec import Batch, Modality, Task
from datamodules.two_digits import TwoDigits
from methods import Base, Encoded, Recipe
from methods.concat import Concat
from methods.functional.centers import r1, rooted_mhe
from methods.functional.retrieval import recall_at_k
from methods.parts.center_regularizers import Regularizer
from methods.parts.class_centers import Loss, ProxyNCA, metric_loss
from methods.parts.unseen_classes import normalized_mutual_information
from methods.registry import methods
from methods.skewed_mean import SkewedMean
from tests.methods import conftest

RECIPE = Recipe(width=8, epochs=2, batch_size=32)
PAIR = (Modality("a", "vector", (5,)), Modality("b", "vector", (7,)))
CLASSES = Task("classes", "1", PAIR, "multiclass", 6)
SEARCH = Task("search", "1", PAIR, "retrieval", 6)
LOSSES = get_args(Loss)


def batch_of() -> Batch:
    batch = conftest.batch_of(CLASSES, 24)
    batch.present[0, 1] = batch.present[1, 0] = False
    return batch


def build(task: Task = CLASSES, **options) -> SkewedMean:
    torch.manual_seed(0)
    return SkewedMean(task, RECIPE, **options)


def total(method: SkewedMean, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    terms = method.objective(method(batch.inputs, batch.present), batch)
    return torch.stack(list(terms.values())).sum(), terms


@pytest.mark.parametrize("loss", LOSSES)
def test_regulariser_adds_its_weight_times_itself(loss):
    batch = batch_of()
    plain, _ = total(build(loss=loss, regularizer=Regularizer("none")), batch)
    method = build(loss=loss, weight=3.0)
    value, _ = total(method, batch)
    assert (value - plain).item() == pytest.approx(3 * r1(method.centers(), 16.0).item(), abs=1e-5)


def test_proxy_nca_leaves_the_positive_out_of_the_denominator():
    generator = torch.Generator().manual_seed(0)
    x, labels = torch.randn(7, 8, generator=generator), torch.tensor([0, 1, 2, 3, 4, 5, 2])
    loss = ProxyNCA(6, 8, softmax_scale=16)
    expected = 0.0
    for row, label in zip(x, labels.tolist(), strict=True):
        far = [16 * float((F.normalize(row, dim=0) - F.normalize(p, dim=0)).square().sum()) for p in loss.proxies]
        expected -= math.log(math.exp(-far[label]) / sum(math.exp(-d) for c, d in enumerate(far) if c != label)) / 7
    assert loss(x, labels).item() == pytest.approx(expected, rel=1e-5)


def pairs() -> tuple[Tensor, list[int]]:
    return torch.randn(8, 5, generator=torch.Generator().manual_seed(1)), [0, 1, 2, 0, 3, 2, 1, 3]


def test_n_pair_against_a_loop():
    """Sohn (2016), Eq. 6: one pair of rows a class, inner products as they are."""
    x, labels = pairs()
    first = {c: labels.index(c) for c in range(4)}
    second = {c: 7 - labels[::-1].index(c) for c in range(4)}
    expected = 0.0
    for c in range(4):
        own = float(x[first[c]] @ x[second[c]])
        others = [math.exp(float(x[first[c]] @ x[second[k]]) - own) for k in range(4) if k != c]
        expected += math.log(1 + sum(others)) / 4
    loss = metric_loss("n_pair", 4, 5, None, 1.0)
    assert loss is not None
    assert loss(x, torch.tensor(labels)).item() == pytest.approx(expected, rel=1e-5)


def test_lifted_structure_against_a_loop():
    """Song et al. (2016), Eq. 4, on unit vectors with a margin of 1."""
    x, labels = pairs()
    u = F.normalize(x, dim=1)
    expected, count = 0.0, 0
    for i in range(8):
        for j in range(8):
            if i == j or labels[i] != labels[j]:
                continue
            rivals = [
                math.exp(1 - float((u[a] - u[k]).norm())) for a in (i, j) for k in range(8) if labels[k] != labels[a]
            ]
            expected += max(0.0, math.log(sum(rivals)) + float((u[i] - u[j]).norm())) ** 2
            count += 1
    loss = metric_loss("lifted_structure", 4, 5, None, 1.0)
    assert loss is not None
    assert loss(x, torch.tensor(labels)).item() == pytest.approx(expected / (2 * count), rel=1e-5)


def test_the_regularisers_options_reach_the_centres():
    batch = batch_of()
    method = build(regularizer=Regularizer("mhe", {"s": 2.0}), weight=0.5)
    _, terms = total(method, batch)
    assert terms["centers"].item() == pytest.approx(0.5 * rooted_mhe(method.centers(), 2.0).item())
    method = build(regularizer=Regularizer("r1", {"gamma": 4.0, "form": "softplus", "delta": 0.2}))
    _, terms = total(method, batch)
    assert terms["centers"].item() == pytest.approx(r1(method.centers(), 4.0, 0.2, "softplus").item())


@pytest.mark.parametrize(
    ("loss", "library", "attribute"),
    [
        ("proxy_anchor", ProxyAnchorLoss(6, 8, margin=0.1, alpha=32), "proxies"),
        ("proxy_nca", ProxyNCA(6, 8, softmax_scale=16), "proxies"),
        ("normalized_softmax", NormalizedSoftmaxLoss(6, 8, temperature=0.05), "W"),
    ],
)
def test_loss_is_the_librarys_on_the_fused_embedding(loss, library, attribute):
    batch, method = batch_of(), build(loss=loss, regularizer=Regularizer("none"))
    centers = method.centers().detach()
    setattr(library, attribute, torch.nn.Parameter(centers.T.contiguous() if attribute == "W" else centers))
    _, terms = total(method, batch)
    fused = method(batch.inputs, batch.present).fused
    assert terms[loss].item() == pytest.approx(library(fused, batch.target).item(), rel=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_logits_are_scaled_cosines(loss):
    method, batch = build(loss=loss), batch_of()
    out = method(batch.inputs, batch.present)
    cosine = F.normalize(out.fused, dim=1) @ F.normalize(method.centers(), dim=1).T
    assert torch.allclose(out.logits, 16 * cosine, atol=1e-5)
    assert method.centers().shape == (6, 8)


@pytest.mark.parametrize("loss", LOSSES)
def test_centres_learn_faster_and_do_not_decay(loss):
    method = build(loss=loss, rate=50.0)
    optimizer = method.configure_optimizers()
    center = method._center_parameter()
    (group,) = [g for g in optimizer.param_groups if any(p is center for p in g["params"])]
    assert [id(p) for p in group["params"]] == [id(center)]
    assert group["lr"] == pytest.approx(50 * RECIPE.lr)
    assert group["weight_decay"] == 0


def test_views_all_adds_present_modalities_alone():
    batch, method = batch_of(), build(views="all", loss="proxy_anchor")
    out = method(batch.inputs, batch.present)
    embeddings, labels = method._rows(out, batch)
    assert len(embeddings) == len(labels) == 24 + 23 + 23
    only = torch.zeros_like(batch.present)
    only[:, 0] = batch.present[:, 0]
    alone = method(batch.inputs, only).fused[batch.present[:, 0]]
    assert torch.allclose(embeddings[24:47], alone, atol=1e-6)


class Curious(Concat):
    """A base whose own terms look at its joint representation."""

    def auxiliary(self, out, batch):
        return {"size": out.fused.square().mean()}

    def diagnose(self, out, present):
        return {"width": torch.tensor(float(out.fused.shape[1]))}


def test_the_base_sees_its_own_joint_representation(monkeypatch):
    monkeypatch.setattr("methods.wrapper.methods.get", lambda name: Curious)
    method, batch = build(base=Base("curious", {"hidden": 5})), batch_of()
    out = method(batch.inputs, batch.present)
    _, terms = total(method, batch)
    assert terms["size"].item() == pytest.approx(method.base.fuse(out.z, batch.present).square().mean().item())
    assert method.diagnose(out, batch.present)["width"] == 5


def test_half_precision_embeddings_leave_the_centres_alone():
    method, batch = build(loss="proxy_anchor"), batch_of()
    out = method(batch.inputs, batch.present)
    half = out._replace(fused=out.fused.bfloat16(), z=out.z.bfloat16())
    method.auxiliary(half, batch)
    assert method.centers().dtype == torch.float32


def test_the_base_keeps_its_options_and_loses_its_head():
    method = build(base=Base("concat", {"hidden": 5}))
    assert method.embed.in_features == 5
    assert method.base.head is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regularizer": Regularizer("farthest")}, "allow_collapse"),
        ({"regularizer": Regularizer("nearest")}, "no regulariser named"),
        ({"base": Base("late")}, "one stage by gradient, got 'late'"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_applies_to_one_class_per_row():
    assert SkewedMean.applies_to(CLASSES, {}) is None
    assert SkewedMean.applies_to(SEARCH, {}) is None
    for target in ("regression", "multilabel", "pairs"):
        assert target in (SkewedMean.applies_to(Task("t", "1", PAIR, target, 3), {}) or "")
    two = Task("two", "1", PAIR, "multiclass", 2)
    assert "antipodal" in (SkewedMean.applies_to(two, {}) or "")
    assert SkewedMean.applies_to(two, {"regularizer": Regularizer("none")}) is None


def encoded(rows: int, seed: int) -> list[Encoded]:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(rows, 2, 8, generator=generator)
    present, row = torch.ones(rows, 2, dtype=torch.bool), torch.arange(rows)
    return [Encoded(z[r], present[r], torch.arange(len(r)) % 6, r) for r in row.split(18)]


def test_summary_flags_a_collapse():
    method = build(regularizer=Regularizer("farthest", {"allow_collapse": True}))
    assert method.summary(encoded(36, 0), encoded(36, 1))["centers_collapsed"] == 0.0
    with torch.no_grad():
        method.centers()[:3] = method.centers()[0]
    found = method.summary(encoded(36, 0), encoded(36, 1))
    assert found["centers_collapsed"] == 1.0
    assert found["centers_min_distance"] == pytest.approx(0, abs=1e-6)
    assert "nmi" not in found


def test_summary_of_a_retrieval_task():
    method, test = build(SEARCH).eval(), encoded(36, 1)
    found = method.summary(encoded(36, 0), test)
    z, y = torch.cat([e.z for e in test]), torch.cat([e.target for e in test])
    present = torch.ones(36, 2, dtype=torch.bool)
    a = method.fuse(z * torch.tensor([1.0, 0.0])[:, None], present & torch.tensor([True, False]))
    fused = method.fuse(z, present)
    assert found["recall_at_1_a_to_fused"] == recall_at_k(a, fused, y, y, (1,), exclude_self=True)[1]
    assert {f"recall_at_1_{q}_to_{g}" for q in "ab" for g in ("a", "b", "fused")} <= set(found)
    assert found["nmi"] == pytest.approx(normalized_mutual_information(fused, y))
    assert found["queries_without_positive"] == 0
    # A transformer's encodings have seen every modality: it cannot be asked what one alone finds.
    mixed = build(SEARCH, base=Base("transformer")).eval().summary(encoded(36, 0), test)
    assert "nmi" in mixed
    assert not [key for key in mixed if "_to_" in key]


def test_clusters_that_are_the_classes_have_full_mutual_information():
    y = torch.arange(30) % 3
    assert normalized_mutual_information(F.one_hot(y, 3) + 0.01 * torch.randn(30, 3), y) == pytest.approx(1)


def test_learns_to_retrieve():
    data = TwoDigits()
    torch.manual_seed(0)
    method = SkewedMean(data.task, Recipe(width=16, epochs=2, lr=3e-3), loss="proxy_anchor", embedding=16)
    data.batch_size = 64

    def seen_recall() -> float:
        train = data.splits["train"]
        rows = torch.arange(0, len(train.target), 4)
        with torch.no_grad():
            fused = method.eval()({name: x[rows] for name, x in train.inputs.items()}).fused
        method.train()
        return recall_at_k(fused, fused, train.target[rows], train.target[rows], (1,), exclude_self=True)[1]

    before = seen_recall()
    trainer = Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(method, data)
    assert seen_recall() > before + 0.1


@pytest.mark.parametrize("wrapper", ["augmented", "emma"])
def test_a_wrapper_counts_its_cross_entropy_once(wrapper):
    torch.manual_seed(0)
    method = methods.get(wrapper)(CLASSES, RECIPE, base=Base("skewed_mean"))
    last = method.stages()[-1]
    with method.in_stage(last):
        batch = batch_of()
        terms = method.objective(method(batch.inputs, batch.present), batch)
    assert "classifier" in terms and "task" not in terms
    plain = methods.get(wrapper)(CLASSES, RECIPE, base=Base("concat"))
    with plain.in_stage(plain.stages()[-1]):
        assert "task" in plain.objective(plain(batch.inputs, batch.present), batch)
