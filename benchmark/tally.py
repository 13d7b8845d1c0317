"""What is remembered of the rows of one condition, and what is measured of them in the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from datamodules.base import SplitName
from datamodules.spec import Batch
from leaderboard.record import finite
from methods.base import Method, Output

BINS = 15  # equal-mass bins of the expected calibration error


class NotFinite(FloatingPointError):
    """An output that is no number: it must not be scored, for `argmax` would call it the first class."""


class Tally:
    """What has to be remembered of a condition's rows.

    Args:
        where: The condition and what fills its absent encodings, for whoever reads an error.
    """

    def __init__(self, method: Method, where: str, split: SplitName, keep_probabilities: bool = False) -> None:
        self.method = method
        self.where = where
        self.split = split
        self.keep_probabilities = keep_probabilities
        self.predicted: list[Tensor] = []
        self.kept: Tensor | None = None
        self.probabilities: list[Tensor] = []
        self.confidence: list[Tensor] = []
        self.correct: list[Tensor] = []
        self.uncertainty: list[Tensor] = []
        self.sums: dict[str, Tensor] = {}
        self.rows = 0

    def add(self, out: Output, present: Tensor, batch: Batch) -> None:
        """Take in the output of some rows.

        Raises:
            NotFinite: With the condition and the row, if an output is not finite.
        """
        task, method, target = self.method.task, self.method, batch.target
        predicted, doubt = task.goal.prediction(out), method.uncertainty(out, present)
        self._check("output", out.logits, batch.row)
        self._check("prediction", predicted, batch.row)
        self.rows += len(target)
        self.predicted.append(predicted.cpu())
        if doubt is not None:
            self._check("uncertainty", doubt, batch.row)
            self.uncertainty.append(doubt.float().cpu())
        if task.goal.classifies:
            log_p = out.logits.float().log_softmax(dim=-1)
            p = log_p.exp()
            confidence, guess = p.max(dim=-1)
            self.confidence.append(confidence.cpu())
            self.correct.append((guess == target).cpu())
            truth = target.long().unsqueeze(1)
            self._sum("calibration.nll", -log_p.gather(1, truth).sum())
            # |p - onehot|^2 = |p|^2 - 2 p_y + 1
            self._sum("calibration.brier", (p.square().sum(dim=1) - 2 * p.gather(1, truth)[:, 0] + 1).sum())
            if self.keep_probabilities:
                self.probabilities.append(p.cpu())
        weights = method.weights(out.z, present)
        if weights is not None:
            self._sum("weights", weights.float().sum(dim=0))
        for name, value in method.diagnose(out, present).items():
            value = value.float()
            self._sum(f"diagnostics.{name}", value.mean() * len(target))

    def keep(self, target: Tensor, gallery: Tensor | None) -> Tensor:
        """What is kept of each row: the prediction, or the rank of the first right answer, which is found once."""
        if self.kept is None:
            self.kept = self.method.task.goal.kept(torch.cat(self.predicted), target, gallery)
            self.predicted = []
        return self.kept

    def score(self, target: Tensor, gallery: Tensor | None) -> float:
        """The task's own score of the rows."""
        task = self.method.task
        return task.goal.scores(self.keep(target, gallery), target)[task.metric]

    def measure(self, target: Tensor, slices: Mapping[str, Tensor], gallery: Tensor | None) -> dict[str, Any]:
        """The fields of the measured condition; a named slice of the rows has the task's own score beside it."""
        task, kept = self.method.task, self.keep(target, gallery)
        metrics = task.goal.scores(kept, target)
        for name, rows in slices.items():
            if rows.any():
                metrics[f"{task.metric}/{name}"] = task.goal.scores(kept[rows], target[rows])[task.metric]
        means: dict[str, Any] = {name: (total / self.rows).tolist() for name, total in self.sums.items()}
        calibration = {n.removeprefix("calibration."): v for n, v in means.items() if n.startswith("calibration.")}
        diagnostics = {n.removeprefix("diagnostics."): v for n, v in means.items() if n.startswith("diagnostics.")}
        if self.confidence:
            confidence, correct = torch.cat(self.confidence), torch.cat(self.correct)
            calibration["ece"] = calibration_error(confidence, correct)
            calibration["error_auroc"] = error_auroc(-confidence, correct)
            if self.uncertainty:
                diagnostics["error_auroc"] = error_auroc(torch.cat(self.uncertainty), correct)
        return {
            "score": metrics[task.metric],
            "metrics": finite({name: value for name, value in metrics.items() if name != task.metric}),
            "calibration": finite(calibration),
            "weights": tuple(means["weights"]) if "weights" in means else None,
            "diagnostics": finite(diagnostics),
        }

    def arrays(self, name: str, target: Tensor, gallery: Tensor | None) -> dict[str, np.ndarray]:
        """What the store keeps of each row."""
        found = {f"pred:{name}": _compact(self.keep(target, gallery).numpy())}
        if self.probabilities:
            found[f"prob:{name}"] = torch.cat(self.probabilities).numpy()
        return found

    def _check(self, what: str, values: Tensor, row: Tensor) -> None:
        if not values.is_floating_point() or bool(values.isfinite().all()):
            return
        first = int((~values.reshape(len(row), -1).isfinite().all(dim=1)).int().argmax())
        raise NotFinite(
            f"{type(self.method).__name__}: the {what} under condition {self.where} is not finite at row "
            f"{int(row[first])} of the {self.split} split: {values[first].flatten()[:4].tolist()}"
        )

    def _sum(self, name: str, value: Tensor) -> None:
        self.sums[name] = self.sums[name] + value if name in self.sums else value


def calibration_error(confidence: Tensor, correct: Tensor) -> float:
    """Expected calibration error over bins of equal mass, which no crowd of certain predictions can hide in."""
    order = confidence.argsort()
    bins = zip(confidence[order].tensor_split(BINS), correct[order].float().tensor_split(BINS), strict=True)
    gaps = [abs(float(c.mean() - a.mean())) * len(c) for c, a in bins if len(c)]
    return sum(gaps) / len(confidence)


def error_auroc(uncertainty: Tensor, correct: Tensor) -> float:
    """The chance that a wrong row is more uncertain than a right one, ties counted half; NaN without rows of both."""
    wrong = ~correct.numpy()
    errors, hits = int(wrong.sum()), int((~wrong).sum())
    if not errors or not hits:
        return float("nan")
    ranks = rankdata(uncertainty.numpy())
    return float((ranks[wrong].sum() - errors * (errors + 1) / 2) / (errors * hits))


def _compact(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "i":
        return values.astype(np.min_scalar_type(int(abs(values).max(initial=0)) * -1 - 1))
    return values
