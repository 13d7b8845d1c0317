"""The vocabulary everything else speaks: modalities, tasks and batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from datamodules.targets import Target, targets

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["vector", "sequence", "image", "text"]

_RANK: dict[str, int] = {"vector": 1, "sequence": 2, "image": 3, "text": 1}


@dataclass(frozen=True)
class Modality:
    """One input of a task.

    Attributes:
        name: Key of the input in `Batch.inputs`.
        kind: Decides encoder and corruptions.
        shape: Of one row: vector `(d,)`, sequence `(T, C)`, image `(C, H, W)`, text `(L,)` of token ids.
        encoder: A name known to `methods/parts/encoders.py`; empty means the default of the kind.
        vocabulary: Number of token ids of a text, 0 (padding) included.
        range: Limits of an image's values, or None if it is standardised and must not be clamped.
        known: Token ids from here on are words that training hardly has: an encoder learnt from scratch reads them as
            1, "unknown", while a pretrained tower reads the word. 0: all are known.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...]
    encoder: str = ""
    vocabulary: int = 0
    range: tuple[float, float] | None = (0.0, 1.0)
    known: int = 0

    def __post_init__(self) -> None:
        if self.kind not in _RANK:
            raise ValueError(f"Expected modality `kind` to be one of {sorted(_RANK)}, but got {self.kind!r}")
        if len(self.shape) != _RANK[self.kind] or min(self.shape) < 1:
            raise ValueError(f"Expected a {self.kind} to have {_RANK[self.kind]} positive sizes, but got {self.shape}")
        if self.kind == "text" and self.vocabulary < 2:
            raise ValueError(f"Expected text modality {self.name!r} to have `vocabulary` >= 2, got {self.vocabulary}")


@dataclass(frozen=True)
class Task:
    """What is to be learnt.

    Attributes:
        version: Of the data: bump it whenever a row changes, so that no result is compared across the change.
        target: Name of what a row's target is: `multiclass`, `multilabel`, `regression`, `answers`, `retrieval`,
            `pairs` (see their files in `datamodules/targets`), or a plugin's.
        num_outputs: Classes, labels or regression targets; for `retrieval` the training classes.
        metric: Name of the score; empty means the default of the target.
        bayes: The best possible score, when it is known.
        class_names: Names of the outputs, for people and for zero-shot prompts.
        shared: Of a `pairs` task, the modalities that the rows of one instance have in common (the image of five
            captions): such an item is in the gallery once.
        ks: Of the recalls at K that a ranking is scored by; empty means the default of the target.
    """

    name: str
    version: str
    modalities: tuple[Modality, ...]
    target: str
    num_outputs: int
    metric: str = ""
    bayes: float | None = None
    class_names: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    ks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.modalities) < 2:
            raise ValueError(f"Expected task {self.name!r} to have at least two modalities, got {len(self.modalities)}")
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"Expected modality names of task {self.name!r} to be unique, got {self.names}")
        goal = self.goal
        object.__setattr__(self, "metric", self.metric or goal.metrics[0])
        object.__setattr__(self, "ks", self.ks or goal.ks)
        if goal.ranked and (self.ks[0] != 1 or list(self.ks) != sorted(set(self.ks))):
            raise ValueError(f"Expected `ks` to be rising integers from 1, the first of them 1, but got {self.ks}")
        if self.metric not in goal.metrics:
            known = ", ".join(goal.metrics)
            raise ValueError(f"Expected `metric` of a {self.target} task to be one of {known}, but got {self.metric!r}")

    @property
    def goal(self) -> Target:
        """The target: loss, prediction and scores. Looked up when asked for: a task stays plain data."""
        return targets.get(self.target)(self)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the modalities, in the order of every `M` axis."""
        return tuple(m.name for m in self.modalities)


class Batch(NamedTuple):
    """Some rows of a split.

    Attributes:
        present: `[B, M]` bool, at least one True per row.
        row: Position in the split: pairs predictions and noise across methods.
        corrupted: `[B, M]` bool, only in a stage that corrupts on purpose.
    """

    inputs: dict[str, Tensor]
    target: Tensor
    present: Tensor
    row: Tensor
    corrupted: Tensor | None = None
