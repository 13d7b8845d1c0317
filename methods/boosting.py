"""Gradient-boosted trees on the raw inputs: the strongest habit of practitioners with tables."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from datamodules.options import Count, Positive
from datamodules.spec import Task
from methods import Recipe, register
from methods.functional.trees import Trees, evaluate_trees
from methods.parts.search import LogUniform, OneOf, Space
from methods.parts.table import Floats, TableMethod


@register("boosting")
class Boosting(TableMethod):
    """Histogram gradient boosting on the columns of all modalities, without a network.

    Scikit-learn's: one model for classes, one for each label or value. Columns as in `linear`; an absent modality is
    missing to the trees, which learn where to send it if training rows lack it too. A tenth of the training rows
    decides when to stop.

    Source: Friedman, 2001; Ke et al., 2017 (histograms).

    Args:
        iterations: Trees of each output, at most.
        rate: Of each tree.
        leaves: Of a tree, at most. With 31, the default of scikit-learn, validation rows of `multi_digits` and
            `av_digits` are predicted no better, at two to three times the cost.
    """

    family = "baseline"
    search: ClassVar[Mapping[str, Space]] = {"rate": LogUniform(0.02, 0.3), "leaves": OneOf((4, 8, 16, 31))}
    checked = ({}, {"iterations": 5, "leaves": 3})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        iterations: Count = 100,
        rate: Positive = 0.1,
        leaves: Annotated[int, Meta(ge=2)] = 8,
    ) -> None:
        super().__init__(task, recipe)
        self.iterations, self.rate, self.leaves = iterations, rate, leaves
        for name, value in Trees.empty(iterations * task.num_outputs, 2 * leaves - 1)._asdict().items():
            self.register_buffer(name, value)
        self.baseline: Tensor
        self.used: Tensor
        self.register_buffer("baseline", torch.zeros(task.num_outputs))
        self.register_buffer("used", torch.zeros((), dtype=torch.int64))  # iterations, before it stopped

    def answer_table(self, x: Tensor) -> Tensor:
        used = self.iterations if self.used.is_meta else int(self.used)
        outputs = self.task.num_outputs
        trees = Trees(*(self.get_buffer(name)[: used * outputs] for name in Trees._fields))
        values = evaluate_trees(x, trees).to(self.baseline.dtype)
        return values.reshape(len(x), used, outputs).sum(dim=1) + self.baseline

    def learn_table(self, x: Floats, y: NDArray[Any], held_out: NDArray[np.bool_]) -> None:
        goal = self.task.goal
        self.used.zero_()
        if goal.classifies:
            self._learn_classes(x, y)
            return
        for output, column in enumerate(y.reshape(len(y), -1).T):
            if goal.numeric or len(np.unique(column)) == 2:
                self._keep(self._fitted(x, column), (output,))
            else:
                self.baseline[output] = 20.0 if column[0] else -20.0

    def _learn_classes(self, x: Floats, y: NDArray[Any]) -> None:
        found = np.unique(y)
        self.baseline.fill_(-20.0)  # of a class that no training row has
        self.baseline[torch.from_numpy(found)] = 0.0
        if len(found) > 1:
            # Of two classes the trees say how much more the second is likely.
            outputs = found[1:] if len(found) == 2 else found
            self._keep(self._fitted(x, y), tuple(outputs.tolist()))

    def _fitted(self, x: Floats, y: NDArray[Any]) -> Any:
        # Here, because scikit-learn costs a second that no plan needs.
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        numeric = self.task.goal.numeric
        kind = HistGradientBoostingRegressor if numeric else HistGradientBoostingClassifier
        # A split by classes needs two rows of each; a few rows are all needed.
        enough = len(x) >= 100 and (numeric or np.unique(y, return_counts=True)[1].min() > 1)
        with threadpool_limits(torch.get_num_threads()):
            return kind(
                max_iter=self.iterations,
                learning_rate=self.rate,
                max_leaf_nodes=self.leaves,
                early_stopping=enough,  # pyright: ignore[reportArgumentType] - its stub knows "auto" alone
                random_state=0,
            ).fit(x, y)

    def _keep(self, model: Any, outputs: tuple[int, ...]) -> None:
        """The trees of a fitted model as tensors. Private attributes of scikit-learn: a test compares predictions."""
        self.baseline[list(outputs)] = torch.as_tensor(np.ravel(model._baseline_prediction), dtype=self.baseline.dtype)
        self.used.fill_(max(int(self.used), len(model._predictors)))
        for iteration, predictors in enumerate(model._predictors):
            for output, predictor in zip(outputs, predictors, strict=True):
                tree = iteration * self.task.num_outputs + output
                for name, value in Trees.of_nodes(predictor.nodes)._asdict().items():
                    self.get_buffer(name)[tree, : len(value)] = value
