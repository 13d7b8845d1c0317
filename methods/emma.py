"""EMMA: energy-based multimodal attention, inserted between the encoders and the fusion of a trained method."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from msgspec import Meta
from torch import Tensor

from datamodules.corruptions.noise import normals
from datamodules.options import Count, NonNegative, Positive
from datamodules.spec import Batch, Task
from methods import Base, Output, Recipe, Stage, Wrapper, register
from methods.base import Method
from methods.parts.augmentation import augment, closing_loss, decoder
from methods.parts.energy_attention import Coupling, EnergyAttention
from methods.parts.search import LogUniform, Space


@register("emma")
class Emma(Wrapper):
    """Train a base method, learn where its clean encodings live, then weigh each modality by how normal it looks.

    Stages: the base's own; feature statistics; one denoising autoencoder per modality on clean encodings; calibration
    of the potentials; attention on corrupted batches, with the base's decoder (`finetune = "decoder"`) or without
    (`"none"`). Encoders, autoencoders and calibration are frozen in the last stage. Belongs beside `augmented` and
    `modality_dropout`, which have the same budget: the same base, and as many steps in all after it.

    Source: Werenne, 2019.

    **Differs from the paper**: potentials are per row (the author's code sums over the batch); V is scaled by its clean
    spread, which the slope w absorbs; eta are the corruption labels, because the paper's Laplacian classifier calls far
    points normal (`polymodal study energy`); Omega is averaged over the batch and bounded for corrupted modes; the bias
    of the attention is bounded so that one mode always stays alive; the system energy of a row that lacks a modality is
    the mean over present pairs times the number of all. As a score of errors over clean, noisy and incomplete rows that
    has a larger AUROC (.64 and .68, two seeds of `digit_halves`) than the sum (.37, .42) or the energy with the missing
    mode at its clean mean (.61, .66).

    Args:
        base: The method between whose encoders and fusion the attention is put.
        finetune: What the last stage learns besides the attention.
        penalty: Weight of the regulariser Omega.
        capacity_penalty: Weight of `gain - bias`, which the thesis adds to the loss.
        quantile: Of the clean potentials that counts as their minimum.
        eta: What Omega takes for normal: the modes that were not corrupted ("labels"), or the paper's "laplacian".
        autoencoder_rate: Multiple of the recipe's learning rate for the autoencoders: a recipe is chosen for networks,
            and these are a single layer.
        attention_rate: The same for the few scalars of the attention.
        tau: Coldness of the softmax over energies. Fixed: the scale of w already plays its part.
        sigma: Training noise of the autoencoders, in standard deviations of the encodings.
        hidden: Hidden units of every autoencoder; by default the width.
        coupling: "symmetric" exponents; "signed": asymmetric, with weights in [-1, 1] (the thesis); "none": a mode's
            energy is its own potential's alone.
        bias: "safe" keeps the most important mode alive; "free" may mask them all.
        shift: Send a masked mode to its clean mean instead of zero.
        shared: One gain and one bias for all modalities, or one of each per modality.
    """

    family = "energy"
    search: ClassVar[Mapping[str, Space]] = {"tau": LogUniform(0.01, 1.0), "attention_rate": LogUniform(1.0, 100.0)}
    track = "augmented"
    checked = (
        {},
        {"finetune": "none", "coupling": "signed"},
        {"bias": "free", "shift": True, "capacity_penalty": 0.1},
        {"eta": "laplacian", "shared": False, "capacity_penalty": 0.1},
        {"coupling": "none"},
    )

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        base: Base = Base("concat"),
        finetune: Literal["none", "decoder"] = "decoder",
        tau: NonNegative = 0.1,
        penalty: NonNegative = 0.01,
        capacity_penalty: NonNegative = 0.0,
        sigma: Positive = 0.3,
        hidden: Count | None = None,
        coupling: Coupling = "symmetric",
        bias: Literal["safe", "free"] = "safe",
        shift: bool = False,
        shared: bool = True,
        eta: Literal["labels", "laplacian"] = "labels",
        quantile: Annotated[float, Meta(ge=0, lt=1)] = 0.005,
        autoencoder_rate: Positive = 5.0,
        attention_rate: Positive = 10.0,
    ) -> None:
        super().__init__(task, recipe, base)
        self.autoencoder_rate, self.attention_rate = autoencoder_rate, attention_rate
        self.finetune, self.penalty = finetune, penalty
        self.capacity_penalty, self.quantile, self.eta = capacity_penalty, quantile, eta
        self.attention = EnergyAttention(
            len(task.modalities),
            self.base.encoding_width,
            hidden=hidden,
            sigma=sigma,
            tau=tau,
            coupling=coupling,
            bias=bias,
            shift=shift,
            shared=shared,
        )

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return self.base.fuse(self.attention(z, present), present)

    def weights(self, z: Tensor, present: Tensor) -> Tensor:
        return self.attention.attend(z, present).beta

    def uncertainty(self, out: Output, present: Tensor) -> Tensor:
        return self.attention.attend(out.z, present).S

    def diagnose(self, out: Output, present: Tensor) -> dict[str, Tensor]:
        info = self.attention.attend(out.z, present)
        found = self.base.diagnose(out, present)
        for m, name in enumerate(self.task.names):
            found |= {f"alpha_{name}": info.alpha[:, m], f"beta_{name}": info.beta[:, m]}
        return found | {"system_energy": info.S, "capacity": self.attention.capacity()}

    def denoise(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        """Denoising loss of each modality's autoencoder, over the rows that have it."""
        # Noise by (epoch, row): fresh in every epoch, fixed in validation, the same on any number of devices.
        epoch = 1 + self.current_epoch if self.attention.daes.training else 0
        noise = normals(self.augment_seed + epoch, batch.row, tuple(out.z.shape[1:])).to(out.z.dtype)
        terms, autoencoders = {}, self.attention.autoencoders
        for m, name in enumerate(self.task.names):
            here = batch.present[:, m].to(out.z.dtype)
            loss = autoencoders[m].denoising_loss(out.z[:, m].detach(), noise[:, m])
            terms[f"denoise_{name}"] = (loss * here).sum() / here.sum().clamp_min(1)
        return terms

    def regularize(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        """Minus Omega: low importance for the modes that are abnormal, high importance for the rest."""
        if batch.corrupted is None:
            return {}
        log_alpha = self.attention.attend(out.z, batch.present).log_alpha
        if self.eta == "labels":
            eta = corruption_labels(batch.corrupted, batch.present).to(log_alpha.dtype)
        else:
            eta = self.attention.normality(out.z, batch.present)
        terms = {"omega": -self.penalty * self.attention.regularizer(log_alpha, eta, batch.present)}
        if self.capacity_penalty:
            terms["capacity"] = self.capacity_penalty * (self.attention.gain - self.attention.bias).mean()
        return terms

    def stages(self) -> tuple[Stage, ...]:
        attention, daes = self.attention, self.attention.daes
        learned = attention.learned()
        own = (
            Stage(self, name="statistics", solve=attention.standardize),
            Stage(
                self,
                name="energy",
                learn=(daes,),
                loss="terms",
                select="loss",
                terms=(self.denoise,),
                rates=((daes, self.autoencoder_rate),),
            ),
            Stage(self, name="calibration", solve=partial(attention.calibrate, quantile=self.quantile)),
            Stage(
                self,
                name="attention",
                learn=learned if self.finetune == "none" else (*learned, *decoder(self.base)),
                loss=closing_loss(self.base),
                terms=(self.base.auxiliary, self.regularize),
                augment=partial(augment, self.task),
                rates=tuple((p, self.attention_rate) for p in learned),
                stop_early=False,  # twins are compared after equal steps
            ),
        )
        return self.in_halves(self.base.stages(), own)

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        return Method.applies_to(task, {}) or super().applies_to(task, options)


def corruption_labels(corrupted: Tensor, present: Tensor) -> Tensor:
    """Eta of a training batch: -1 on corrupted modes and +1 on the others; 0 on rows without a corrupted mode to see.

    A row that is clean, or whose corrupted modes all went missing, has nothing to tell apart: +1 everywhere would only
    pull its importances to uniform.
    """
    seen = corrupted & present
    return torch.where(seen, -1, 1) * seen.any(dim=1, keepdim=True) * present
