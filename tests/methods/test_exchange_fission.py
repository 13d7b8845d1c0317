"""Channel exchange and the fission methods: identities, masks, losses, and who may apply."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmark.trainer import fit
from datamodules.base import DataModule, Split
from datamodules.spec import Batch, Modality, Task
from methods import Output, Recipe, Tokens, methods
from methods.channel_exchange import draw
from methods.factorized import Latents, match_prior, some_hidden
from methods.functional.fission import orthogonality
from methods.parts.private_norm import PrivateNorm
from methods.wrapper import Base
from tests.methods import conftest
from tests.methods.conftest import batch_of

WIDTH = 12


def images(count: int = 2) -> Task:
    return conftest.task(conftest.images(count))


def vectors(count: int = 2) -> Task:
    return conftest.task(conftest.vectors(count))


def build(name: str, task: Task, **options: Any) -> Any:
    return conftest.build(name, task, recipe=Recipe(width=WIDTH), **options)


def run(method: Any, batch: Batch) -> Output:
    return method(batch.inputs, batch.present)


def kill(method: Any, layer: int, modality: int, channels: slice) -> None:
    with torch.no_grad():
        method.network.norms[layer].gamma[modality, channels] = 0.0


# ---- channel exchange ---------------------------------------------------------------------------------------------


def test_threshold_zero_is_the_twin_without_exchange() -> None:
    task = images()
    learned, none = build("channel_exchange", task, threshold=0.0), build("channel_exchange", task, exchange="none")
    batch = batch_of(task)
    assert torch.equal(run(learned, batch).logits, run(none, batch).logits)


def test_twins_start_from_the_same_weights() -> None:
    states = [build("channel_exchange", images(), exchange=kind).state_dict() for kind in ("learned", "none", "random")]
    for state in states[1:]:
        assert all(torch.equal(value, state[name]) for name, value in states[0].items())


def test_a_high_threshold_swaps_the_modalities_at_every_layer() -> None:
    task, batch = images(), batch_of(images())
    none = build("channel_exchange", task, exchange="none").eval()
    swapped = build("channel_exchange", task, threshold=1e9).eval()
    odd = len(swapped.network.norms) % 2
    z, crossed = run(none, batch).z, run(swapped, batch).z
    assert torch.allclose(crossed, z.flip(1) if odd else z, atol=1e-5)
    assert not torch.allclose(z, z.flip(1), atol=1e-3)


def test_permuting_the_modalities_permutes_the_encodings() -> None:
    task, batch = images(3), batch_of(images(3))
    method = build("channel_exchange", task, threshold=0.5)
    for layer, m in product(range(len(method.network.norms)), range(3)):
        kill(method, layer, m, slice(m, m + 2))
    z, order = run(method.eval(), batch).z, [2, 0, 1]
    with torch.no_grad():
        for norm in method.network.norms:
            norm.gamma.copy_(norm.gamma[order])
    permuted = batch._replace(inputs={f"m{k}": batch.inputs[f"m{i}"] for k, i in enumerate(order)})
    assert torch.allclose(run(method, permuted).z, z[:, order], atol=1e-5)


def test_exchanged_channels_get_no_task_gradient() -> None:
    task, batch = images(), batch_of(images())
    method = build("channel_exchange", task, penalty=0.0)
    kill(method, 1, 0, slice(0, 2))
    torch.stack(list(method.losses(run(method, batch), batch).values())).sum().backward()
    gradient = method.network.norms[1].gamma.grad
    assert (gradient[0, :2] == 0).all() and (gradient[0, 2:] != 0).any() and (gradient[1, :2] != 0).any()


def test_an_absent_modality_reaches_nothing_and_the_present_one_keeps_its_channels() -> None:
    task, batch = images(), batch_of(images())
    method = build("channel_exchange", task)
    for layer in range(len(method.network.norms)):
        kill(method, layer, 0, slice(0, 3))
    with torch.no_grad():
        for norm in method.network.norms:
            norm.beta.add_(torch.rand_like(norm.beta))
    method.eval()
    present = batch.present.clone()
    present[:3, 1] = False
    out, whole = run(method, batch._replace(present=present)), run(method, batch)
    none = build("channel_exchange", task, exchange="none").eval()
    none.load_state_dict(method.state_dict())
    assert torch.allclose(out.z[:3, 0], run(none, batch).z[:3, 0], atol=1e-6)
    assert torch.allclose(out.z[3:], whole.z[3:], atol=1e-6)
    assert not torch.allclose(out.z[:3, 0], whole.z[:3, 0], atol=1e-3)


def test_private_norm_is_batch_norm_over_the_rows_that_are_there() -> None:
    torch.manual_seed(0)
    x, there = torch.randn(2, 7, 3, 4, 4) * 2 + 1, torch.ones(2, 7, dtype=torch.bool)
    there[1, 4:] = False
    norm, references = PrivateNorm(2, 3), [nn.BatchNorm2d(3), nn.BatchNorm2d(3)]
    out = norm(x, there)
    for m, reference in enumerate(references):
        assert torch.allclose(out[m, there[m]], reference(x[m, there[m]]), atol=1e-5)
        assert reference.running_mean is not None and reference.running_var is not None
        assert torch.allclose(norm.mean[m], reference.running_mean, atol=1e-6)
        assert torch.allclose(norm.variance[m], reference.running_var, atol=1e-5)
    evaluated = norm.eval()(x, there)
    assert torch.allclose(evaluated[0], references[0].eval()(x[0]), atol=1e-5)


def test_a_modality_no_row_has_keeps_its_statistics() -> None:
    norm, there = PrivateNorm(2, 3), torch.tensor([[True] * 4, [False] * 4])
    out = norm(torch.randn(2, 4, 3, 2, 2), there)
    assert out.isfinite().all() and torch.equal(norm.mean[1], torch.zeros(3)) and (norm.mean[0] != 0).all()


class Halves(DataModule):
    """A few random images with random labels: enough for steps and epochs."""

    def describe(self) -> Task:
        return images()

    def load(self) -> dict[Any, Split]:
        generator = torch.Generator().manual_seed(0)

        def split(rows: int) -> Split:
            inputs = {m.name: torch.randn(rows, *m.shape, generator=generator) for m in self.task.modalities}
            return Split(inputs, torch.randint(3, (rows,), generator=generator))

        return {"train": split(64), "val": split(16), "test": split(16)}


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_share_of_exchanged_channels_is_recorded_per_layer_and_epoch(wrapped: bool) -> None:
    recipe = Recipe(width=WIDTH, epochs=6 if wrapped else 3, batch_size=16, lr=2e-2, patience=3)
    torch.manual_seed(0)
    options = {"threshold": 0.4, "penalty": 10.0}  # high and heavy: scales fall below it within a few steps
    cls = methods.get("augmented" if wrapped else "channel_exchange")
    given: dict[str, Any] = {"base": Base("channel_exchange", options)} if wrapped else options
    method = cls(images(), recipe, **given)
    stage, *more = fit(method, Halves())
    # The wrapper says it of its base, whose network its own stage leaves alone.
    assert [[set(epoch) >= {f"exchanged_{layer}" for layer in range(3)} for epoch in s.history] for s in more] == (
        [[True] * 3] if wrapped else []
    )
    exchanging = method.base if wrapped else method
    shares = [[epoch[f"exchanged_{layer}"] for layer in range(3)] for epoch in stage.history]
    assert len(shares) == stage.epochs == 3
    assert shares[0] != shares[-1]
    assert max(shares[-1]) > 0
    # The weights that were kept are those of the best epoch.
    kept = [float(dead.float().mean()) for dead in exchanging.network.dead()]
    assert kept == pytest.approx(shares[stage.best_epoch])
    assert not any(name.startswith("exchanged") for name in fit(build("concat", images()), Halves())[0].history[0])


@pytest.mark.parametrize(("kind", "share"), [("none", 0.0), ("random", 0.25)])
def test_the_twins_exchange_what_they_say(kind: str, share: float) -> None:
    found = build("channel_exchange", images(), exchange=kind).progress()
    assert set(found) == {"exchanged_0", "exchanged_1", "exchanged_2"}
    assert list(found.values()) == pytest.approx([share] * 3)  # half of each modality's half of the channels


def test_ensemble_weights_learn_from_the_ensemble_alone() -> None:
    task, batch = images(), batch_of(images())
    method = build("channel_exchange", task)
    out = run(method, batch)
    terms = method.losses(out, batch)
    decisions = method.predict(out.z)
    assert torch.allclose(terms["m1"], task.goal.loss(decisions[:, 1], batch.target))
    assert torch.allclose(terms["ensemble"], task.goal.loss(out.logits, batch.target), atol=1e-6)
    learned = [p for p in method.parameters() if p is not method.alpha]
    gradients = torch.autograd.grad(terms["ensemble"], [method.alpha, *learned], allow_unused=True, retain_graph=True)
    assert gradients[0] is not None and all(g is None for g in gradients[1:])
    assert torch.autograd.grad(terms["m0"] + terms["m1"], method.alpha, allow_unused=True)[0] is None


def test_weights_are_a_softmax_over_those_present() -> None:
    method = build("channel_exchange", images(3))
    with torch.no_grad():
        method.alpha.copy_(torch.tensor([0.0, 1.0, 2.0]))
    present = torch.tensor([[True, True, True], [True, False, True]])
    weights = method.weights(torch.zeros(2, 3, WIDTH), present)
    assert torch.allclose(weights[0], torch.tensor([0.0, 1.0, 2.0]).softmax(0))
    assert weights[1, 1] == 0 and torch.allclose(weights[1, [0, 2]], torch.tensor([0.0, 2.0]).softmax(0))


def test_random_draws_the_share_of_each_disjoint_group() -> None:
    torch.manual_seed(0)
    drawn = draw(3, 13, 0.5)
    assert drawn.sum(dim=0).max() == 1
    assert drawn.sum(dim=1).tolist() == [2, 2, 2]
    assert draw(2, 8, 1.0).tolist() == [[True] * 4 + [False] * 4, [False] * 4 + [True] * 4]


def test_diagnose_counts_exchanged_channels_per_layer() -> None:
    method, batch = build("channel_exchange", images()), batch_of(images())
    channels = method.network.norms[1].gamma.shape[1]
    kill(method, 1, 0, slice(0, 2))
    kill(method, 1, 1, slice(1, 2))
    found = method.diagnose(run(method, batch), batch.present)
    assert found["exchanged_0"] == 0
    assert float(found["exchanged_1"]) == pytest.approx(3 / (2 * channels))
    assert float(found["dead_twice_1"]) == pytest.approx(1 / channels)


def test_channel_exchange_says_where_it_does_not_apply() -> None:
    cls = methods.get("channel_exchange")
    assert cls.applies_to(images(4), {}) is None
    assert "`m0` is a vector" in cls.applies_to(vectors(), {})
    mixed = Task("t", "1", (Modality("a", "image", (1, 8, 8)), Modality("b", "image", (3, 8, 8))), "multiclass", 2)
    assert "these differ" in cls.applies_to(mixed, {})


# ---- shared and private -------------------------------------------------------------------------------------------


def test_shared_private_terms_follow_the_equation() -> None:
    task, batch = vectors(3), batch_of(vectors(3), 20)
    method = build("shared_private", task, alignment=2.0, orthogonal=3.0, reconstruction=5.0)
    out = run(method, batch)
    s, p = out.z[..., :6], out.z[..., 6:]
    pairs = [(0, 1), (0, 2), (1, 2)]
    terms = method.auxiliary(out, batch)
    align = sum((1 - torch.cosine_similarity(s[:, i], s[:, j])).mean() for i, j in pairs)
    apart = sum(orthogonality(s[:, m], p[:, m]) for m in range(3))
    apart = apart + sum(orthogonality(p[:, i], p[:, j]) for i, j in pairs)
    rebuilt = sum((d(out.z[:, m]) - batch.inputs[f"m{m}"]).square().mean() for m, d in enumerate(method.decoders))
    for name, value in (("alignment", 2 * align), ("orthogonality", 3 * apart), ("reconstruction", 5 * rebuilt)):
        assert terms[name].item() == pytest.approx(float(value), rel=1e-4), name
    assert torch.allclose(out.fused[:, :6], s.mean(dim=1), atol=1e-6) and torch.equal(out.fused[:, 6:], p.flatten(1))


def test_shared_code_is_the_mean_of_those_present() -> None:
    task, batch = vectors(3), batch_of(vectors(3))
    method = build("shared_private", task).eval()
    present = batch.present.clone()
    present[:, 1] = False
    out = run(method, batch._replace(present=present))
    assert torch.allclose(out.fused[:, :6], out.z[:, [0, 2], :6].mean(dim=1), atol=1e-6)
    assert (out.fused[:, 12:18] == 0).all()


@pytest.mark.parametrize("name", ["shared_private", "factorized", "clustered"])
def test_losses_are_finite_when_hardly_anything_is_present(name: str) -> None:
    task, batch = vectors(3), batch_of(vectors(3))
    present = torch.zeros_like(batch.present)
    present[:, 0] = True
    batch = batch._replace(present=present)
    method = build(name, task)
    loss = torch.stack(list(method.objective(run(method, batch), batch).values())).sum()
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in method.parameters())


# ---- factorized ---------------------------------------------------------------------------------------------------


def test_surrogate_answers_only_where_something_is_absent() -> None:
    task, batch = vectors(), batch_of(vectors())
    method = build("factorized", task).eval()
    present = batch.present.clone()
    present[::2, 1] = False
    before = run(method, batch._replace(present=present)).fused
    with torch.no_grad():
        method.surrogate[-1].bias += 10
    after = run(method, batch._replace(present=present)).fused
    assert torch.equal(before[1::2], after[1::2]) and not torch.allclose(before[::2], after[::2])


def test_surrogate_loss_trains_the_surrogate_alone() -> None:
    task, batch = vectors(3), batch_of(vectors(3))
    method = build("factorized", task)
    method.auxiliary(run(method, batch), batch)["surrogate"].backward()
    touched = {n.split(".")[0] for n, p in method.named_parameters() if p.grad is not None and p.grad.any()}
    assert touched == {"surrogate"}


def test_some_hidden_keeps_at_least_one_and_hides_at_least_one() -> None:
    torch.manual_seed(0)
    kept = some_hidden(500, 4, torch.device("cpu")).sum(dim=1)
    assert kept.unique().tolist() == [1, 2, 3]
    assert (some_hidden(50, 2, torch.device("cpu")).sum(dim=1) == 1).all()


def test_prior_term_sees_dependence_between_latents() -> None:
    torch.manual_seed(0)
    complete = torch.ones(64, dtype=torch.bool)
    apart, together = [], []
    for _ in range(20):  # batches: the estimate of one is noisy
        label, own = torch.randn(64, 2), torch.randn(64, 2, 2)
        apart.append(match_prior(Latents(label, own), complete))
        together.append(match_prior(Latents(label, torch.stack([label, label], dim=1)), complete))
        assert match_prior(Latents(label, own), ~complete) == 0
    assert torch.stack(together).mean() > 1.5 * torch.stack(apart).mean()


def test_decoders_are_not_used_to_predict() -> None:
    task, batch = vectors(), batch_of(vectors())
    method = build("factorized", task).eval()
    before = run(method, batch).logits
    with torch.no_grad():
        for part in (method.decoders, method.to_own, method.own_factors):
            for p in part.parameters():
                p.zero_()
    assert torch.equal(run(method, batch).logits, before)


# ---- clustered ----------------------------------------------------------------------------------------------------


def tokens_of(lengths: tuple[int, ...], rows: int = 3) -> dict[str, Tokens]:
    torch.manual_seed(3)
    return {f"m{i}": Tokens(torch.randn(rows, n, WIDTH), (n,)) for i, n in enumerate(lengths)}


def loop_similarity(a: Tensor, b: Tensor, prototypes: Tensor, tau: float, k: int) -> Tensor:
    """`mean_{t,u} q_A(t,k) q_B(u,k) <a_t, b_u> / D` of one row."""
    unit = nn.functional.normalize(prototypes, dim=-1)
    total = torch.zeros(())
    for t, u in product(a, b):
        q_t = (unit @ (t / t.norm()) / tau).softmax(0)[k]
        q_u = (unit @ (u / u.norm()) / tau).softmax(0)[k]
        total = total + q_t * q_u * (t @ u)
    return total / (len(a) * len(b) * a.shape[1])


def test_similarity_per_cluster_equals_the_loop_over_pairs_of_tokens() -> None:
    method, tokens = build("clustered", vectors(), clusters=3), tokens_of((4, 5))
    out = method.complete(tokens, torch.ones(3, 2, dtype=torch.bool))
    found = method.similarities(out.z)
    for row, k in product(range(3), range(3)):
        expected = loop_similarity(tokens["m0"].x[row], tokens["m1"].x[row], method.prototypes, method.temperature, k)
        assert torch.allclose(found[row, 0, k], expected, atol=1e-5)
    assert torch.allclose(out.z.unflatten(-1, (3, -1)).sum(dim=2)[:, 0], tokens["m0"].x.mean(dim=1), atol=1e-5)


def test_padding_has_no_share_in_any_cluster() -> None:
    method, tokens = build("clustered", vectors()), tokens_of((4, 5))
    mask = torch.tensor([[True, True, False, False]] * 3)
    short = {**tokens, "m0": Tokens(tokens["m0"].x[:, :2], (2,))}
    padded = {**tokens, "m0": tokens["m0"]._replace(mask=mask)}
    present = torch.ones(3, 2, dtype=torch.bool)
    assert torch.allclose(method.pool(short, present), method.pool(padded, present), atol=1e-6)
    assert torch.allclose(method.cluster(short, present), method.cluster(padded, present), atol=1e-6)


def test_clustering_spreads_collapsed_prototypes() -> None:
    method, tokens = build("clustered", vectors(), clusters=4), tokens_of((6, 6), rows=32)
    present = torch.ones(32, 2, dtype=torch.bool)
    with torch.no_grad():
        method.prototypes.copy_(method.prototypes[:1] + 0.05 * method.prototypes)
    optimiser = torch.optim.Adam([method.prototypes], lr=0.05)
    first = method.cluster(tokens, present).item()
    for _ in range(60):
        optimiser.zero_grad()
        method.cluster(tokens, present).backward()
        optimiser.step()
    assert method.cluster(tokens, present).item() < first - 0.1
    assert method.diagnose(method.complete(tokens, present), present)["largest_cluster"] < 0.35


def test_agreement_is_least_for_equal_shares() -> None:
    method, tokens = build("clustered", vectors()), tokens_of((4, 4))
    present = torch.ones(3, 2, dtype=torch.bool)
    shares = method.assign(tokens["m0"]).sum(dim=1)
    entropy = -(shares * shares.log()).sum(dim=-1).mean()
    same = {"m0": tokens["m0"], "m1": tokens["m0"]}
    assert torch.allclose(method.agree(same, present), entropy, atol=1e-5)
    assert method.agree(tokens, present) > entropy
