"""Fission into one shared and one private representation per modality."""

from collections.abc import Mapping
from itertools import combinations
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.options import Natural, NonNegative
from datamodules.spec import Batch, Task
from methods import Method, Output, Recipe, Tokens, register
from methods.functional.coordination import cosine_loss
from methods.functional.fission import orthogonality
from methods.parts.reconstruction import decoders, rebuilding_error
from methods.parts.search import LogUniform, Space


@register("shared_private")
class SharedPrivate(Method):
    """Split each modality into a part all modalities share and a part of its own.

    Every encoding is mapped to a shared code s_m and a private code p_m. Shared codes of a row are pulled together
    (1 - cosine), private codes are kept uncorrelated with the shared one and with each other, and [s_m, p_m] must
    rebuild the modality. The head reads the mean of the present shared codes and every private code: M + 1
    representations from M modalities. Orthogonality controls linear dependence only.

    Source: Bousmalis et al., 2016 (domain separation); of modalities Hazarika et al., 2020.

    **Differs from the paper**: S_m and Q_m are linear maps of one encoder, so that the encoders are those of every
    other method.

    Args:
        components: Width of a code; 0 means half the recipe's width.
        alignment: Weight a of the distance between shared codes.
        orthogonal: Weight b of the squared correlations, which are summed over pairs of features.
        reconstruction: Weight c of the decoders' squared error, averaged over rows and features.
    """

    family = "fission"
    search: ClassVar[Mapping[str, Space]] = {
        "alignment": LogUniform(1e-2, 1.0),
        "reconstruction": LogUniform(1e-2, 1.0),
    }
    checked = ({}, {"reconstruction": 0.0})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        components: Natural = 0,
        alignment: NonNegative = 0.1,
        orthogonal: NonNegative = 0.01,
        reconstruction: NonNegative = 0.1,
    ) -> None:
        k = components or max(1, recipe.width // 2)
        super().__init__(task, recipe, fused_dim=(len(task.modalities) + 1) * k)
        self.components = k
        self.alignment, self.orthogonal, self.reconstruction = alignment, orthogonal, reconstruction
        self.split = nn.ModuleList(nn.Linear(recipe.width, 2 * k) for _ in task.modalities)
        # Not built without a loss that trains them.
        self.decoders = decoders(task.modalities if reconstruction else (), 2 * k, recipe.width)

    def pool(self, tokens: dict[str, Tokens], present: Tensor) -> Tensor:
        """[B, M, 2k]: the shared code, then the private one."""
        z = super().pool(tokens, present)
        return torch.stack([split(z[:, m]) for m, split in enumerate(self.split)], dim=1)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        shared, private = z.split(self.components, dim=-1)
        # Absent codes are zero: the mean is over those that are present.
        mean = shared.sum(dim=1) / present.sum(dim=1, keepdim=True).clamp_min(1)
        return torch.cat([mean, private.flatten(1)], dim=1)

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        terms = {}
        if self.alignment:
            terms["alignment"] = self.alignment * self.align(out.z, batch.present)
        if self.orthogonal:
            terms["orthogonality"] = self.orthogonal * self.disentangle(out.z, batch.present)
        if self.reconstruction:
            error = rebuilding_error(self.task, self.decoders, batch, lambda m, rows: out.z[rows, m])
            terms["reconstruction"] = self.reconstruction * error
        return terms

    def align(self, z: Tensor, present: Tensor) -> Tensor:
        """`sum_{i<j} 1 - cos(s_i, s_j)`, each averaged over the rows that have both."""
        shared = z[..., : self.components]
        losses = []
        for i, j in combinations(range(z.shape[1]), 2):
            rows = present[:, i] & present[:, j]
            losses.append(cosine_loss(shared[rows, i], shared[rows, j]))
        return torch.stack(losses).sum()

    def disentangle(self, z: Tensor, present: Tensor) -> Tensor:
        """`sum_m |corr(s_m, p_m)|^2 + sum_{i<j} |corr(p_i, p_j)|^2`."""
        shared, private = z.split(self.components, dim=-1)
        losses = []
        for m in range(z.shape[1]):
            rows = present[:, m]
            losses.append(orthogonality(shared[rows, m], private[rows, m]))
        for i, j in combinations(range(z.shape[1]), 2):
            rows = present[:, i] & present[:, j]
            losses.append(orthogonality(private[rows, i], private[rows, j]))
        return torch.stack(losses).sum()

    def diagnose(self, out: Output, present: Tensor) -> dict[str, Tensor]:
        codes = F.normalize(torch.stack(out.z.split(self.components, dim=-1)), dim=-1)
        found: dict[str, list[Tensor]] = {"shared_cosine": [], "private_cosine": []}
        for i, j in combinations(range(present.shape[1]), 2):
            rows = present[:, i] & present[:, j]
            for name, code in zip(found, codes, strict=True):
                found[name].append((code[rows, i] * code[rows, j]).sum(dim=-1))
        joined = {name: torch.cat(cosines) for name, cosines in found.items()}
        return {name: cosines for name, cosines in joined.items() if len(cosines)}
