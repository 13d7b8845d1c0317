"""Deep canonical correlation analysis."""

import warnings
from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

from datamodules.options import Natural, NonNegative, Positive
from datamodules.spec import Batch, Task
from methods import Encoded, Recipe, Stage, Tokens, register
from methods.functional.coordination import dcca_loss
from methods.parts.alignment import Alignment
from methods.parts.coordination import PROBE_RATE, Pairwise
from methods.parts.search import LogUniform, Space

WIDEST = 20  # chosen, with the ridge, on the validation split of `multi_digits`
ROWS_PER_COLUMN = 6  # of a batch; a default code is as wide as this allows
ROWS_PER_WIDTH = 10  # fewer rows than this times the sum of widths, and a batch's correlations are mostly chance


@register("dcca")
class Dcca(Pairwise):
    """Train encoders so that a batch's codes are maximally correlated; then align them by a streaming linear CCA.

    The loss is minus the mean canonical correlation of the batch (the nuclear norm over k). It is not a mean over rows:
    small batches overstate it, which is why codes are narrow. A batch with no more complete rows than the sum of the
    widths (a small table, rows that lack a modality, the rest of a split) correlates the leading columns alone, one for
    every six rows; with less than six rows it counts as 0. How many columns a batch of the training rows can support is
    in the summary (`trained_columns`), with the held-out correlations.

    Source: Andrew et al., 2013.

    **Differs from the paper**: gradients by Cholesky and `svdvals`, which stay finite at the
    optimum, where those of whitening by `eigh` do not; divided by k, so that rates do not depend on it.

    Args:
        components: Width k of a code; 0 means a sixth of the batch size, at most 20 or the recipe's width.
        norm: "nuclear" (sum of correlations) or "frobenius" (sum of squares, smooth).
        ridge: Added to the diagonal of the batch covariances.
        supervised: See `Pairwise`, and so are `weight` and `probe_rate`.
    """

    family = "coordination"
    search: ClassVar[Mapping[str, Space]] = {"ridge": LogUniform(1e-4, 1e-1), "probe_rate": LogUniform(1.0, 100.0)}
    batch_statistic = True
    checked = ({}, {"norm": "frobenius"}, {"supervised": True})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        components: Natural = 0,
        norm: Literal["nuclear", "frobenius"] = "nuclear",
        ridge: Positive = 1e-2,
        supervised: bool = False,
        weight: NonNegative = 1.0,
        probe_rate: Positive = PROBE_RATE,
    ) -> None:
        k = components or max(1, min(recipe.width, WIDEST, recipe.batch_size // ROWS_PER_COLUMN))
        check_batch(type(self).__name__, recipe.batch_size, k)
        super().__init__(task, recipe, supervised=supervised, weight=weight, components=k, probe_rate=probe_rate)
        self.norm: Literal["nuclear", "frobenius"] = norm
        self.ridge = ridge
        # Codes are float32: without a ridge their null directions would be rounding, blown up to unit variance.
        self.align = Alignment([k] * len(task.modalities), ridge=1e-3)

    def pool(self, tokens: dict[str, Tokens], present: Tensor) -> Tensor:
        return self.align(super().pool(tokens, present))

    def pair_loss(self, a: Tensor, b: Tensor, batch: Batch, rows: Tensor) -> Tensor:
        k = supported(len(a), self.components)
        return dcca_loss(a[:, :k], b[:, :k], self.ridge, self.norm) / k if k else a.sum() * 0

    def fit_alignment(self, train: Iterable[Encoded]) -> None:
        """Streaming linear CCA of the trained codes."""
        self.align.fit(train, self.components)

    def stages(self) -> tuple[Stage, ...]:
        return self.coordination_stage(), Stage(self, name="align", solve=self.fit_alignment), *self.probe_stages()

    def summary(self, train: Iterable[Encoded], test: Iterable[Encoded]) -> dict[str, float]:
        present = torch.cat([e.present for e in train]).double()
        shares = present.T @ present / len(present)  # of the rows that have both, for every pair
        rows = int(shares.min() * min(self.recipe.batch_size, len(present)))
        return {**super().summary(train, test), "trained_columns": float(supported(rows, self.components))}


def supported(rows: int, k: int) -> int:
    """How many of k columns the correlations of so many rows can train: all, or the leading ones."""
    # With rows <= 2 k some correlations are 1 whatever the encoder.
    return k if rows > 2 * k else rows // ROWS_PER_COLUMN


def check_batch(name: str, rows: int, k: int) -> None:
    """Refuse batches whose correlations are 1 whatever the encoder; warn of those that are mostly chance."""
    if rows <= 2 * k:
        raise ValueError(
            f"{name}: the batch size must be larger than the sum of a pair's widths ({k} + {k}), got {rows}: "
            "use a larger batch or fewer `components`"
        )
    if rows < ROWS_PER_WIDTH * 2 * k:
        warnings.warn(
            f"{name}: correlations of {rows} rows in {k} + {k} columns are biased upwards; a batch of "
            f"{ROWS_PER_WIDTH * 2 * k} or more, or fewer `components`, is advised",
            stacklevel=3,
        )
