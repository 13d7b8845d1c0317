"""Who will take so few steps that it hardly trains, named before the time is spent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmark.cost import trainable
from benchmark.identity import layers
from benchmark.trainer import STEPS_AN_EPOCH, TrainerOptions
from datamodules.base import DataModule, Split
from datamodules.bases.user_views import UserViews
from leaderboard.convergence import FEW_STEPS, some
from methods.base import Method, Recipe
from methods.parts.alignment import Alignment
from methods.parts.coordination import Coordination
from methods.stage import Stage, share_epochs


@dataclass(frozen=True)
class Sketch:
    """What is known of a model without a row.

    Attributes:
        parameters: All of them.
        trainable: Those that some stage fits by gradient: the board's `Params`.
        epochs: Of all its stages together, at most; 0 if every one is solved.
        whole_batches: Whether its batches stay as large as the recipe says where rows are few.
        correlated: Columns of the codes that it correlates, in rows that have every modality; 0 if it does not.
    """

    parameters: int
    trainable: int
    epochs: int
    whole_batches: bool
    correlated: int

    @classmethod
    def of(cls, method: Method, stages: Sequence[Stage]) -> Sketch:
        """Of a method and its stages, which may have been built without memory for their weights."""
        epochs = sum(share_epochs(stages, method.recipe.epochs))
        size = sum(p.numel() for p in method.parameters())
        return cls(size, trainable(stages), epochs, method.batch_statistic, _correlated(method))


def step_notes(
    datamodule: DataModule, recipe: Recipe, trainer: TrainerOptions, sketches: Mapping[str, Sketch]
) -> Iterator[str]:
    """What few rows and few epochs mean for the methods of a dataset.

    Rows are read only where the epochs leave it open, eight steps each (reading all those of `core` would double the
    time of its plan), or where a user's own table has been read to describe it.

    Args:
        sketches: Label -> what will be trained.
    """
    trained = {label: sketch for label, sketch in sketches.items() if sketch.epochs}
    inner = layers(datamodule)[-1]
    own = isinstance(inner, UserViews)
    epochs = min((sketch.epochs for sketch in trained.values()), default=0)
    if not trained or (epochs * STEPS_AN_EPOCH >= FEW_STEPS and not own):
        return
    if (train := training_split(inner)) is None:
        return
    rows = len(train.target)
    fitting = trainer.fitting(recipe.batch_size, rows)
    if own and fitting < recipe.batch_size:
        yield f"{rows} training rows: batches of {fitting} instead of {recipe.batch_size}, for eight steps an epoch"
    steps = {
        label: sketch.epochs * max(1, rows // (recipe.batch_size if sketch.whole_batches else fitting))
        for label, sketch in trained.items()
    }
    few = {label: number for label, number in steps.items() if number < FEW_STEPS}
    if few:
        who = "every method that trains" if len(few) == len(trained) else some(list(few))
        yield f"at most {max(few.values())} steps of training, fewer than {FEW_STEPS}: {who}; raise recipe.epochs"


def _correlated(method: Method) -> int:
    """Asked of the parts: a wrapper correlates what its base does."""
    parts = [part for part in method.modules() if isinstance(part, Coordination)]
    aligned = [part for part in parts if any(isinstance(child, Alignment) for child in part.children())]
    return max((part.components for part in aligned), default=0)


def training_split(datamodule: DataModule) -> Split | None:
    """None if it cannot be read: what is wrong with it is for the cells of this dataset to say, each by itself."""
    try:
        return datamodule.splits["train"]
    except Exception:  # noqa: BLE001 - code of anyone, and the other datasets are still to be planned
        return None
