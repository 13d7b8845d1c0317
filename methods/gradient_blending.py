"""Gradient blending: weigh the losses of single modalities and of all by how well they generalise."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

import torch
from msgspec import Meta
from torch import Tensor

from datamodules.corruptions.noise import uniforms
from datamodules.options import Count
from datamodules.spec import Batch, Task
from methods import Base, Encoded, Output, Recipe, Stage, Wrapper, register
from methods.functional.balance import blending_weights
from methods.parts.decisions import Decisions, present_rows_mean, row_losses
from methods.parts.search import OneOf, Space

SPLIT_KEY = 2020  # of the rows that are held out: the same in every run


@register("gradient_blending")
class GradientBlending(Wrapper):
    """Train the base and a head per modality together, each loss weighted by generalisation over squared overfitting.

    The weights come from short probes, from the same initial weights and without a share of the training rows: one of
    all single modalities (which have no parameter in common), one of the base. Then everything is trained from those
    initial weights on all rows; the base's prediction is what counts. (Wang, Tran and Feiszli, 2020: the offline
    variant.)

    **Differs from the paper**: overfitting has a floor, and a head that did not generalise has weight zero, so that no
    weight is infinite or negative. Single modalities are probed as the base pools them: a base whose pooling looks at
    the other modalities does not separate them entirely.

    Args:
        base: The joint model.
        probe: Epochs of a probe.
        held_out: Share of the training rows on which probes are measured.
        estimate: False is the twin: equal weights, without probes.
    """

    family = "balance"
    search: ClassVar[Mapping[str, Space]] = {"probe": OneOf((2, 3, 5))}
    checked: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"base": Base("additive"), "probe": 1}, {"estimate": False})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        base: Base = Base("concat"),
        probe: Count = 3,
        held_out: Annotated[float, Meta(gt=0, lt=1)] = 0.1,
        estimate: bool = True,
    ) -> None:
        super().__init__(task, recipe, base)
        if len(self.base.stages()) != 1:
            raise ValueError(f"`base` must be trained in one stage, and {base.name!r} has {len(self.base.stages())}")
        heads = len(task.modalities) + 1
        self.probe, self.held_out, self.estimate = probe, held_out, estimate
        self.decisions = Decisions(task, self.base.encoding_width)
        self.blend: Tensor
        self.register_buffer("blend", torch.full((heads,), 1 / heads))  # the modalities', then the base's
        self._start: dict[str, Tensor] = {}
        self._measured: dict[str, tuple[Tensor, Tensor]] = {}

    def losses(self, z: Tensor, joint: Tensor, target: Tensor) -> Tensor:
        """Of every row by each head: `[B, M + 1]`."""
        return row_losses(self.task, torch.cat([self.decisions(z), joint.unsqueeze(1)], dim=1), target)

    def head_means(self, out: Output, batch: Batch, rows: Tensor) -> Tensor:
        """The mean loss of each head over some rows that have what it needs: `[M + 1]`."""
        has = torch.cat([batch.present, torch.ones_like(batch.present[:, :1])], dim=1)
        return present_rows_mean(self.losses(out.z, out.logits, batch.target), has & rows.unsqueeze(1))

    def singles(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        """The loss of the first probe."""
        return {"single": self.head_means(out, batch, self.learnt_from(batch))[:-1].sum()}

    def joint(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        """The loss of the second probe."""
        return {"joint": self.head_means(out, batch, self.learnt_from(batch))[-1], **self.base.auxiliary(out, batch)}

    def blended(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        """The loss of the training proper, on all rows."""
        every = torch.ones_like(batch.present[:, 0])
        weighted = self.blend.to(out.z.dtype) * self.head_means(out, batch, every)
        return dict(zip((*self.task.names, "joint"), weighted, strict=True)) | self.base.auxiliary(out, batch)

    def learnt_from(self, batch: Batch) -> Tensor:
        """Rows that a probe is trained on, `[B]`; validation, which nothing is chosen by here, keeps all of its own."""
        return ~self.is_held_out(batch.row) if self.training else torch.ones_like(batch.present[:, 0])

    def is_held_out(self, row: Tensor) -> Tensor:
        """`[B]`, a matter of the row's id alone."""
        return uniforms(SPLIT_KEY, row, (1,)).squeeze(1) < self.held_out

    def measure(self, train: Iterable[Encoded]) -> tuple[Tensor, Tensor]:
        """Mean losses of the heads over rows that probes learn from, and over held-out ones: `[M + 1]` each."""
        total, count = torch.zeros(2, 2, len(self.blend), dtype=torch.float64)
        for batch in train:
            logits = self.base.predict(self.base.fuse(batch.z, batch.present))
            losses = self.losses(batch.z, logits, batch.target).cpu().double()
            has = torch.cat([batch.present, torch.ones_like(batch.present[:, :1])], dim=1).cpu()
            held = self.is_held_out(batch.row).cpu()
            for part, rows in enumerate((~held, held)):
                mask = has & rows.unsqueeze(1)
                total[part] += torch.where(mask, losses, 0.0).sum(dim=0)
                count[part] += mask.sum(dim=0)
        learnt, held_out = total / count.clamp_min(1)
        return learnt, held_out

    def begin(self, train: Iterable[Encoded]) -> None:
        """Remember where all begins."""
        self._start = {name: value.clone() for name, value in self.state_dict().items()}
        self._measured["before"] = self.measure(train)

    def end_singles(self, train: Iterable[Encoded]) -> None:
        """Measure the single modalities after their probe, and go back to the beginning."""
        self._measured["singles"] = self.measure(train)
        self.load_state_dict(self._start)

    def end_joint(self, train: Iterable[Encoded]) -> None:
        """Measure the base after its probe, go back to the beginning, and weigh the heads."""
        train_before, held_before = self._measured["before"]
        singles, joint = self._measured["singles"], self.measure(train)
        train_after, held_after = (torch.cat([s[:-1], j[-1:]]) for s, j in zip(singles, joint, strict=True))
        self.load_state_dict(self._start)
        self.blend.copy_(blending_weights(train_before, held_before, train_after, held_after))
        self._start, self._measured = {}, {}

    def diagnose(self, out: Output, present: Tensor) -> dict[str, Tensor]:
        blend = {f"blend_{name}": w for name, w in zip((*self.task.names, "joint"), self.blend, strict=True)}
        return self.base.diagnose(out, present) | blend

    def stages(self) -> tuple[Stage, ...]:
        train = Stage(self, loss="terms", terms=(self.blended,))
        if not self.estimate:
            return (train,)
        encoders = tuple(self.modality_encoders())
        return (
            Stage(self, name="before", solve=self.begin),
            self._probe("probe_singles", (*encoders, self.decisions), self.singles),
            Stage(self, name="after_singles", solve=self.end_singles),
            self._probe("probe_joint", (self.base,), self.joint),
            Stage(self, name="after_joint", solve=self.end_joint),
            train,
        )

    def _probe(self, name: str, learn: tuple[Any, ...], term: Any) -> Stage:
        return Stage(
            self,
            name=name,
            learn=learn,
            loss="terms",
            terms=(term,),
            select="last",
            stop_early=False,
            epochs=self.probe,
        )

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        reason = super().applies_to(task, options) or cls.needs_own_encoders(task, options)
        return reason or cls.needs_plain_training(task, options)
