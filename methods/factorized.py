"""Multimodal factorization: latents that explain the label, and latents that explain one modality each."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from datamodules.options import Natural, Positive
from datamodules.spec import Batch, Task
from methods import Method, Output, Recipe, register
from methods.functional.fission import mmd
from methods.parts.coordination import row_mean
from methods.parts.reconstruction import decoders, rebuilding_error
from methods.parts.search import LogUniform, Space


class Latents(NamedTuple):
    """`label` [B, k] and `own` [B, M, k], before the factors are made from them."""

    label: Tensor
    own: Tensor


PRIOR_ROWS = 64  # of a batch, whose order is random: the cost of the prior term is quadratic


@register("factorized")
class Factorized(Method):
    """Factorize into a label latent from all modalities and a generative latent per modality.

    `z_y = E_y(x_1..x_M)` gives the factor f_y, from which the head predicts; `z_m = E_m(x_m)` gives f_m, and a decoder
    rebuilds modality m from [f_m, f_y]. All latents of a row together are matched with a standard normal by MMD, which
    is what makes them independent of each other. Decoders and modality latents are not used to predict.

    Where a modality is absent a surrogate infers z_y from those present. It learns to stand in for E_y on complete
    rows with some modalities hidden, at least one of them kept, and changes nothing else.

    Source: Tsai et al., 2019.

    **Differs from the paper**: one surrogate that is told what is present, instead of one per missing modality, so that
    any number may be missing; encoders E are linear maps of the encoders of every other method.

    Args:
        components: Width of a latent; 0 means the recipe's width.
        reconstruction: Weight of the decoders' squared error, averaged over rows and features.
        prior: Weight of the MMD between latents and N(0, I), over rows that have all modalities.
        surrogate: Weight of the surrogate's squared error.
    """

    family = "fission"
    search: ClassVar[Mapping[str, Space]] = {"reconstruction": LogUniform(1e-2, 1.0), "prior": LogUniform(1e-2, 10.0)}

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        components: Natural = 0,
        # Positive: the modality latents and the surrogate have no other loss that would train them.
        reconstruction: Positive = 0.1,
        prior: Positive = 1.0,
        surrogate: Positive = 1.0,
    ) -> None:
        k, width, count = components or recipe.width, recipe.width, len(task.modalities)
        super().__init__(task, recipe, fused_dim=k)
        self.reconstruction, self.prior, self.surrogate_weight = reconstruction, prior, surrogate
        self.to_label = nn.Linear(count * width, k)
        self.to_own = nn.ModuleList(nn.Linear(width, k) for _ in task.modalities)
        self.surrogate = nn.Sequential(nn.Linear(count * width + count, width), nn.ReLU(), nn.Linear(width, k))
        self.label_factor = _factor(k)
        self.own_factors = nn.ModuleList(_factor(k) for _ in task.modalities)
        self.decoders = decoders(task.modalities, 2 * k, width)

    def label_latent(self, z: Tensor, present: Tensor) -> Tensor:
        """z_y, [B, k]: from E_y where everything is present, else from the surrogate."""
        complete = present.all(dim=1, keepdim=True)
        return torch.where(complete, self.to_label(z.flatten(1)), self.stand_in(z, present))

    def stand_in(self, z: Tensor, present: Tensor) -> Tensor:
        """The surrogate's z_y from the encodings that are present."""
        # Detached: the surrogate adapts to the encoders, never the reverse.
        seen = z.detach() * present.unsqueeze(-1)
        return self.surrogate(torch.cat([seen.flatten(1), present.to(z.dtype)], dim=1))

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return self.label_factor(self.label_latent(z, present))

    def latents(self, z: Tensor, present: Tensor) -> Latents:
        """All latents of the rows; those of absent modalities mean nothing."""
        own = torch.stack([encode(z[:, m]) for m, encode in enumerate(self.to_own)], dim=1)
        return Latents(self.label_latent(z, present), own)

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        latents = self.latents(out.z, batch.present)
        complete = batch.present.all(dim=1)

        def factors(m: int, rows: Tensor) -> Tensor:
            return torch.cat([self.own_factors[m](latents.own[rows, m]), out.fused[rows]], dim=1)

        return {
            "reconstruction": self.reconstruction * rebuilding_error(self.task, self.decoders, batch, factors),
            "prior": self.prior * match_prior(latents, complete),
            "surrogate": self.surrogate_weight * self.imitate(out.z[complete]),
        }

    def imitate(self, z: Tensor) -> Tensor:
        """Squared error of the surrogate on complete rows with some modalities hidden."""
        kept = some_hidden(len(z), z.shape[1], z.device)
        target = self.to_label(z.flatten(1)).detach()
        return row_mean((self.stand_in(z, kept) - target).square().mean(dim=1))

    def diagnose(self, out: Output, present: Tensor) -> dict[str, Tensor]:
        latent = self.label_latent(out.z, present)
        return {"latent_power": latent.square().mean(dim=1)}  # 1 under the prior


def match_prior(latents: Latents, complete: Tensor) -> Tensor:
    """MMD of the joint latents of complete rows with N(0, I); 0 for fewer than two such rows."""
    z = torch.cat([latents.label, latents.own.flatten(1)], dim=1)[complete]
    z = z[:PRIOR_ROWS]
    return mmd(z, torch.randn_like(z)) if len(z) > 1 else z.sum() * 0.0


def some_hidden(rows: int, count: int, device: torch.device) -> Tensor:
    """`[rows, count]`: True for 1 to count - 1 modalities of every row, number and choice at random."""
    rank = torch.rand(rows, count, device=device).argsort(dim=1).argsort(dim=1)
    return rank < torch.randint(1, count, (rows, 1), device=device)


def _factor(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU())
