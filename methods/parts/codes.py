"""What is reported about codes: collapse, held-out correlations, retrieval, transfer and class means, once per cell."""

from itertools import combinations, permutations
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from datamodules.spec import Task
from methods.base import Output
from methods.functional.coordination import StreamingCCA, effective_rank, mean_cosine, retrieval, zero_shot
from methods.functional.retrieval import recall_at_k

# One minus the mean cosine is 1.4e-3 or more in the suite's encoders before training (images have a large common mean)
# and 2e-4 to 3e-4 after a positive-only loss has made them constant. A rank near one is a line.
COLLAPSED_COSINE = 0.9995
COLLAPSED_RANK = 1.5
RIDGE = 1e-3  # of the map between codes, relative to their mean variance
TOP = 10  # correlations are summed over the leading ten
NAMED = 3  # up to so many modalities every direction has its own entry, beyond only the mean


class Codes(NamedTuple):
    """The codes of a split."""

    z: Tensor  # [N, M, k]
    present: Tensor  # [N, M]
    target: Tensor

    def of(self, m: int) -> Tensor:
        """Codes of modality m in the rows that have it."""
        return self.z[self.present[:, m], m]

    def complete(self) -> Tensor:
        """[n, M, k] of the rows that have every modality."""
        return self.z[self.present.all(dim=1)]


def report(task: Task, train: Codes, test: Codes) -> dict[str, float]:
    """Every number, by name."""
    found = {**collapse(task, test), **held_out_correlations(train, test), **paired_retrieval(task, test)}
    found.update(shared_variance(train, test))
    if task.goal.probed:
        found.update(transfer(task, train, test))
    if task.goal.classifies:
        found.update(class_means(task, train, test))
    return found


def collapse(task: Task, test: Codes) -> dict[str, float]:
    """Mean pairwise cosine and effective rank of each modality's codes, and `codes_collapsed` = 1 if one is a point."""
    found, collapsed = {}, False
    for m, name in enumerate(task.names):
        z = test.of(m)
        cosine, rank = float(mean_cosine(z)), float(effective_rank(z))
        found[f"mean_cosine_{name}"], found[f"effective_rank_{name}"] = cosine, rank
        # `not <` and `not >=`: codes that are not numbers count as collapsed.
        collapsed |= not cosine < COLLAPSED_COSINE or (z.shape[1] > 1 and not rank >= COLLAPSED_RANK)
    return {**found, "codes_collapsed": float(collapsed)}


def held_out_correlations(train: Codes, test: Codes) -> dict[str, float]:
    """Sum of the leading correlations of test rows in the directions a streaming CCA finds in the training rows.

    Never those of a batch, and never refitted on the test rows: both are biased upwards.
    """
    rows, held_out = train.complete(), test.complete()
    if len(rows) < 2 or len(held_out) < 2 or not (rows.isfinite().all() and held_out.isfinite().all()):
        return {}
    fit = StreamingCCA()
    for block in rows.split(4096):
        fit.partial_fit(*block.unbind(dim=1))
    cca = fit.finalize()
    projected = [
        (view.to(mean) - mean) @ u
        for view, mean, u in zip(held_out.unbind(dim=1), cca.means, cca.projections, strict=True)
    ]
    pairs = [_pearson(projected[i], projected[j]) for i, j in combinations(range(len(projected)), 2)]
    correlations = torch.stack(pairs).mean(dim=0)
    return {
        "correlation_sum": float(correlations[:TOP].sum()),
        "correlation_sum_train": float(cca.correlations[:TOP].sum()),
        "correlation_directions": float(min(TOP, len(correlations))),
    }


def shared_variance(train: Codes, test: Codes) -> dict[str, float]:
    """How much of the variance of one modality's codes another's tell, in test rows, by a linear map of training rows.

    Tells strong coordination (1: codes are one up to a linear map) from partial (some directions are common, the rest
    are each modality's own) and from none (0). A mean over ordered pairs; 0 at least.
    """
    rows, held_out = train.complete().double(), test.complete().double()
    if len(rows) < 2 or len(held_out) < 2 or not (rows.isfinite().all() and held_out.isfinite().all()):
        return {}
    mean = rows.mean(dim=0)
    rows, held_out = rows - mean, held_out - mean
    shares = []
    for i, j in permutations(range(rows.shape[1]), 2):
        x, y = rows[:, i], rows[:, j]
        gram = x.T @ x
        gram.diagonal().add_(RIDGE * gram.diagonal().mean() + torch.finfo(gram.dtype).tiny)
        weight = torch.linalg.solve(gram, x.T @ y)
        total = held_out[:, j].square().sum()
        error = (held_out[:, j] - held_out[:, i] @ weight).square().sum()
        shares.append(float((1 - error / total.clamp(min=1e-12)).clamp(min=0)))
    return {"shared_variance": sum(shares) / len(shares)}


def _pearson(a: Tensor, b: Tensor) -> Tensor:
    a, b = a - a.mean(0), b - b.mean(0)
    scale = torch.linalg.vector_norm(a, dim=0) * torch.linalg.vector_norm(b, dim=0)
    return (a * b).sum(0) / scale.clamp(min=torch.finfo(a.dtype).tiny)


def paired_retrieval(task: Task, test: Codes) -> dict[str, float]:
    """R@1, R@5, R@10 and median rank of the paired row, from every modality to every other, by cosine."""
    rows = test.complete()
    if not len(rows):
        return {}
    target = test.target[test.present.all(dim=1)]
    if task.shared:  # five captions an image: any of them is right, and the image is in the gallery once
        return task.goal.evaluate(F.normalize(rows.float(), dim=-1), target)
    directions = {}
    for i, j in permutations(range(rows.shape[1]), 2):
        ranked = retrieval(rows[:, i], rows[:, j])
        found = {key.replace("R@", "recall_at_"): value for key, value in ranked.items()}
        if task.goal.classifies:
            # Where pairs have only their class in common, finding the class is all that can be found.
            by_class = recall_at_k(rows[:, i], rows[:, j], target, target, (1, 5, 10), exclude_self=False)
            found.update({f"class_recall_at_{k}": float(v) for k, v in by_class.items()})
        directions[f"{task.names[i]}_to_{task.names[j]}"] = found
    return _with_mean(task, directions)


def transfer(task: Task, train: Codes, test: Codes) -> dict[str, float]:
    """Train a linear probe on one modality's codes, score it on its own and on the others' test codes."""
    found, own = {}, {}
    for i, a in enumerate(task.names):
        rows = train.present[:, i]
        weight, bias = fit_probe(task, train.z[rows, i], train.target[rows])
        for j, b in enumerate(task.names):
            held_out = test.present[:, j]
            score = _score(task, test.z[held_out, j].to(weight) @ weight + bias, test.target[held_out])
            (own if i == j else found)[f"{a}_to_{b}"] = {"transfer": score}
    probes = {f"probe_{name}": own[f"{name}_to_{name}"]["transfer"] for name in task.names}
    return {**probes, **_with_mean(task, found)}


@torch.enable_grad()
def fit_probe(task: Task, z: Tensor, target: Tensor, decay: float = 1e-3) -> tuple[Tensor, Tensor]:
    """The ridge-penalised linear probe [k, O], [O]: convex, solved to the end in float64, no random start."""
    z = z.detach().double()
    mean, scale = z.mean(0), z.std(0, unbiased=False).clamp(min=1e-6)
    x = (z - mean) / scale
    weight = torch.zeros(x.shape[1], task.num_outputs, dtype=x.dtype, device=x.device, requires_grad=True)
    bias = torch.zeros(task.num_outputs, dtype=x.dtype, device=x.device, requires_grad=True)
    solver = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe", tolerance_change=1e-9)

    def closure() -> Tensor:
        solver.zero_grad()
        loss = task.goal.loss(x @ weight + bias, target) + decay * weight.square().sum()
        loss.backward()
        return loss

    solver.step(closure)
    raw = weight.detach() / scale.unsqueeze(1)
    return raw, bias.detach() - mean @ raw


def class_means(task: Task, train: Codes, test: Codes) -> dict[str, float]:
    """Nearest class mean across modalities: classify one's test codes by the means of another's training codes.

    Not zero-shot: the labels of the training rows say which codes a class has.
    """
    found = {}
    for i, j in permutations(range(len(task.names)), 2):
        rows, held_out = train.present[:, j], test.present[:, i]
        codes, labels = F.normalize(train.z[rows, j].double(), dim=-1), train.target[rows].long()
        if labels.bincount(minlength=task.num_outputs).min() == 0:
            return {}  # a class without training rows has no mean
        means = torch.stack([codes[labels == c].mean(0) for c in range(task.num_outputs)])
        # The mean of a class is its one prompt, and the nearest by cosine is the most probable.
        p = zero_shot(test.z[held_out, i].double(), means.unsqueeze(1), 1.0)
        score = float((p.argmax(-1) == test.target[held_out]).double().mean())
        found[f"{task.names[i]}_from_{task.names[j]}"] = {"class_mean": score}
    return _with_mean(task, found)


def _score(task: Task, logits: Tensor, target: Tensor) -> float:
    out = Output({}, logits, logits, logits)
    return task.goal.evaluate(task.goal.prediction(out), target)[task.metric]


def _with_mean(task: Task, directions: dict[str, dict[str, float]]) -> dict[str, float]:
    keys = next(iter(directions.values()))
    found = {key: sum(d[key] for d in directions.values()) / len(directions) for key in keys}
    if len(task.names) <= NAMED:
        found.update({f"{key}_{way}": value for way, d in directions.items() for key, value in d.items()})
    return found
