"""Soft answers: several right answers to a question, each with its score.

The target of a row is `[2, K]`: ids and scores of its right answers, padded with any id of score 0. It is never made
dense: 200,000 questions with 3,129 possible answers would not fit in memory.

The official accuracy of VQA-v2 of one answer depends only on how many people gave it
(`datamodules.sources.vqa_answers`), so it is the answer's score, and the accuracy of a model is the mean score of its
answers.
"""

import torch.nn.functional as F
from torch import Tensor


def answer_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Binary cross-entropy of every answer of the vocabulary against its score, summed over answers, mean over rows.

    Args:
        logits: `[..., O]`.
        target: `[..., 2, K]`.
    """
    ids, scores = split_target(target)
    # -s log(sigmoid(x)) - (1 - s) log(1 - sigmoid(x)) = softplus(x) - s x, and s is 0 for all but K answers.
    right = (scores.to(logits.dtype) * logits.gather(-1, ids)).sum(dim=-1)
    return (F.softplus(logits).sum(dim=-1) - right).mean()


def answer_scores(predicted: Tensor, target: Tensor) -> Tensor:
    """The score of each row's answer, `[N]`; 0 for one that is not right."""
    ids, scores = split_target(target)
    return (scores * (ids == predicted.unsqueeze(-1))).sum(dim=-1)


def vqa_accuracy(predicted: Tensor, target: Tensor) -> Tensor:
    """The mean score of the answers."""
    return answer_scores(predicted, target).double().mean()


def answer_totals(target: Tensor, outputs: int) -> Tensor:
    """The sum of each answer's scores over the rows, `[O]`."""
    ids, scores = split_target(target)
    return scores.new_zeros(outputs).scatter_add(0, ids.flatten(), scores.flatten())


def best_constant(target: Tensor, outputs: int) -> Tensor:
    """The one answer with the best accuracy over the rows."""
    return answer_totals(target, outputs).argmax()


def split_target(target: Tensor) -> tuple[Tensor, Tensor]:
    """Ids and scores, `[..., K]` each."""
    ids, scores = target.unbind(dim=-2)
    return ids.long(), scores
