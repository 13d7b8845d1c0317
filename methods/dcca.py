"""Deep canonical correlation analysis."""

import warnings
from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

from torch import Tensor

from datamodules.options import Natural, NonNegative, Positive
from datamodules.spec import Batch, Task
from methods import Encoded, Recipe, Stage, Tokens, register
from methods.functional.coordination import dcca_loss
from methods.parts.alignment import Alignment
from methods.parts.coordination import Pairwise
from methods.parts.search import LogUniform, Space

WIDEST = 20  # chosen, with the ridge, on the validation split of `multi_digits`
ROWS_PER_WIDTH = 10  # fewer rows than this times the sum of widths, and a batch's correlations are mostly chance


@register("dcca")
class Dcca(Pairwise):
    """Train encoders so that a batch's codes are maximally correlated; then align them by a streaming linear CCA.

    The loss is minus the mean canonical correlation of the batch (the nuclear norm over k). It is not a mean over rows:
    small batches overstate it, which is why codes are narrow; a batch too small for any correlation (the rest of a
    validation split) counts as 0. Held-out correlations are in the summary.

    Source: Andrew et al., 2013.

    **Differs from the paper**: gradients by Cholesky and `svdvals`, which stay finite at the
    optimum, where those of whitening by `eigh` do not; divided by k, so that rates do not depend on it.

    Args:
        components: Width k of a code; 0 means a sixth of the batch size, at most 20 or the recipe's width.
        norm: "nuclear" (sum of correlations) or "frobenius" (sum of squares, smooth).
        ridge: Added to the diagonal of the batch covariances.
        supervised: See `Pairwise`, and so is `weight`.
    """

    family = "coordination"
    search: ClassVar[Mapping[str, Space]] = {"ridge": LogUniform(1e-4, 1e-1)}
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
    ) -> None:
        k = components or max(1, min(recipe.width, WIDEST, recipe.batch_size // 6))
        check_batch(type(self).__name__, recipe.batch_size, k)
        super().__init__(task, recipe, supervised=supervised, weight=weight, components=k)
        self.norm: Literal["nuclear", "frobenius"] = norm
        self.ridge = ridge
        # Codes are float32: without a ridge their null directions would be rounding, blown up to unit variance.
        self.align = Alignment([k] * len(task.modalities), ridge=1e-3)

    def pool(self, tokens: dict[str, Tokens], present: Tensor) -> Tensor:
        return self.align(super().pool(tokens, present))

    def pair_loss(self, a: Tensor, b: Tensor, batch: Batch, rows: Tensor) -> Tensor:
        if len(a) <= 2 * self.components:  # correlations of 1, whatever the encoder
            return a.sum() * 0
        return dcca_loss(a, b, self.ridge, self.norm) / self.components

    def fit_alignment(self, train: Iterable[Encoded]) -> None:
        """Streaming linear CCA of the trained codes."""
        self.align.fit(train, self.components)

    def stages(self) -> tuple[Stage, ...]:
        return self.coordination_stage(), Stage(self, name="align", solve=self.fit_alignment), *self.probe_stages()


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
