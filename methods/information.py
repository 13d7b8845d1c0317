"""Fission by bounds on mutual information: what modalities share, and what each knows alone."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from msgspec import Meta
from torch import Tensor, nn

from datamodules.options import Natural, Positive
from datamodules.spec import Batch, Task
from methods import Encoded, Method, Output, Recipe, register
from methods.functional.information import club_bound, infonce_bound
from methods.parts.search import LogUniform, Space
from methods.parts.unseen_classes import first_rows


@register("information")
class Information(Method):
    """Two codes per modality: one that the other modalities tell, one that they do not, by bounds on information.

    The shared code s_m maximises the InfoNCE lower bound on I(s_m; s_j) for every other modality j, which is H(s_m)
    held up and H(s_m | x_j) brought down. The code u_m of what modality m alone knows maximises the same bound on
    I(u_m; x_m), and minimises the CLUB upper bound on I(u_m; x_j), with a critic that InfoNCE trains on the detached
    codes. The head predicts from all codes. x_m stands for the modality's encoding.

    Source: Liang et al., 2023 (FactorCL; InfoNCE and NCE-CLUB bounds).

    **Differs from the paper**: information about the task is asked for by the task's loss, not by augmented views; one
    code per modality and kind instead of a network per bound; u_m is kept apart from the others' encodings and not from
    s_m too, whose information they have.

    Args:
        components: Width of a code; 0 means the recipe's width.
        weight: Of the bounds together, beside the task's loss.
        temperature: Of the cosines that shared codes are compared by.
    """

    family = "fission"
    search: ClassVar[Mapping[str, Space]] = {"weight": LogUniform(1e-3, 1.0)}

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        components: Natural = 0,
        # Positive: the critics have no other loss that would train them.
        weight: Positive = 0.1,
        temperature: Annotated[float, Meta(ge=0.01)] = 0.1,
    ) -> None:
        k, width, count = components or recipe.width, recipe.width, len(task.modalities)
        super().__init__(task, recipe, fused_dim=2 * count * k)
        self.weight, self.temperature = weight, temperature
        # Without biases: the codes of an absent modality are zero.
        self.to_shared = nn.ModuleList(nn.Linear(width, k, bias=False) for _ in task.modalities)
        self.to_own = nn.ModuleList(nn.Linear(width, k, bias=False) for _ in task.modalities)
        # f(u_i, x_j) = u_i W_ij x_j: of a modality with itself, and with every other.
        self.critics = nn.ParameterDict(
            {f"{i}_{j}": nn.Parameter(torch.randn(k, width) / width) for i in range(count) for j in range(count)}
        )

    def codes(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Shared and own codes, `[B, M, k]` each."""
        shared, own = (
            torch.stack([layer(z[:, m]) for m, layer in enumerate(layers)], dim=1)
            for layers in (self.to_shared, self.to_own)
        )
        return shared, own

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return torch.cat(self.codes(z), dim=1).flatten(1)

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        shared, own = self.codes(out.z)
        terms = {name: out.z.sum() * 0.0 for name in ("shared", "own", "apart", "critic")}
        for i, j, rows in self._pairs(batch.present):
            s, u, x = (shared[rows, i], shared[rows, j]), own[rows, i], out.z[rows, j]
            terms["shared"] = terms["shared"] - infonce_bound(self._agreement(*s))
            terms["apart"] = terms["apart"] + club_bound(self._judge(i, j, u, x.detach(), frozen=True))
            terms["critic"] = terms["critic"] - infonce_bound(self._judge(i, j, u.detach(), x.detach()))
        for i in range(own.shape[1]):
            rows = batch.present[:, i]
            if rows.sum() > 1:
                terms["own"] = terms["own"] - infonce_bound(self._judge(i, i, own[rows, i], out.z[rows, i]))
        return {name: self.weight * value / own.shape[1] for name, value in terms.items()}

    def summary(self, train: Iterable[Encoded], test: Iterable[Encoded]) -> dict[str, float]:
        """The bounds of held-out rows in nats, a mean over pairs of modalities; InfoNCE is at most ln of the rows."""
        rows = first_rows(test)
        shared, own = self.codes(rows.z)
        found: dict[str, list[float]] = {}
        for i, j, both in self._pairs(rows.present):
            chosen = both.nonzero().squeeze(1)[:512]
            told = infonce_bound(self._agreement(shared[chosen, i], shared[chosen, j]))
            leaked = infonce_bound(self._judge(i, j, own[chosen, i], rows.z[chosen, j]))
            found.setdefault("shared_information", []).append(float(told.detach()))
            found.setdefault("leaked_information", []).append(float(leaked.detach()))
        return {name: sum(values) / len(values) for name, values in found.items()}

    def _pairs(self, present: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """Ordered pairs of modalities, and the rows that have both; none where a bound has nothing to compare."""
        for i, j in permutations(range(present.shape[1]), 2):
            rows = present[:, i] & present[:, j]
            if rows.sum() > 1:
                yield i, j, rows

    def _agreement(self, a: Tensor, b: Tensor) -> Tensor:
        """Scores `[n, n]` of shared codes."""
        return F.normalize(a, dim=1) @ F.normalize(b, dim=1).T / self.temperature

    def _judge(self, i: int, j: int, u: Tensor, x: Tensor, frozen: bool = False) -> Tensor:
        """Scores `[n, n]` of own codes of modality i and encodings of j; a frozen critic is used and not moved."""
        weight = self.critics[f"{i}_{j}"]
        return u @ (weight.detach() if frozen else weight) @ x.T
