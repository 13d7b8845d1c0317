"""Linear models of the raw inputs: what a practitioner tries first."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from datamodules.options import Positive
from datamodules.spec import Task
from methods import Recipe, register
from methods.parts.search import Space
from methods.parts.table import Floats, TableMethod

STRENGTHS = tuple(10.0**k for k in range(-4, 3))  # of the penalty, relative to the number of rows
NEVER = -20.0  # logit of a class that no training row has


@register("linear")
class Linear(TableMethod):
    """Logistic or ridge regression on the columns of all modalities, each modality in one unit, without a network.

    Scikit-learn's: multinomial for classes, one regression for each label, ridge for values. A text is its word counts;
    longer images and sequences are averaged to 16 steps a side. Columns are centred, and those of a modality divided by
    one number, their root mean square deviation: what the dataset put into one unit stays comparable. In units of its
    own, a word of two rows or a pixel of the border would be as loud as the others. An absent modality is its training
    mean. The strength of the L2 penalty is the one of seven with the smallest loss on a held-out fifth of the training
    rows, unless it is given; then all rows are fitted. That fifth may share its sources (speakers, videos) with the
    other rows: a method is not told which rows do.

    Source: Cox, 1958; Hoerl and Kennard, 1970.

    Args:
        strength: Of the penalty, per row; None chooses it.
    """

    family = "baseline"
    search: ClassVar[Mapping[str, Space]] = {}  # solved for: no rate, and its one strength is chosen in every fit
    checked = ({}, {"strength": 0.1})

    def __init__(self, task: Task, recipe: Recipe, *, strength: Positive | None = None) -> None:
        super().__init__(task, recipe)
        self.strength = strength
        self.mean: Tensor
        self.scale: Tensor
        self.register_buffer("mean", torch.zeros(self.columns))
        self.register_buffer("scale", torch.ones(self.columns))
        # Parameters, so that they are counted; never learnt by gradient.
        self.weight = torch.nn.Parameter(torch.zeros(task.num_outputs, self.columns), requires_grad=False)
        self.bias = torch.nn.Parameter(torch.zeros(task.num_outputs), requires_grad=False)

    def answer_table(self, x: Tensor) -> Tensor:
        x = torch.where(x.isnan(), 0.0, (x - self.mean) / self.scale)
        return torch.nn.functional.linear(x, self.weight, self.bias)

    def learn_table(self, x: Floats, y: NDArray[Any], held_out: NDArray[np.bool_]) -> None:
        mean = np.nanmean(x, axis=0)
        spread = np.split(np.nanstd(x, axis=0), np.cumsum(self.widths)[:-1])
        scale = np.concatenate([np.full(len(own), _unit(own)) for own in spread])
        table = np.nan_to_num((x - mean) / scale, nan=0.0)
        strength = self.strength or self._choose(table, y, held_out)
        weight, bias = self._fit(table, y, strength)
        for kept, found in ((self.mean, mean), (self.scale, scale), (self.weight, weight), (self.bias, bias)):
            kept.copy_(torch.from_numpy(found))

    def _choose(self, x: Floats, y: NDArray[Any], held_out: NDArray[np.bool_]) -> float:
        target = torch.from_numpy(y[held_out])
        if not held_out.any() or held_out.all():  # a handful of rows
            return 1.0

        def loss(strength: float) -> float:
            weight, bias = self._fit(x[~held_out], y[~held_out], strength)
            return float(self.task.goal.loss(torch.from_numpy(x[held_out] @ weight.T + bias), target))

        return min(STRENGTHS, key=loss)

    def _fit(self, x: Floats, y: NDArray[Any], strength: float) -> tuple[Floats, Floats]:
        """Weights [O, F] and bias [O]."""
        from sklearn.linear_model import Ridge  # here, because scikit-learn costs a second that no plan needs

        goal, outputs = self.task.goal, self.task.num_outputs
        if goal.numeric:
            model = Ridge(alpha=strength * len(x)).fit(x, y.reshape(len(y), -1))
            return np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
        if goal.classifies:
            return _logistic(x, y, strength, range(outputs))
        pairs = [_logistic(x, label.astype(np.int64), strength, (0, 1)) for label in y.T]
        weights, biases = (np.stack([pair[k][1] - pair[k][0] for pair in pairs]) for k in (0, 1))
        return weights, biases


def _unit(spread: Floats) -> float:
    """Root mean square of the deviations of a modality's columns; those that are constant say nothing of it."""
    varied = spread[spread > 1e-12]
    return float(np.sqrt(np.square(varied).mean())) if len(varied) else 1.0


def _logistic(x: Floats, y: NDArray[Any], strength: float, classes: Sequence[int]) -> tuple[Floats, Floats]:
    """Weights and bias of each class; those that have no row are never chosen."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    weight, bias = np.zeros((len(classes), x.shape[1])), np.full(len(classes), NEVER)
    found = np.unique(y)
    if len(found) == 1:
        bias[found[0]] = 0.0
        return weight, bias
    # NumPy's threads are not torch's: several for a table this small wait for each other twenty times as long.
    with warnings.catch_warnings(), threadpool_limits(torch.get_num_threads()):
        # The strengths that are not chosen may be hard to solve for; the path to the optimum is short for the others.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(C=1 / (strength * len(x)), tol=1e-6, max_iter=500).fit(x, y)
    if len(found) == 2:
        weight[found[1]], bias[found] = model.coef_[0], (0.0, float(model.intercept_[0]))
    else:
        weight[found], bias[found] = model.coef_, model.intercept_
    return weight, bias
