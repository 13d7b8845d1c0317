"""Who is fitted on rows that have every modality, told before the run where such rows are few."""

from __future__ import annotations

from functools import cached_property

from torch import Tensor

from benchmark.few_steps import Sketch, training_split
from benchmark.identity import layers
from datamodules.base import DataModule
from datamodules.bases.user_views import UserViews
from datamodules.rows.incomplete import Incomplete
from methods.base import Recipe
from methods.dcca import supported

NEEDED = 2  # rows of a covariance


class CompleteRows:
    """The training rows of a dataset that have every modality.

    Read when first asked for, and only where a user's table or the option `absent` may leave rows incomplete or few:
    reading the rows of every dataset would double the time of a plan.
    """

    def __init__(self, datamodule: DataModule) -> None:
        self.datamodule = datamodule

    def reason_against(self, sketch: Sketch) -> str | None:
        """Why a method that correlates modalities cannot be fitted; None if it can, or if that is not known."""
        if not sketch.correlated or self.present is None or (rows := int(self.present.all(dim=1).sum())) >= NEEDED:
            return None
        every = len(self.present)
        return f"correlates modalities, and {rows} of {every} training rows have them all: it needs {NEEDED}"

    def narrowed(self, sketch: Sketch, recipe: Recipe) -> str | None:
        """What is said of codes of which a batch of these rows trains some columns alone."""
        if not (sketch.correlated and sketch.whole_batches) or self.present is None:
            return None
        there = self.present.double()
        shares = there.T @ there / len(there)  # of the rows that have both, for every pair
        batch = int(shares.min() * min(recipe.batch_size, len(there)))
        columns = supported(batch, sketch.correlated)
        if columns == sketch.correlated:
            return None
        return f"{batch} rows of a batch have both modalities, which train {columns} of {sketch.correlated} columns"

    @cached_property
    def present(self) -> Tensor | None:
        """`[N, M]` of the training rows; None if it is not worth reading or cannot be read, which their cells say."""
        rows = next((one for one in layers(self.datamodule) if isinstance(one, Incomplete | UserViews)), None)
        if rows is None or (train := training_split(rows)) is None:
            return None
        everything = train.target.new_ones(len(train.target), len(rows.task.names)).bool()
        return everything if train.present is None else train.present.bool()
