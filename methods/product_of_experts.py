"""Product of experts: each modality is a Gaussian opinion, and the unsure ones count less."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from datamodules.options import NonNegative
from datamodules.spec import Batch, Task
from methods import Method, Output, Recipe, register
from methods.functional.mixing import gaussian_kl, product_of_experts
from methods.parts.decisions import present_rows_mean, row_losses
from methods.parts.global_noise import own_normals
from methods.parts.search import LogUniform, Space

MOST_LOG_VARIANCE = 8.0


@register("product_of_experts")
class ProductOfExperts(Method):
    """Multiply one Gaussian per modality and a standard normal prior; precise modalities count more.

    Training reads a sample of the product, testing its mean. The KL of the product from the prior is added, and the
    same loss of every modality alone, which calibrates single experts for when others are missing. (Wu and Goodman,
    2018.)

    **Differs from the paper**: a classifier reads the product where a decoder would reconstruct the inputs; of the
    subsets of modalities the complete one and all single ones are trained, none drawn at random; the prior is
    multiplied in once.

    Args:
        beta: Weight of the KL.
        subsets: Weight of the losses of single modalities.
    """

    family = "confidence"
    search: ClassVar[Mapping[str, Space]] = {"beta": LogUniform(1e-4, 1e-1), "subsets": LogUniform(0.1, 10.0)}
    checked: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"beta": 0.0, "subsets": 0.0})

    def __init__(self, task: Task, recipe: Recipe, *, beta: NonNegative = 1e-3, subsets: NonNegative = 1.0) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)
        self.beta, self.subsets = beta, subsets
        self.experts = nn.ModuleList(nn.Linear(recipe.width, 2 * recipe.width) for _ in task.modalities)

    def product(self, z: Tensor, present: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and log-variance of the product, weights of the experts."""
        opinions = torch.stack([expert(x) for expert, x in zip(self.experts, z.unbind(dim=1), strict=True)], dim=1)
        mu, log_var = opinions.chunk(2, dim=-1)
        return product_of_experts(mu, log_var.clamp(-MOST_LOG_VARIANCE, MOST_LOG_VARIANCE), present)

    def weights(self, z: Tensor, present: Tensor) -> Tensor:
        return self.product(z, present)[2]

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        mu, log_var, _ = self.product(z, present)
        return mu + own_normals(mu) * (log_var / 2).exp() if self.training else mu

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        terms = {}
        if self.beta:
            mu, log_var, _ = self.product(out.z, batch.present)
            terms["kl"] = self.beta * gaussian_kl(mu, log_var).mean()
        if self.subsets:
            terms["single"] = self.subsets * self.single(out, batch).sum()
        return terms

    def single(self, out: Output, batch: Batch) -> Tensor:
        """Task loss and KL of each modality alone, over the rows that have it: `[M]`."""
        losses = []
        for m in range(len(self.task.modalities)):
            only = torch.zeros_like(batch.present)
            only[:, m] = batch.present[:, m]
            mu, log_var, _ = self.product(out.z, only)
            # A sample in training, as in `fuse`, but here are the rows of all ranks.
            read = mu + torch.randn_like(mu) * (log_var / 2).exp() if self.training else mu
            logits = self.predict(read).unsqueeze(1)
            loss = row_losses(self.task, logits, batch.target).squeeze(1)
            losses.append(loss + self.beta * gaussian_kl(mu, log_var))
        return present_rows_mean(torch.stack(losses, dim=1), batch.present)
