"""Soft answers: several right answers to a question, each with its score.

The official accuracy of VQA-v2 of one answer depends only on how many people gave it
(`datamodules.sources.vqa_answers`), so it is the answer's score, and the accuracy of a model is the mean score of its
answers.
"""

import torch.nn.functional as F
from torch import Tensor

from datamodules.targets import Computed, Target, register_target


@register_target("answers")
class Answers(Target):
    """Answers: `[N, 2, K]`, ids and scores of each row's right ones, padded with any id of score 0.

    Never made dense: 200,000 questions with 3,129 possible answers would not fit in memory.
    """

    metrics = ("vqa_accuracy",)
    independent = True
    probed = False  # thousands of outputs

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Binary cross-entropy of every answer of the vocabulary against its score, summed over answers."""
        ids, scores = _split(target)
        # -s log(sigmoid(x)) - (1 - s) log(1 - sigmoid(x)) = softplus(x) - s x, and s is 0 for all but K answers.
        right = (scores.to(logits.dtype) * logits.gather(-1, ids)).sum(dim=-1)
        return (F.softplus(logits).sum(dim=-1) - right).mean()

    def prediction(self, out: Computed) -> Tensor:
        return out.logits.argmax(dim=-1)

    def scores(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        ids, scores = _split(target)
        each = (scores * (ids == kept.unsqueeze(-1))).sum(dim=-1)  # 0 for an answer that is not right
        return {"vqa_accuracy": float(each.double().mean())}

    def trivial(self, train: Tensor, test: Tensor, gallery: Tensor | None = None) -> float:
        return self.always(self.counts(train).argmax(), test)

    def counts(self, target: Tensor) -> Tensor:
        """The sum of each answer's scores over the rows, `[O]`."""
        ids, scores = _split(target)
        return scores.new_zeros(self.task.num_outputs).scatter_add(0, ids.flatten(), scores.flatten())

    def fault(self, target: Tensor) -> str:
        if target.dim() != 3 or target.shape[1] != 2:
            return "targets must be [N, 2, K], ids and scores of answers"
        ids, scores = target.unbind(dim=1)
        if not ((ids >= 0) & (ids < self.task.num_outputs) & (ids == ids.floor())).all():
            return f"answers must be 0..{self.task.num_outputs - 1}"
        return "" if ((scores >= 0) & (scores <= 1)).all() else "scores of answers must be 0 to 1"

    def spell(self, target: Tensor) -> str:
        return ", ".join(self.label(int(i)) for i, score in target.T.tolist() if score > 0)


def _split(target: Tensor) -> tuple[Tensor, Tensor]:
    """Ids and scores, `[..., K]` each."""
    ids, scores = target.unbind(dim=-2)
    return ids.long(), scores
