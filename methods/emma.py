"""EMMA: energy-based multimodal attention, inserted between the encoders and the fusion of a trained method."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from datamodules.corruptions.noise import normals
from datamodules.spec import Batch, Task
from methods import Base, Encoded, Output, Recipe, Stage, Wrapper, register
from methods.base import Method
from methods.parts.augmentation import augment, decoder
from methods.parts.energy_attention import EnergyAttention

# Multiples of the recipe's learning rate: a recipe is chosen for networks, these are a single layer and a few scalars.
AUTOENCODER_RATE = 5.0
ATTENTION_RATE = 10.0


@register("emma")
class Emma(Wrapper):
    """Train a base method, learn where its clean encodings live, then weigh each modality by how normal it looks.

    Stages: the base's own; feature statistics; one denoising autoencoder per modality on clean encodings; calibration
    of the potentials; attention on corrupted batches, with the base's decoder (`finetune = "decoder"`) or without
    (`"none"`). Encoders, autoencoders and calibration are frozen in the last stage. Belongs beside `augmented` and
    `modality_dropout`, which see the same corrupted batches for as many steps.

    **Differs from the paper**: potentials are per row (the author's code sums over the batch); V is scaled by its clean
    spread, which the slope w absorbs; eta are the corruption labels, because the paper's Laplacian classifier calls far
    points normal (`polymodal study energy`); Omega is averaged over the batch and bounded for corrupted modes; the bias
    of the attention is bounded so that one mode always stays alive.

    Args:
        base: The method between whose encoders and fusion the attention is put.
        finetune: What the last stage learns besides the attention.
        tau: Coldness of the importance softmax.
        penalty: Weight of the regulariser Omega.
        capacity_penalty: Weight of `gain - bias`, which the thesis adds to the loss.
        sigma: Noise of the autoencoders, in standard deviations of the encodings.
        hidden: Hidden units of each autoencoder; None takes the width of the encodings.
        coupling: See `EnergyAttention`.
        bias: See `EnergyAttention`.
        shift: See `EnergyAttention`.
        quantile: Of the clean potentials that counts as their minimum.
    """

    family = "energy"
    track = "augmented"

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        base: Base = Base("concat"),
        finetune: Literal["none", "decoder"] = "decoder",
        tau: float = 0.1,
        penalty: float = 0.01,
        capacity_penalty: float = 0.0,
        sigma: float = 0.3,
        hidden: int | None = None,
        coupling: Literal["symmetric", "signed"] = "symmetric",
        bias: Literal["safe", "free"] = "safe",
        shift: bool = False,
        quantile: float = 0.005,
    ) -> None:
        super().__init__(task, recipe, base)
        _check_options(finetune, tau, sigma, hidden, coupling, bias, quantile)
        self.finetune, self.penalty, self.capacity_penalty, self.quantile = (
            finetune,
            penalty,
            capacity_penalty,
            quantile,
        )
        self.attention = EnergyAttention(
            [recipe.width] * len(task.modalities),
            hidden=hidden,
            sigma=sigma,
            tau=tau,
            coupling=coupling,
            bias=bias,
            shift=shift,
        )

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        scaled, _ = self.attention(z.unbind(1), present)
        return self.base.fuse(torch.stack(scaled, dim=1), present)

    def weights(self, z: Tensor, present: Tensor) -> Tensor:
        return self.attention.attend(z.unbind(1), present).beta

    def diagnose(self, out: Output, present: Tensor) -> dict[str, Tensor]:
        info = self.attention.attend(out.z.unbind(1), present)
        found = self.base.diagnose(out, present)
        for m, name in enumerate(self.task.names):
            found |= {f"alpha_{name}": info.alpha[:, m], f"beta_{name}": info.beta[:, m]}
        return found | {"system_energy": info.S, "capacity": self.attention.capacity()}

    def denoise(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        """Denoising loss of each modality's autoencoder, over the rows that have it."""
        # Noise by (epoch, row): fresh in every epoch, fixed in validation, the same on any number of devices.
        epoch = 1 + self.current_epoch if self.attention.daes.training else 0
        noise = normals(self.augment_seed + epoch, batch.row, tuple(out.z.shape[1:])).to(out.z.dtype)
        terms = {}
        for m, name in enumerate(self.task.names):
            here = batch.present[:, m].to(out.z.dtype)
            loss = self.attention.autoencoder(m).denoising_loss(out.z[:, m].detach(), noise[:, m])
            terms[f"denoise_{name}"] = (loss * here).sum() / here.sum().clamp_min(1)
        return terms

    def regularize(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        """Minus Omega: low importance for the modes that were corrupted, high importance for the rest."""
        if batch.corrupted is None:
            return {}
        log_alpha = self.attention.attend(out.z.unbind(1), batch.present).log_alpha
        eta = corruption_labels(batch.corrupted, batch.present).to(log_alpha.dtype)
        terms = {"omega": -self.penalty * self.attention.regularizer(log_alpha, eta, batch.present)}
        if self.capacity_penalty:
            terms["capacity"] = self.capacity_penalty * (self.attention.gain - self.attention.bias)
        return terms

    def stages(self) -> tuple[Stage, ...]:
        attention, daes = self.attention, self.attention.daes
        learned = attention.learned()
        return (
            *self.base.stages(),
            Stage(self, name="statistics", solve=lambda train: attention.standardize(_features(train))),
            Stage(
                self,
                name="energy",
                learn=(daes,),
                loss="terms",
                select="loss",
                terms=(self.denoise,),
                rates=((daes, AUTOENCODER_RATE),),
            ),
            Stage(self, name="calibration", solve=lambda train: attention.calibrate(_features(train), self.quantile)),
            Stage(
                self,
                name="attention",
                learn=learned if self.finetune == "none" else (*learned, *decoder(self.base)),
                terms=(self.base.auxiliary, self.regularize),
                augment=partial(augment, self.task),
                rates=tuple((p, ATTENTION_RATE) for p in learned),
                stop_early=False,  # twins are compared after equal steps
            ),
        )

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


def _features(train: Iterable[Encoded]) -> Iterator[tuple[tuple[Tensor, ...], Tensor]]:
    for batch in train:
        yield batch.z.unbind(1), batch.present


def _check_options(
    finetune: str, tau: float, sigma: float, hidden: int | None, coupling: str, bias: str, quantile: float
) -> None:
    for name, value, allowed in (
        ("finetune", finetune, ("none", "decoder")),
        ("coupling", coupling, ("symmetric", "signed")),
        ("bias", bias, ("safe", "free")),
    ):
        if value not in allowed:
            raise ValueError(f"emma: `{name}` must be one of {allowed}, got {value!r}")
    if not tau >= 0:
        raise ValueError(f"emma: `tau` must be >= 0, got {tau!r}")
    if not sigma > 0:
        raise ValueError(f"emma: `sigma` must be > 0, got {sigma!r}")
    if hidden is not None and hidden < 1:
        raise ValueError(f"emma: `hidden` must be an integer >= 1 or none, got {hidden!r}")
    if not 0 <= quantile < 1:
        raise ValueError(f"emma: `quantile` must be in [0, 1), got {quantile!r}")
