"""Fine-grained fission: local features of all modalities share prototypes, one sub-space each."""

from collections.abc import Mapping
from itertools import combinations, permutations
from typing import Annotated, ClassVar

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.options import NonNegative, Positive
from datamodules.spec import Batch, Task
from methods import Method, Output, Recipe, Tokens, register
from methods.functional.fission import sinkhorn
from methods.parts.coordination import row_mean
from methods.parts.search import LogUniform, OneOf, Space

TINY = 1e-6  # a share below it counts as this much: the loss stays finite


@register("clustered")
class Clustered(Method):
    """Sort local features of all modalities into shared clusters; read each cluster and its cross-modal similarity.

    A token is assigned to K unit prototypes by `softmax(<z, c> / tau)`. A modality becomes K vectors, the
    assignment-weighted means of its tokens; the head reads their sum over modalities, cluster by cluster, and the
    similarity per cluster of every pair of modalities: K sub-spaces from M modalities.

    Prototypes learn to predict a balanced assignment of the batch's tokens (log-space Sinkhorn, no gradient), which
    leaves no cluster empty, and one modality's share of each cluster is predicted by that of another in the row.

    Source: Hu et al., 2019 (deep multimodal clustering); Caron et al., 2020 (balanced assignments).

    Args:
        clusters: K.
        temperature: Of the assignment, tau.
        entropy: Of the balanced assignment, eps.
        clustering: Weight of the prediction of a token's balanced assignment.
        agreement: Weight of the prediction of the other modality's shares.
    """

    family = "fission"
    search: ClassVar[Mapping[str, Space]] = {"clusters": OneOf((4, 8, 16)), "clustering": LogUniform(1e-2, 1.0)}

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        clusters: Annotated[int, Meta(ge=2)] = 8,
        temperature: Positive = 0.1,
        entropy: Positive = 0.05,
        clustering: NonNegative = 0.1,
        agreement: NonNegative = 0.1,
    ) -> None:
        pairs = len(task.modalities) * (len(task.modalities) - 1) // 2
        super().__init__(task, recipe, fused_dim=clusters * (recipe.width + pairs))
        self.clusters, self.temperature, self.entropy = clusters, temperature, entropy
        self.clustering, self.agreement = clustering, agreement
        self.prototypes = nn.Parameter(torch.randn(clusters, recipe.width))

    @property
    def encoding_width(self) -> int:
        return self.clusters * self.recipe.width

    def scores(self, x: Tensor) -> Tensor:
        """Cosines of tokens and prototypes, [..., K]."""
        return F.normalize(x, dim=-1) @ F.normalize(self.prototypes, dim=-1).mT

    def assign(self, tokens: Tokens) -> Tensor:
        """[B, L, K]: the share of every token in every cluster over the row's tokens; padding has none."""
        q = (self.scores(tokens.x) / self.temperature).softmax(dim=-1)
        if tokens.mask is None:
            return q / q.shape[1]
        mask = tokens.mask.unsqueeze(-1).to(q.dtype)
        return q * mask / mask.sum(dim=1, keepdim=True).clamp_min(1)

    def pool(self, tokens: dict[str, Tokens], present: Tensor) -> Tensor:
        """[B, M, K D]: the assignment-weighted means of each modality's tokens."""
        width = next(iter(tokens.values())).x.shape[-1]
        absent = self.prototypes.new_zeros(()).expand(len(present), self.clusters * width)
        parts = [
            (self.assign(tokens[n]).mT @ tokens[n].x).flatten(1) if n in tokens else absent for n in self.task.names
        ]
        return torch.stack(parts, dim=1)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        parts = z.unflatten(-1, (self.clusters, -1))
        return torch.cat([parts.sum(dim=1).flatten(1), self.similarities(z).flatten(1)], dim=1)

    def similarities(self, z: Tensor) -> Tensor:
        """Per pair of modalities and cluster, `sum_{t,u} q_A(t,k) q_B(u,k) <z_t, z_u>` / D: [B, pairs, K]."""
        # The double sum factorises into the inner product of the two assignment-weighted sums.
        parts = z.unflatten(-1, (self.clusters, -1))
        # Tokens are layer-normed, their squared norm is about D: divided, the largest similarity is about 1.
        pairs = [(parts[:, i] * parts[:, j]).mean(dim=-1) for i, j in combinations(range(z.shape[1]), 2)]
        return torch.stack(pairs, dim=1)

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        terms = {}
        if self.clustering:
            terms["clustering"] = self.clustering * self.cluster(out.tokens, batch.present)
        if self.agreement:
            terms["agreement"] = self.agreement * self.agree(out.tokens, batch.present)
        return terms

    def cluster(self, tokens: dict[str, Tokens], present: Tensor) -> Tensor:
        """Cross-entropy of every token's balanced assignment, over the tokens of all modalities together."""
        scores = torch.cat([self.scores(x) for x in self._there(tokens, present)])
        predicted = (scores / self.temperature).log_softmax(dim=-1)
        return row_mean(-(sinkhorn(scores, self.entropy) * predicted).sum(dim=-1))

    def agree(self, tokens: dict[str, Tokens], present: Tensor) -> Tensor:
        """Cross-entropy of one modality's shares of the clusters under another's, averaged over ordered pairs."""
        shares = [self.assign(tokens[name]).sum(dim=1) for name in self.task.names]
        losses = []
        for i, j in permutations(range(len(shares)), 2):
            # A text without words has no shares to predict, nor to predict from.
            rows = present[:, i] & present[:, j] & (shares[i].sum(dim=-1) > 0) & (shares[j].sum(dim=-1) > 0)
            target, log_p = shares[i][rows].detach(), shares[j][rows].clamp_min(TINY).log()
            losses.append(row_mean(-(target * log_p).sum(dim=-1)))
        return torch.stack(losses).mean()

    def diagnose(self, out: Output, present: Tensor) -> dict[str, Tensor]:
        similarity = self.similarities(out.z).mean(dim=1)
        found = {f"similarity_{k}": similarity[:, k] for k in range(self.clusters)}
        # The mean share of the largest cluster: 1 / K if balanced, 1 if collapsed.
        used = torch.cat([self.scores(x) for x in self._there(out.tokens, present)]) / self.temperature
        return {**found, "largest_cluster": used.softmax(dim=-1).mean(dim=0).max()}

    def _there(self, tokens: dict[str, Tokens], present: Tensor) -> list[Tensor]:
        """Per modality the tokens, [n, D], that are neither absent nor padding."""
        found = []
        for m, name in enumerate(self.task.names):
            x, mask = tokens[name].x, tokens[name].mask
            there = present[:, m].unsqueeze(1).expand(x.shape[:2])
            found.append(x[there if mask is None else there & mask])
        return found
