"""Late fusion: one decision per modality, combined."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from datamodules.spec import Batch, Task
from methods import Encoded, Method, Output, Recipe, Stage, register
from methods.parts.decisions import losses_of_each
from methods.parts.search import OneOf, Space


@register("late")
class Late(Method):
    """Train each modality on its own loss, then combine the decisions.

    `combine = "bayes"` sums log-probabilities and subtracts the log-prior once less than there are modalities: Bayes'
    rule for modalities that are independent given the class. `"mean"` averages probabilities. Values are
    averaged.

    Source: Kittler et al., 1998.

    Args:
        combine: "bayes" or "mean", as above.
    """

    family = "baseline"
    search: ClassVar[Mapping[str, Space]] = {"combine": OneOf(("bayes", "mean"))}
    checked = ({}, {"combine": "mean"})

    def __init__(self, task: Task, recipe: Recipe, *, combine: Literal["bayes", "mean"] = "bayes") -> None:
        super().__init__(task, recipe)
        self.combine = combine
        self.independent = task.goal.independent
        self.heads = nn.ModuleList(nn.Linear(recipe.width, task.num_outputs) for _ in task.modalities)
        self.log_prior: Tensor
        self.register_buffer("log_prior", torch.zeros(task.num_outputs))

    def decide(self, z: Tensor) -> Tensor:
        """One decision per modality: [B, M, O]."""
        return torch.stack([head(z[:, m]) for m, head in enumerate(self.heads)], dim=1)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        decisions = self.decide(z)
        mask = present.unsqueeze(-1).to(decisions.dtype)
        count = mask.sum(dim=1).clamp_min(1)
        if self.task.goal.numeric:
            return (decisions * mask).sum(dim=1) / count
        log_p = nn.functional.logsigmoid(decisions) if self.independent else decisions.log_softmax(dim=-1)
        if self.combine == "mean":
            mean = (log_p.exp() * mask).sum(dim=1) / count
            floor = torch.finfo(mean.dtype).tiny
            return mean.logit(eps=1e-6) if self.independent else mean.clamp_min(floor).log()
        # log p(y|x) = sum_m log p(y|x_m) - (M - 1) log p(y) + const; of independent outputs the same in log-odds
        evidence = decisions if self.independent else log_p
        return (evidence * mask).sum(dim=1) - (count - 1) * self.log_prior

    def each(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        """The loss of each modality, over the rows in which it is present."""
        return losses_of_each(self.task, self.decide(out.z), batch)

    def count(self, train: Iterable[Encoded]) -> None:
        """The class prior of the training split, with one pseudo-count; in logits for independent outputs."""
        total, rows = torch.ones_like(self.log_prior), 2.0
        for batch in train:
            total += self.task.goal.counts(batch.target).to(total.dtype)
            rows += len(batch.target)
        prior = total / rows if self.independent else total / total.sum()
        self.log_prior.copy_(prior.logit() if self.independent else prior.log())

    def stages(self) -> tuple[Stage, ...]:
        train = Stage(self, loss="terms", terms=(self.each,))
        return (train,) if self.task.goal.numeric else (Stage(self, name="prior", solve=self.count), train)
