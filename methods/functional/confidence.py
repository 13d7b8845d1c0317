"""How sure each modality is: Dirichlet evidence, energies and their ranking, predicted confidence.

`present` is `[B, M]` bool; what is absent has evidence 0 or weight 0, whatever its content.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from methods.functional.fusion import full_precision, gates
from methods.functional.mixing import keep_present

MAX_LOG_EVIDENCE = 60.0  # evidence multiplies with every modality; beyond, float32 overflows in the loss


@full_precision
def combine_evidence(evidence: Tensor, present: Tensor) -> Tensor:
    """Dempster's reduced rule for any number of modalities, `[B, M, C] -> [B, C]` (Han et al., 2021).

    With belief masses b = e / (sum e + C) and u = C / (sum e + C), combining two opinions gives
    `b = (b1 b2 + b1 u2 + b2 u1) / (1 - K)`, `u = u1 u2 / (1 - K)`. In terms of evidence the conflict K cancels:
    `e_k = C (prod_m (1 + e_mk / C) - 1)`, free of any order. An absent modality has u = 1 and is exactly neutral.
    """
    classes = evidence.shape[-1]
    logs = (keep_present(evidence, present) / classes).log1p().sum(dim=1)
    return classes * logs.clamp(max=MAX_LOG_EVIDENCE).expm1()


@full_precision
def evidential_loss(evidence: Tensor, target: Tensor, kl_weight: float | Tensor) -> Tensor:
    """Expected cross-entropy under Dir(evidence + 1), and the KL of its misleading evidence from the uniform Dirichlet.

    Args:
        evidence: `[..., C]`.
        target: Classes, `[...]`.
        kl_weight: Of the second term.

    Returns:
        `[...]`.
    """
    classes = evidence.shape[-1]
    alpha = evidence + 1
    right = F.one_hot(target.long(), classes).to(torch.bool)
    strength = alpha.sum(dim=-1)
    expected = strength.digamma() - alpha.masked_fill(~right, 0.0).sum(dim=-1).digamma()
    # What speaks for the right class is not to be regretted: its parameter is 1 in the KL.
    wrong = alpha.masked_fill(right, 1.0)
    total = wrong.sum(dim=-1, keepdim=True)
    kl = (
        total.squeeze(-1).lgamma()
        - torch.full_like(strength, float(classes)).lgamma()
        - wrong.lgamma().sum(dim=-1)
        + ((wrong - 1) * (wrong.digamma() - total.digamma())).sum(dim=-1)
    )
    return expected + kl_weight * kl


@full_precision
def energy_confidence(logits: Tensor, scale: float = 0.1) -> Tensor:
    """`scale * logsumexp(logits)`, minus the energy: `[..., C] -> [...]`."""
    return scale * logits.logsumexp(dim=-1)


def quality_weights(logits: Tensor, present: Tensor, scale: float = 0.1) -> Tensor:
    """Weights of the modalities by their energy, `[B, M, C] -> [B, M]` (Zhang et al., 2023).

    A negative weight would turn a modality's vote around: it counts as zero.
    """
    return energy_confidence(keep_present(logits, present), scale).clamp_min(0) * present


@full_precision
def ranking_loss(
    confidence: Tensor, kappa: Tensor, present: Tensor, form: Literal["margin", "slack"] = "margin"
) -> Tensor:
    """Rows that were harder so far should be less confident; mean over ordered pairs that have m, summed over m.

    Args:
        confidence: `[B, M]`.
        kappa: `[B, M]`, how hard the row has been for the modality, from 0 to 1.
        present: `[B, M]`.
        form: "margin" asks for a difference of at least |kappa_i - kappa_j|; "slack" forgives one up to it.
    """
    w, hard = keep_present(confidence, present), keep_present(kappa, present)
    gap = hard.unsqueeze(1) - hard.unsqueeze(0)  # [i, j, m]
    slope = gap.sign() * (w.unsqueeze(1) - w.unsqueeze(0))
    cost = (slope + gap.abs() if form == "margin" else slope - gap.abs()).clamp_min(0)
    pairs = present.unsqueeze(1) & present.unsqueeze(0)
    pairs = pairs & ~torch.eye(len(w), dtype=torch.bool, device=w.device).unsqueeze(-1)
    return ((cost * pairs).sum(dim=(0, 1)) / pairs.sum(dim=(0, 1)).clamp_min(1)).sum()


@full_precision
def belief_weights(score: Tensor, logits: Tensor, present: Tensor, calibrate: bool) -> Tensor:
    """Weights from predicted confidence and the others' lack of it, `[B, M]` (Cao et al., 2024).

    Args:
        score: `[B, M]`; its sigmoid is the predicted probability of the true class.
        logits: `[B, M, C]`, the decisions of the modalities.
        present: `[B, M]`.
        calibrate: Trust less who is closer to a uniform distribution than the others are.
    """
    score = keep_present(score, present)
    # holo_m = sum_{j != m} q_j / sum_j q_j of q = -log sigmoid(score). As a softmax of log q: scores of 20 and 18 have
    # a q of 1e-9, and at 100 it would vanish.
    log_q = torch.where(score > 30, -score, F.softplus(-score.clamp(max=30)).log())
    belief = score.sigmoid() + 1 - gates(log_q, "softmax", present)
    if calibrate:
        belief = belief * _relative_sharpness(keep_present(logits, present), present)
    return gates(belief, "softmax", present)


def _relative_sharpness(logits: Tensor, present: Tensor) -> Tensor:
    """`min(1, DU_m / mean_{j != m} DU_j)`, DU the distance from uniform; 1 where there is no other, or none sharper."""
    sharp = keep_present((logits.softmax(dim=-1) - 1 / logits.shape[-1]).abs().mean(dim=-1), present)
    others = (present.sum(dim=1, keepdim=True) - 1).clamp_min(1)
    # Not the sum less the own: the difference of equal numbers would not be zero.
    apart = 1 - torch.eye(present.shape[1], dtype=sharp.dtype, device=sharp.device)
    mean = sharp @ apart / others
    ratio = sharp / torch.where(mean > 0, mean, torch.ones_like(mean))
    return torch.where(mean > 0, ratio.clamp(max=1), torch.ones_like(mean))
