"""Confidence: the public vectors, loops written from the equations, absent content, gradients."""

import math
from typing import Literal, get_args

import pytest
import torch

from methods.functional import confidence
from tests.functional.modern_vectors import PRESENT, close, draw, spoiled, vector

Form = Literal["margin", "slack"]


def dempster(first: list[float], second: list[float]) -> list[float]:
    """Two opinions by the paper's rule, as evidence."""
    classes = len(first)
    (b1, u1), (b2, u2) = (([e / (sum(o) + classes) for e in o], classes / (sum(o) + classes)) for o in (first, second))
    conflict = sum(b1[i] * b2[j] for i in range(classes) for j in range(classes) if i != j)
    b = [(x * y + x * u2 + y * u1) / (1 - conflict) for x, y in zip(b1, b2, strict=True)]
    u = u1 * u2 / (1 - conflict)
    return [x * classes / u for x in b]


def test_evidence_vector() -> None:
    given, params, wanted = vector("evidential_0")
    fused = confidence.combine_evidence(given["evidence"], given["present"])
    close(fused, wanted["fused"])
    close(confidence.evidential_loss(fused, given["target"], params["kl_weight"]), wanted["loss_fused"])
    target = given["target"].unsqueeze(1).expand(-1, 3)
    each = confidence.evidential_loss(given["evidence"], target, params["kl_weight"])
    close(each * given["present"], wanted["loss_modality"])


def test_closed_form_equals_the_iterated_rule() -> None:
    evidence = draw(4, 3, 5).exp()
    fused = confidence.combine_evidence(spoiled(evidence), PRESENT)
    for b in range(4):
        opinion: list[float] = [0.0] * 5
        for m in range(3):
            if PRESENT[b, m]:
                opinion = dempster(opinion, evidence[b, m].tolist())
        assert fused[b].tolist() == pytest.approx(opinion, rel=1e-12)


def test_total_conflict() -> None:
    fused = confidence.combine_evidence(torch.tensor([[[2.0, 0.0], [0.0, 2.0]]]), torch.ones(1, 2, dtype=torch.bool))
    assert fused.tolist() == [pytest.approx([2.0, 2.0])]


def test_huge_evidence_stays_finite() -> None:
    evidence = torch.full((1, 6, 3), 1e8, requires_grad=True)
    fused = confidence.combine_evidence(evidence, torch.ones(1, 6, dtype=torch.bool))
    confidence.evidential_loss(fused, torch.tensor([1]), 1.0).sum().backward()
    assert fused.isfinite().all() and evidence.grad is not None and evidence.grad.isfinite().all()


def test_evidential_loss_is_torchs_dirichlet() -> None:
    evidence, target, weight = draw(6, 4).exp(), torch.tensor([0, 1, 2, 3, 0, 1]), 0.4
    loss = confidence.evidential_loss(evidence, target, weight)
    for b in range(6):
        alpha = evidence[b] + 1
        expected = torch.digamma(alpha.sum()) - torch.digamma(alpha[target[b]])
        wrong = alpha.clone()
        wrong[target[b]] = 1.0
        kl = torch.distributions.kl_divergence(
            torch.distributions.Dirichlet(wrong), torch.distributions.Dirichlet(torch.ones_like(wrong))
        )
        close(loss[b], expected + weight * kl)


def test_quality_vector() -> None:
    given, params, wanted = vector("quality_weighted_0")
    weights = confidence.quality_weights(given["logits"], given["present"], params["scale"])
    close(weights, wanted["weights"])
    close((weights.unsqueeze(-1) * given["logits"]).sum(dim=1), wanted["fused"])
    unclamped = confidence.energy_confidence(given["logits"], params["scale"])
    for form in get_args(Form):
        close(confidence.ranking_loss(unclamped, given["kappa"], given["present"], form), wanted[f"rank_{form}"])


def test_quality_weights_equal_a_loop_and_are_never_negative() -> None:
    logits = draw(4, 3, 5) - 3 * draw(4, 3, 1, seed=1).abs()
    weights = confidence.quality_weights(spoiled(logits), PRESENT, 0.2)
    for b in range(4):
        for m in range(3):
            energy = 0.2 * math.log(sum(math.exp(x) for x in logits[b, m].tolist()))
            assert weights[b, m].item() == pytest.approx(max(0.0, energy) if PRESENT[b, m] else 0.0)
    assert (weights[PRESENT] == 0).any() and (weights[PRESENT] > 0).any()


@pytest.mark.parametrize("form", get_args(Form))
def test_ranking_equals_a_loop(form: Form) -> None:
    w, kappa = draw(4, 3), draw(4, 3, seed=1).sigmoid()
    total = 0.0
    for m in range(3):
        costs = []
        for i in range(4):
            for j in range(4):
                if i != j and PRESENT[i, m] and PRESENT[j, m]:
                    gap = (kappa[i, m] - kappa[j, m]).item()
                    slope = math.copysign(1, gap) * (w[i, m] - w[j, m]).item()
                    costs.append(max(0.0, slope + abs(gap) if form == "margin" else slope - abs(gap)))
        total += sum(costs) / len(costs)
    assert confidence.ranking_loss(spoiled(w), spoiled(kappa), PRESENT, form).item() == pytest.approx(total)


def test_constant_confidence_costs_only_with_a_margin() -> None:
    w, kappa = torch.zeros(4, 3, dtype=torch.float64), draw(4, 3).sigmoid()
    assert confidence.ranking_loss(w, kappa, PRESENT, "slack") == 0
    assert confidence.ranking_loss(w, kappa, PRESENT, "margin") > 0


def test_belief_vector() -> None:
    given, _, wanted = vector("predicted_confidence_0")
    score, logits, present = given["score"], given["logits"], given["present"]
    close(confidence.belief_weights(score, logits, present, False), wanted["weights_train"])
    weights = confidence.belief_weights(score, logits, present, True)
    close(weights, wanted["weights_eval"])
    close((weights.unsqueeze(-1) * logits).sum(dim=1), wanted["fused_eval"])


@pytest.mark.parametrize("calibrate", [False, True])
def test_belief_equals_a_loop(calibrate: bool) -> None:
    score, logits = draw(4, 3), 2 * draw(4, 3, 5, seed=1)
    weights = confidence.belief_weights(spoiled(score), spoiled(logits), PRESENT, calibrate)
    for b in range(4):
        here = [m for m in range(3) if PRESENT[b, m]]
        p = {m: 1 / (1 + math.exp(-score[b, m])) for m in here}
        q = {m: -math.log(p[m]) for m in here}
        sharp = {m: (logits[b, m].softmax(dim=0) - 1 / 5).abs().mean().item() for m in here}
        belief = {}
        for m in here:
            others = [j for j in here if j != m]
            belief[m] = p[m] + sum(q[j] for j in others) / sum(q.values())
            if calibrate and others:
                belief[m] *= min(1.0, sharp[m] / (sum(sharp[j] for j in others) / len(others)))
        total = sum(math.exp(x) for x in belief.values())
        wanted = [math.exp(belief[m]) / total if m in here else 0.0 for m in range(3)]
        assert weights[b].tolist() == pytest.approx(wanted)


def test_belief_of_the_very_sure() -> None:
    # Shares of q at scores 20 and 18: 0.12 and 0.88. The one that is less sure has the larger q.
    both = torch.ones(1, 2, dtype=torch.bool)
    weights = confidence.belief_weights(torch.tensor([[20.0, 18.0]]), torch.zeros(1, 2, 3), both, False)
    belief = [1 + 0.880797, 1 + 0.119203]
    wanted = math.exp(belief[0]) / (math.exp(belief[0]) + math.exp(belief[1]))
    assert weights[0].tolist() == pytest.approx([wanted, 1 - wanted], abs=1e-5)
    far = confidence.belief_weights(torch.tensor([[300.0, 200.0]]), torch.zeros(1, 2, 3), both, True)
    assert far.isfinite().all() and far[0, 0] > far[0, 1]


def test_gradients() -> None:
    logits, w, kappa = draw(4, 3, 5).requires_grad_(), draw(4, 3, seed=1).requires_grad_(), draw(4, 3, seed=2).sigmoid()
    target = torch.tensor([0, 1, 2, 3])
    check = torch.autograd.gradcheck
    assert check(lambda x: confidence.combine_evidence(x.exp(), PRESENT), (logits,))
    assert check(lambda x: confidence.evidential_loss(x.exp(), target.unsqueeze(1).expand(4, 3), 0.3), (logits,))
    assert check(lambda x: confidence.quality_weights(x, PRESENT), (logits,))
    for form in get_args(Form):
        assert check(lambda x, f=form: confidence.ranking_loss(x, kappa, PRESENT, f), (w,))
    for calibrate in (False, True):
        assert check(lambda s, x, c=calibrate: confidence.belief_weights(s, x, PRESENT, c), (w, logits))
