"""Losses and scores by target. The same code scores validation epochs and test conditions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional import mean_squared_error, r2_score
from torchmetrics.functional.classification import (
    binary_f1_score,
    multiclass_accuracy,
    multiclass_f1_score,
    multilabel_f1_score,
)

from datamodules.spec import Task
from methods.functional.retrieval import first_positive_rank
from methods.parts.vqa_accuracy import answer_loss, best_constant, vqa_accuracy

if TYPE_CHECKING:
    from methods.base import Output

SIMILARITIES = 2**22  # alive at once when rows are ranked; 60,000 against 60,000 would be 14 GB
# A fact of the metric, never inferred from its values.
LOWER_IS_BETTER = frozenset({"mse", "nll", "median_rank"})


def higher_is_better(metric: str) -> bool:
    """Whether a larger value of this metric is a better one."""
    return metric not in LOWER_IS_BETTER


def task_loss(task: Task, logits: Tensor, target: Tensor) -> Tensor:
    """The supervised loss of the task's target, averaged over rows."""
    match task.target:
        case "multiclass" | "retrieval":
            return F.cross_entropy(logits, target)
        case "multilabel":
            return F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype))
        case "regression":
            return F.mse_loss(logits, target.to(logits.dtype).view_as(logits))
        case "answers":
            return answer_loss(logits, target)
    raise ValueError(f"task {task.name!r} has target {task.target!r}, which has no labels to learn from")


def prediction(task: Task, out: Output) -> Tensor:
    """What has to be kept of a row to score it: class, labels, values, or the embedding that is ranked."""
    match task.target:
        case "multiclass" | "answers":
            return out.logits.argmax(dim=-1)
        case "multilabel":
            return out.logits > 0
        case "regression":
            return out.logits.float()
        case "retrieval":
            return F.normalize(out.fused.float(), dim=-1)
        case "pairs":
            return F.normalize(out.z.float(), dim=-1)


def evaluate(task: Task, predicted: Tensor, target: Tensor, gallery: Tensor | None = None) -> dict[str, float]:
    """Every metric of the task over a whole split; the task's own is among them. `gallery` as in `Split`."""
    if gallery is not None:
        return evaluate_ranks(task, ranks(task, predicted, target, gallery))
    return {name: float(value) for name, value in _METRICS[task.target](task, predicted, target).items()}


def evaluate_ranks(task: Task, rank: Tensor) -> dict[str, float]:
    """The metrics of a task that is scored by `ranks`."""
    return {name: float(value) for name, value in _of_ranks(task, rank).items()}


def trivial_score(task: Task, train: Tensor, test: Tensor, gallery: Tensor | None = None) -> float:
    """The score, on the test split, of who never looks at the inputs: majority class, training mean, random ranking."""
    match task.target:
        case "multiclass":
            constant = train.long().bincount(minlength=task.num_outputs).argmax()
            return evaluate(task, constant.expand(len(test)), test)[task.metric]
        case "multilabel":
            return evaluate(task, (train.float().mean(dim=0) > 0.5).expand(len(test), -1), test)[task.metric]
        case "regression":
            mean = train.float().reshape(len(train), -1).mean(dim=0)
            return evaluate(task, mean.expand(len(test), -1), test)[task.metric]
        case "answers":
            return evaluate(task, best_constant(train, task.num_outputs).expand(len(test)), test)[task.metric]
        case "retrieval" if gallery is not None:
            right = test[gallery].bincount(minlength=int(test.max()) + 1)[test[~gallery]].double()
            return float(right[right > 0].mean() / gallery.sum())  # a query that nothing answers is not counted
        case "retrieval":
            _, inverse, counts = test.unique(return_inverse=True, return_counts=True)
            others = counts[inverse].double() - 1
            return float((others / (len(test) - 1)).mean())
        case "pairs":  # a random gallery of n items, of which k are right, has one of them first with probability k / n
            _, inverse, counts = test.unique(return_inverse=True, return_counts=True)
            chances = [1 / len(counts) if b in task.shared else float(counts[inverse].double().mean()) / len(test)
                       for _, b in permutations(task.names, 2)]  # fmt: skip
            return sum(chances) / len(chances)


def _multiclass(task: Task, predicted: Tensor, target: Tensor) -> dict[str, Tensor]:
    target = target.long()
    classes = task.num_outputs
    found = {
        "accuracy": multiclass_accuracy(predicted, target, classes, average="micro"),
        "macro_f1": multiclass_f1_score(predicted, target, classes, average="macro"),
    }
    if classes == 2:
        found["f1"] = binary_f1_score(predicted, target)
    return found


def _multilabel(task: Task, predicted: Tensor, target: Tensor) -> dict[str, Tensor]:
    predicted, target = predicted.int(), target.int()
    return {
        "macro_f1": multilabel_f1_score(predicted, target, task.num_outputs, average="macro"),
        "micro_f1": multilabel_f1_score(predicted, target, task.num_outputs, average="micro"),
        "accuracy": (predicted == target).all(dim=-1).float().mean(),
    }


def _regression(task: Task, predicted: Tensor, target: Tensor) -> dict[str, Tensor]:
    predicted = predicted.float().reshape(len(target), -1).squeeze(-1)
    target = target.float().reshape(len(target), -1).squeeze(-1)
    return {"r2": r2_score(predicted, target), "mse": mean_squared_error(predicted, target)}


def ranks(task: Task, predicted: Tensor, target: Tensor, gallery: Tensor | None = None) -> Tensor:
    """Rank, from 1, of the first right answer to each row's query: [N] by class, or [N, P] by instance across
    modalities.

    A query that nothing in the gallery can answer gets -1 and is left out of every average, and so does a row that
    does not ask, because it is in the `gallery` (see `Split`).
    """
    if task.target == "retrieval":
        rank = _class_ranks(predicted, target, gallery)
        return torch.where(rank < 0, rank, rank + 1)
    every, once = torch.arange(len(target), device=target.device), _first_rows(target)
    directions = []
    for a, b in permutations(range(len(task.names)), 2):
        gallery = once if task.names[b] in task.shared else every  # the image of five captions competes once
        labels = target[gallery]
        rank = first_positive_rank(predicted[:, a], predicted[gallery, b], target, labels, exclude_self=False)
        directions.append(rank + 1)
    return torch.stack(directions, dim=1)


def _class_ranks(predicted: Tensor, target: Tensor, gallery: Tensor | None) -> Tensor:
    if gallery is None:
        chunk = max(1, SIMILARITIES // max(1, len(target)))
        return first_positive_rank(predicted, predicted, target, target, exclude_self=True, chunk=chunk)
    gallery = gallery.to(target.device)
    found, labels = predicted[gallery], target[gallery]
    chunk = max(1, SIMILARITIES // max(1, len(found)))
    rank = torch.full_like(target, -1)
    rank[~gallery] = first_positive_rank(predicted[~gallery], found, target[~gallery], labels, False, chunk)
    return rank


def _first_rows(target: Tensor) -> Tensor:
    """The first row of each instance."""
    _, inverse = target.unique(return_inverse=True)
    rows = torch.arange(len(target), device=target.device)
    first = torch.full((int(inverse.max()) + 1,), len(target), device=target.device)
    return first.scatter_reduce(0, inverse, rows, "amin")


def _ranked(task: Task, predicted: Tensor, target: Tensor) -> dict[str, Tensor]:
    return _of_ranks(task, ranks(task, predicted, target))


def _of_ranks(task: Task, rank: Tensor) -> dict[str, Tensor]:
    found = _recalls(rank, task.ks)
    if task.target == "retrieval":
        return found
    if len(task.names) == 2:  # both ways, as image-text retrieval is reported
        for way, own in zip(permutations(task.names, 2), rank.unbind(dim=1), strict=True):
            found |= {f"{name}_{'_to_'.join(way)}": value for name, value in _recalls(own, task.ks).items()}
    return found


def _recalls(rank: Tensor, ks: tuple[int, ...]) -> dict[str, Tensor]:
    rank = rank[rank > 0].double()
    return {**{f"recall_at_{k}": (rank <= k).double().mean() for k in ks}, "median_rank": rank.median()}


def _answers(task: Task, predicted: Tensor, target: Tensor) -> dict[str, Tensor]:
    return {"vqa_accuracy": vqa_accuracy(predicted, target)}


_METRICS: dict[str, Callable[[Task, Tensor, Tensor], dict[str, Tensor]]] = {
    "multiclass": _multiclass,
    "multilabel": _multilabel,
    "regression": _regression,
    "answers": _answers,
    "retrieval": _ranked,
    "pairs": _ranked,
}


class SplitScore(Metric):
    """Score and mean loss of a whole split, over all devices: never a mean of batch scores."""

    full_state_update = False
    predicted: list[Tensor]
    target: list[Tensor]
    loss: Tensor
    rows: Tensor

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task
        self.add_state("predicted", default=[], dist_reduce_fx="cat")
        self.add_state("target", default=[], dist_reduce_fx="cat")
        self.add_state("loss", default=torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("rows", default=torch.zeros(()), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, target: Tensor, loss: Tensor | None) -> None:
        self.predicted.append(predicted)
        self.target.append(target)
        self.rows += len(target)
        if loss is not None:
            self.loss += loss.detach() * len(target)

    def compute(self) -> dict[str, Tensor]:
        predicted, target = (x if isinstance(x, Tensor) else torch.cat(x) for x in (self.predicted, self.target))
        scores = {name: torch.tensor(v) for name, v in evaluate(self.task, predicted, target).items()}
        return {**scores, "loss": self.loss / self.rows}
