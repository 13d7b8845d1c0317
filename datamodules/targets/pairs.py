"""Instances: each modality of a row asks for the row's others."""

from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor

from datamodules.targets import Computed, register_target
from datamodules.targets.ranking import Ranked, first_positive_rank


@register_target("pairs")
class Pairs(Ranked):
    """The instance that pairs a row's modalities: `[N]`; modalities are ranked by `z`."""

    ks = (1, 5, 10)
    labelled = False

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        raise ValueError(f"task {self.task.name!r} has target {self.task.target!r}, which has no labels to learn from")

    def prediction(self, out: Computed) -> Tensor:
        return F.normalize(out.z.float(), dim=-1)

    def kept(self, predicted: Tensor, target: Tensor, gallery: Tensor | None = None) -> Tensor:
        names, shared = self.task.names, self.task.shared
        every, once = torch.arange(len(target), device=target.device), _first_rows(target)
        directions = []
        for a, b in permutations(range(len(names)), 2):
            rows = once if names[b] in shared else every  # the image of five captions competes once
            found, labels = predicted[rows, b], target[rows]
            directions.append(first_positive_rank(predicted[:, a], found, target, labels, exclude_self=False) + 1)
        return torch.stack(directions, dim=1)

    def scores(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        found = self.recalls(kept)
        if len(self.task.names) == 2:  # both ways, as image-text retrieval is reported
            for way, own in zip(permutations(self.task.names, 2), kept.unbind(dim=1), strict=True):
                found |= {f"{name}_{'_to_'.join(way)}": value for name, value in self.recalls(own).items()}
        return found

    def trivial(self, train: Tensor, test: Tensor, gallery: Tensor | None = None) -> float:
        # A random gallery of n items, of which k are right, has one of them first with probability k / n.
        _, inverse, counts = test.unique(return_inverse=True, return_counts=True)
        each = float(counts[inverse].double().mean()) / len(test)
        chances = [1 / len(counts) if b in self.task.shared else each for _, b in permutations(self.task.names, 2)]
        return sum(chances) / len(chances)


def _first_rows(target: Tensor) -> Tensor:
    """The first row of each instance."""
    _, inverse = target.unique(return_inverse=True)
    rows = torch.arange(len(target), device=target.device)
    first = torch.full((int(inverse.max()) + 1,), len(target), device=target.device)
    return first.scatter_reduce(0, inverse, rows, "amin")
