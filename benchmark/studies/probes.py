"""What a linear model reads out of a dataset's inputs: each modality alone and all together, before any network.

    polymodal study probes utd_mhad mosi

Logistic regression of scikit-learn on the inputs as every method gets them; a text is its word counts. It is fitted to
the training rows; the strength of its penalty is the one of nine with the smallest loss on the validation rows, and
only that model is scored on test rows. One penalty serves all columns, so that a modality which says nothing harms the
probe of all. A method that stays below the best of the probes has learnt badly.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from benchmark.arguments import add_data, add_json, use_data
from benchmark.chosen_dataset import add_dataset_options, chosen_dataset
from benchmark.errors import UsageError
from benchmark.studies._output import add_output, write_numbers
from datamodules.base import DataModule, SplitName
from methods.parts.raw_views import flatten
from methods.stage import Output

STRENGTHS = tuple(10.0**k for k in range(-4, 5))  # inverse, of the penalty: scikit-learn's C
LEAST = 1e-20  # a probability that is called none
STEPS = 300  # of the solver: those that are chosen need fewer

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Probe:
    """A linear model of some modalities.

    Attributes:
        strength: The C that was chosen.
        validation: Score of the validation rows, in the task's metric, as is `test`.
    """

    dataset: str
    modalities: tuple[str, ...]
    strength: float
    validation: float
    test: float


def probe(data: DataModule, dataset: str, names: Sequence[str]) -> Probe:
    """The linear model of the given modalities whose penalty validation rows choose."""
    x = {split: _table(data, split, names) for split in ("train", "val")}
    y = {split: rows.target for split, rows in data.splits.items()}
    models = {strength: _fitted(x["train"], y["train"].numpy(), strength) for strength in STRENGTHS}
    goal, outputs = data.task.goal, data.task.num_outputs

    def loss(strength: float) -> float:
        return float(goal.loss(_logits(models[strength], x["val"], outputs), y["val"]))

    chosen = min(STRENGTHS, key=loss)

    def score(table: Floats, split: SplitName) -> float:
        logits = _logits(models[chosen], table, outputs)
        predicted = goal.prediction(Output({}, logits, logits, logits))
        return goal.evaluate(predicted, y[split])[data.task.metric]

    test = score(_table(data, "test", names), "test")
    return Probe(dataset, tuple(names), chosen, score(x["val"], "val"), test)


def _table(data: DataModule, split: SplitName, names: Sequence[str]) -> Floats:
    """`[N, F]`: the modalities side by side."""
    modalities = [m for m in data.task.modalities if m.name in names]
    rows = [
        torch.cat([flatten(m, batch.inputs[m.name]) for m in modalities], dim=1).double()
        for batch in data.ordered(split)
    ]
    return torch.cat(rows).numpy()


def _fitted(x: Floats, y: NDArray[np.int64], strength: float) -> LogisticRegression:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of weak penalties, which validation rows do not choose
        return LogisticRegression(C=strength, max_iter=STEPS).fit(x, y)


def _logits(model: LogisticRegression, x: Floats, outputs: int) -> torch.Tensor:
    """Log-probabilities `[N, classes]`, whatever classes the training rows have."""
    shares = np.zeros((len(x), outputs))
    shares[:, model.classes_] = model.predict_proba(x)
    return torch.from_numpy(np.log(np.maximum(shares, LEAST)))


# ---- command ------------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `polymodal study probes`."""
    parser.add_argument("datasets", nargs="+", metavar="DATASET", help="with one class per row")
    add_dataset_options(parser)
    add_data(parser)
    add_output(parser, "probes")
    add_json(parser, "print the numbers instead of the table")


def run(args: argparse.Namespace) -> int:
    """Print the table; write the numbers."""
    use_data(args)
    chosen = {name: chosen_dataset(name, args.matrix, args.settings) for name in args.datasets}
    for name, data in chosen.items():
        if not data.task.goal.classifies:
            raise UsageError(f"{name} is a {data.task.target} task; a probe needs one class per row")
    probes = [one for name, data in chosen.items() for one in _probes(data, name)]
    text = write_numbers(args.out / "probes.json", probes)
    print(text if args.json else "\n".join([*_lines(probes), "", f"Numbers are in {args.out}"]))
    return 0


def _probes(data: DataModule, dataset: str) -> list[Probe]:
    names = data.task.names
    return [probe(data, dataset + data.suffix, some) for some in (*((name,) for name in names), names)]


def _lines(probes: Sequence[Probe]) -> list[str]:
    lines = [f"{'dataset':24}{'modalities':32}{'C':>8}{'validation':>12}{'test':>8}"]
    for one in probes:
        shown = " + ".join(one.modalities)
        lines.append(f"{one.dataset:24}{shown:32}{one.strength:8g}{one.validation:12.3f}{one.test:8.3f}")
    return lines
