"""Linear canonical correlation analysis."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from torch import Tensor

from datamodules.options import Natural, NonNegative, Positive
from datamodules.spec import Task
from methods import Encoded, Recipe, Stage, Tokens, register
from methods.parts.alignment import Alignment
from methods.parts.coordination import PROBE_RATE, Coordination
from methods.parts.raw_views import RawViews, flat_width
from methods.parts.search import LogUniform, Space

WIDEST = 4096  # sum of raw widths: the moments are its square in float64


@register("cca")
class Cca(Coordination):
    """Linear CCA (MCCA for three or more modalities), fitted in one streaming pass, then a linear probe.

    `views = "raw"` works on the modalities as vectors (a text as its word counts), `"encoded"` on the suite's encoders
    as they are initialised, never trained. A bare name in a matrix stands for both.

    Source: Hotelling, 1936; of more than two views Kettenring, 1971.

    Args:
        views: What is correlated.
        components: Number of directions; 0 means the recipe's width. Views of lower rank give fewer.
        ridge: Added to the covariances, relative to each view's mean variance. Raw views have nearly as many columns as
            rows: chosen on the validation splits of `multi_digits` and `av_digits`.
        probe_rate: Multiple of the recipe's learning rate for the probe.
    """

    family = "coordination"
    search: ClassVar[Mapping[str, Space]] = {"ridge": LogUniform(1e-3, 10.0), "probe_rate": LogUniform(1.0, 100.0)}

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        views: Literal["raw", "encoded"] = "raw",
        components: Natural = 0,
        ridge: NonNegative = 1.0,
        probe_rate: Positive = PROBE_RATE,
    ) -> None:
        raw = views == "raw"
        widths = [flat_width(m) if raw else recipe.width for m in task.modalities]
        kept = min(components or recipe.width, max(widths))
        super().__init__(task, recipe, kept, RawViews(task) if raw else None, probe_rate)
        self.align = Alignment(widths, ridge)

    @property
    def encoding_width(self) -> int:
        return max(self.align.widths)

    def pool(self, tokens: dict[str, Tokens], present: Tensor) -> Tensor:
        return self.align(super().pool(tokens, present))

    def fit_directions(self, train: Iterable[Encoded]) -> None:
        """One pass over the training rows."""
        self.align.fit(train, self.components)

    def stages(self) -> tuple[Stage, ...]:
        return Stage(self, name="correlate", solve=self.fit_directions), *self.probe_stages()

    @classmethod
    def variants(cls, task: Task) -> tuple[dict[str, Any], ...]:
        return tuple({"views": v} for v in ("raw", "encoded") if cls.applies_to(task, {"views": v}) is None)

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        width = sum(flat_width(m) for m in task.modalities)
        if options.get("views", "raw") == "raw" and width > WIDEST:
            return f"raw views of {width} columns in all are more than {WIDEST}: use views = 'encoded'"
        return super().applies_to(task, options)
