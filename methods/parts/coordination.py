"""The base of the coordination methods: one code per modality, brought together by a loss, read by a linear probe."""

import inspect
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.options import Natural, NonNegative, Positive
from datamodules.spec import Batch, Task
from methods import Encoded, Method, Output, Recipe, Stage, Tokens
from methods.parts.codes import Codes, report

PROBE_RATE = 10.0  # by default: a linear map on frozen codes is convex, and bears a larger step than an encoder
PROBE_SHARE = 1 / 3  # of the epochs of the codes it reads


class Coordination(Method):
    """Keep one code per modality; score them by a linear probe on the frozen, concatenated codes.

    The probe is trained through the head and the metrics of every other method. An absent modality's code is zero.

    Args:
        components: Width of a code.
        probe_rate: Multiple of the recipe's learning rate for the probe.
    """

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        components: int,
        encoders: nn.Module | None = None,
        probe_rate: float = PROBE_RATE,
    ) -> None:
        fused_dim = len(task.modalities) * components if task.goal.labelled else None
        super().__init__(task, recipe, fused_dim, encoders)
        self.components, self.probe_rate = components, probe_rate

    def codes(self, z: Tensor, present: Tensor) -> Tensor:
        """The coordinated representations, [B, M, k], that the probe and the summary see."""
        return z[..., : self.components]

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return self.codes(z, present).flatten(1)

    def probe_stages(self) -> tuple[Stage, ...]:
        """The linear probe on frozen codes; none where codes are ranked."""
        if self.head is None or self.task.goal.ranked:
            return ()
        return (Stage(self, "probe", (self.head,), rates=((self.head, self.probe_rate),), share=PROBE_SHARE),)

    def diagnose(self, out: Output, present: Tensor) -> dict[str, Tensor]:
        codes = F.normalize(self.codes(out.z, present), dim=-1)
        both = [
            (codes[:, i] * codes[:, j]).sum(-1)[present[:, i] & present[:, j]]
            for i, j in combinations(range(codes.shape[1]), 2)
        ]
        cosines = torch.cat(both)
        return {"paired_cosine": cosines} if len(cosines) else {}

    def summary(self, train: Iterable[Encoded], test: Iterable[Encoded]) -> dict[str, float]:
        return report(self.task, self._collect(train), self._collect(test))

    def _collect(self, stream: Iterable[Encoded]) -> Codes:
        batches = [Codes(self.codes(e.z, e.present), e.present, e.target) for e in stream]
        return Codes(*(torch.cat(parts) for parts in zip(*batches, strict=True)))

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        return None  # codes can be ranked: rows without labels will do


class Pairwise(Coordination):
    """Learn codes by a loss on pairs of modalities.

    The first stage minimises the coordination loss alone, without labels and selected by its validation loss, or
    together with the task (`supervised`). The probe follows. With more than two modalities the loss is averaged over
    all pairs, each over the rows that have both.

    Args:
        supervised: Train on task and coordination together.
        weight: Of the coordination loss, beside the task loss.
        components: Width of a code; 0 means the recipe's width.
        probe_rate: Multiple of the recipe's learning rate for the probe.
    """

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        supervised: bool = True,
        weight: NonNegative = 0.1,
        components: Natural = 0,
        probe_rate: Positive = PROBE_RATE,
    ) -> None:
        super().__init__(task, recipe, components or recipe.width, probe_rate=probe_rate)
        self.supervised = supervised
        self.weight = weight
        self.project = nn.ModuleList(nn.Linear(recipe.width, self.components) for _ in task.modalities)

    @property
    def encoding_width(self) -> int:
        return self.components

    def pool(self, tokens: dict[str, Tokens], present: Tensor) -> Tensor:
        z = super().pool(tokens, present)
        return torch.stack([project(z[:, m]) for m, project in enumerate(self.project)], dim=1)

    @abstractmethod
    def pair_loss(self, a: Tensor, b: Tensor, batch: Batch, rows: Tensor) -> Tensor:
        """The loss of two modalities' codes [n, k] in the rows (a mask of the batch) that have both."""

    def coordinate(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        """The coordination loss, averaged over pairs of modalities."""
        codes, present = self.codes(out.z, batch.present), batch.present
        losses = []
        for i, j in combinations(range(codes.shape[1]), 2):
            rows = present[:, i] & present[:, j]
            losses.append(self.pair_loss(codes[rows, i], codes[rows, j], batch, rows))
        return {"coordination": self.weight * torch.stack(losses).mean()}

    def learned(self) -> tuple[nn.Module | nn.Parameter, ...]:
        """What the coordination loss trains when there are no labels."""
        return (self.encoders, self.project)

    def undecayed(self) -> tuple[tuple[nn.Module | nn.Parameter, float], ...]:
        """Parameters of the coordination loss that weight decay must not touch, with their rate."""
        return ()

    def coordination_stage(self) -> Stage:
        """Coordination alone, selected without labels, or together with the task."""
        terms, rates = (self.coordinate,), self.undecayed()
        if self.supervised:
            return Stage(self, name="coordinate", terms=terms, rates=rates)
        return Stage(self, "coordinate", self.learned(), loss="terms", select="loss", terms=terms, rates=rates)

    def stages(self) -> tuple[Stage, ...]:
        return self.coordination_stage(), *self.probe_stages()

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        supervised = options.get("supervised", inspect.signature(cls).parameters["supervised"].default)
        if supervised and not task.goal.labelled:
            return f"supervised coordination needs labels, and the rows of a `{task.target}` task have none"
        return super().applies_to(task, options)


def row_mean(losses: Tensor) -> Tensor:
    """The mean over rows, 0 if there are none (no row of the batch has both modalities)."""
    return losses.sum() / max(1, len(losses))
