"""A class to be retrieved: rows of the test split ask for others of their class, which training has never seen."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from datamodules.targets import Computed, register_target
from datamodules.targets.ranking import Ranked, first_positive_rank

SIMILARITIES = 2**22  # alive at once when rows are ranked; 60,000 against 60,000 would be 14 GB


@register_target("retrieval")
class Retrieval(Ranked):
    """A class to be retrieved: `[N]`; rows are ranked by `fused`."""

    ks = (1, 2, 4, 8)
    one_class = True

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(logits, target)

    def prediction(self, out: Computed) -> Tensor:
        return F.normalize(out.fused.float(), dim=-1)

    def kept(self, predicted: Tensor, target: Tensor, gallery: Tensor | None = None) -> Tensor:
        asks = torch.ones_like(target, dtype=torch.bool) if gallery is None else ~gallery.to(target.device)
        found = asks if gallery is None else ~asks
        answers, labels = predicted[found], target[found]
        chunk = max(1, SIMILARITIES // max(1, len(answers)))
        rank = torch.full_like(target, -1)
        rank[asks] = first_positive_rank(predicted[asks], answers, target[asks], labels, gallery is None, chunk)
        return torch.where(rank < 0, rank, rank + 1)

    def trivial(self, train: Tensor, test: Tensor, gallery: Tensor | None = None) -> float:
        if gallery is not None:
            right = test[gallery].bincount(minlength=int(test.max()) + 1)[test[~gallery]].double()
            return float(right[right > 0].mean() / gallery.sum())  # a query that nothing answers is not counted
        _, inverse, counts = test.unique(return_inverse=True, return_counts=True)
        others = counts[inverse].double() - 1
        return float((others / (len(test) - 1)).mean())

    def faults(self, splits: Mapping[Any, Tensor]) -> Iterator[str]:
        yield from super().faults(splits)
        if set(splits["train"].tolist()) & set(splits["test"].tolist()):
            yield "retrieval is tested on classes of the training split"
