"""Balance between modalities in training: how fast each may learn, how much its loss counts, whom it imitates."""

# Not every function of torch says what it returns.
# pyright: reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from methods.functional.fusion import full_precision
from methods.functional.mixing import keep_present


@full_precision
def modulation(loss: Tensor, present: Tensor, alpha: float) -> Tensor:
    """Slow the modalities that are ahead: `k = 1 - tanh(alpha rho)` where rho > 1, else 1 (Peng et al., 2022).

    rho_m is the score of a modality over the mean score of the others, and a score the mean of exp(-loss), which is
    the probability of the true class if the loss is a cross-entropy.

    Args:
        loss: `[B, M]`, of each modality alone.
        present: `[B, M]`; a modality that no row has keeps its pace and is nobody's reference.
        alpha: Strength; 0 slows nobody.

    Returns:
        `[M]`.
    """
    seen = present.any(dim=0).to(loss.dtype)
    score = keep_present((-loss).exp(), present).sum(dim=0) / present.sum(dim=0).clamp_min(1)
    apart = 1 - torch.eye(len(score), dtype=loss.dtype, device=loss.device)
    others = apart @ seen
    reference = apart @ score / others.clamp_min(1)
    compared = (seen > 0) & (others > 0) & (reference > 0)
    ratio = score / torch.where(compared, reference, torch.ones_like(reference))
    return torch.where(compared & (ratio > 1), 1 - (alpha * ratio).tanh(), torch.ones_like(ratio))


def blending_weights(
    train_before: Tensor, held_before: Tensor, train_after: Tensor, held_after: Tensor, floor: float = 1e-2
) -> Tensor:
    """Weigh each head by its generalisation over its squared overfitting, `[K] -> [K]` (Wang et al., 2020).

    Args:
        train_before: Training losses before a probe.
        held_before: Losses on held-out rows before it.
        train_after: Training losses after it.
        held_after: Held-out losses after it.
        floor: Of the overfitting: a head that did not overfit at all must not get everything.

    Returns:
        Weights that sum to one; equal ones if nothing generalised.
    """
    overfitting = (held_after - train_after) - (held_before - train_before)
    generalisation = held_before - held_after
    weights = generalisation.clamp_min(0) / overfitting.clamp_min(floor).square()
    total = weights.sum()
    return torch.where(total > 0, weights / torch.where(total > 0, total, 1.0), torch.ones_like(weights) / len(weights))


@full_precision
def margin_distillation(
    student: Tensor, teacher: Tensor, teacher_logits: Tensor | None, by: Literal["row", "column"] = "row"
) -> Tensor:
    """Squared difference of the batch's similarities, rows near the teacher's margin counting more (Wei et al., 2023).

    Args:
        student: `[B, F]`.
        teacher: `[B, F]`.
        teacher_logits: `[B, C]`, whose entropies weigh the rows; None weighs them equally.
        by: "row" weighs a row's similarities to the others; "column", as the authors' code does, the others'
            similarities to it.
    """
    difference = (_similarities(student) - _similarities(teacher)).square()
    weight = _uncertainty(difference, teacher_logits)
    return (difference * (weight.unsqueeze(1) if by == "row" else weight)).sum()


def _similarities(x: Tensor) -> Tensor:
    return F.normalize(x @ x.T, dim=1)


def _uncertainty(like: Tensor, logits: Tensor | None) -> Tensor:
    """Entropy of each row, as a share of all rows' `[B]`; equal shares when there is none to share."""
    equal = torch.full_like(like[0], 1 / len(like))
    if logits is None:
        return equal
    entropy = torch.special.entr(logits.softmax(dim=-1)).sum(dim=-1)
    total = entropy.sum()
    return torch.where(total > 0, entropy / torch.where(total > 0, total, 1.0), equal)
