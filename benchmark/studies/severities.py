"""Calibrate the severities of a dataset: severity s takes s tenths of the score of `unimodal`, of each modality.

`unimodal` is trained on four fifths of the training split (groups of rows stay whole), and its score on the last fifth,
chance-normalised, is measured along the parameter of each corruption. Where a modality alone is at chance, `concat` is
trained, the modality is corrupted beside clean others, and what counts is the part of the score that it loses with the
modality of other rows. Validation rows only stop the training; test rows are not touched. Sound is corrupted as a
recording where the dataset has it. A corruption that cannot do it, because its strongest sensible value takes less than
half or because the score falls off a cliff between two values, is left out with its reason. Writes
`OUT/<dataset>.toml`; those that all results are made with are in `datamodules/corruptions/calibrated`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from benchmark.build import build_dataset
from benchmark.seeds import seed_all
from benchmark.studies._output import add_output
from benchmark.trainer import fit
from datamodules.base import DataModule, Gathered, Split, SplitName
from datamodules.bases.recorded import SOUNDS, Recorded
from datamodules.corruptions import apply, corruption_key
from datamodules.corruptions.registry import LEVELS
from datamodules.spec import Batch, Modality, Task
from leaderboard.robustness import normalise
from methods.base import Method, Recipe
from methods.concat import Concat
from methods.metrics import higher_is_better
from methods.unimodal import Unimodal

RECIPE = Recipe(width=64, epochs=30, batch_size=64, lr=3e-3, patience=8)
POINTS = 10  # along a parameter, twice: over its whole range, then where the score falls
MOST = 3000  # rows of a split
CHANCE = 0.15  # a chance-normalised score below which there is too little to lose
SLACK = 0.15  # of the share kept, between what a severity should leave and what it does

# The weakest and the strongest sensible parameter, and whether equal steps between them are ratios.
LIMITS: dict[str, dict[str, tuple[float, float, bool]]] = {
    "image": {
        "gaussian_noise": (0.02, 1.5, True),
        "shot_noise": (200, 0.5, True),
        "impulse_noise": (0.01, 0.8, True),
        "gaussian_blur": (0.01, 0.25, True),
        "motion_blur": (0.03, 0.7, True),
        "contrast": (0.9, 0.05, True),
        "brightness": (0.05, 0.7, False),
        "occlusion": (0.1, 0.8, False),
        "jpeg": (60, 1, True),
        "pixelate": (0.9, 0.08, True),
    },
    "sequence": {
        "frame_noise": (30, -15, False),
        "time_mask": (0.05, 0.8, False),
        "frame_drop": (0.05, 0.9, False),
        "time_shift": (0.03, 0.35, False),
        "frame_gain": (1, 24, False),
    },
    "vector": {
        "gaussian_noise": (0.1, 5, True),
        "feature_dropout": (0.05, 0.9, False),
        "quantize": (0.2, 5, True),
        "scale_drift": (0.1, 5, True),
    },
    "sound": {
        "sound_noise": (80, -10, False),
        "sound_mask": (0.05, 0.95, False),
        "sound_gain": (3, 75, False),
    },
    "text": {
        "token_drop": (0.02, 0.95, False),
        "token_swap": (0.05, 1, False),
        "typo": (0.02, 0.95, False),
        "token_replace": (0.02, 0.95, False),
    },
}


class HeldOut(DataModule):
    """A dataset whose test split is a fifth of another's training split."""

    def __init__(self, source: DataModule) -> None:
        super().__init__()
        self.whole = source
        self.held = torch.empty(0, dtype=torch.int64)  # rows of the training split, once loaded

    def describe(self) -> Task:
        return self.whole.task

    def load(self) -> dict[SplitName, Split]:
        train = self.whole.splits["train"]
        group = torch.arange(len(train.target)) if train.group is None else train.group
        number = group.unique(return_inverse=True)[1]
        # Every fifth source, or the last of fewer.
        held = number % 5 == min(4, int(number.max()))
        self.held = held.nonzero().squeeze(1)[:MOST]
        rows: dict[SplitName, tuple[Split, torch.Tensor]] = {
            "train": (train, (~held).nonzero().squeeze(1)),
            "val": (self.whole.splits["val"], torch.arange(len(self.whole.splits["val"].target))),
            "test": (train, self.held),
        }
        return {name: _rows(split, index[:MOST]) for name, (split, index) in rows.items()}


@dataclass(frozen=True)
class Calibration:
    """What was found for a corruption.

    Attributes:
        severities: Empty if it is left out.
        kept: Share of the clean score left at each of them.
        why: The reason why it is left out.
    """

    name: str
    severities: tuple[float, ...] = ()
    kept: tuple[float, ...] = ()
    why: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--datasets", nargs="+", default=["digit_halves"], metavar="NAME")
    parser.add_argument("--seeds", type=int, default=2, help="models per modality, whose scores are averaged")
    add_output(parser, "severities")


def run(arguments: argparse.Namespace) -> int:
    arguments.out.mkdir(parents=True, exist_ok=True)
    for dataset in arguments.datasets:
        command = f"polymodal study severities --datasets {dataset} --seeds {arguments.seeds} --out {arguments.out}"
        path = arguments.out / f"{dataset}.toml"
        path.write_text("\n".join([f"# Made by: {command}", *calibrate(dataset, arguments.seeds)]) + "\n")
        print(path)
    return 0


def calibrate(dataset: str, seeds: int) -> Iterator[str]:
    """The lines of a dataset's file: for each modality what it is, its severities, and what is left out and why."""
    datamodule = HeldOut(build_dataset(dataset, {}))
    if datamodule.task.goal.ranked:
        raise ValueError(f"{dataset}: severities are calibrated by a unimodal score, and a ranking of pairs has none")
    yield "# Severity s leaves 1 - s/10 of the chance-normalised score on held-out training rows; what it left there"
    yield "# is behind each line."
    for modality in datamodule.task.modalities:
        reference = Reference(datamodule, modality, seeds)
        if (lost := reference.clean - reference.floor) < CHANCE:
            # A model that learnt nothing tells nothing of a corruption: the values of the kind stay.
            yield f"\n# {modality.name} is not calibrated: {reference.told} can lose {lost:.2f} of its score at most"
            continue
        # Features of sound too, where the sound is at hand: training can be made noisy only by them.
        media = [modality.kind, "sound"] if reference.recorded else [modality.kind]
        found = [find(reference, name, *limits) for kind in media for name, limits in LIMITS[kind].items()]
        without = f", {reference.floor:.2f} with the modality of other rows" if reference.told == "concat" else ""
        yield f"\n[{modality.name}] # clean score of {reference.told}: {reference.clean:.2f}{without}"
        yield f"kind = {json.dumps(modality.kind)}\nshape = {list(modality.shape)}"
        if reference.recorded:
            yield 'medium = "sound"'
        yield f"\n[{modality.name}.severities]"
        for c in found:
            if c.severities:
                yield f"{c.name} = {list(c.severities)}  # {' '.join(f'{k:.2f}' for k in c.kept)}"
        yield f"\n[{modality.name}.left_out]"
        for c in found:
            if c.why:
                yield f"{c.name} = {json.dumps(c.why)}"


def find(reference: Reference, name: str, weak: float, strong: float, ratio: bool) -> Calibration:
    """Five severities of a corruption, or why there are none."""
    space = np.geomspace if ratio else np.linspace
    curve = [(float(p), reference.kept(name, float(p))) for p in space(weak, strong, POINTS)]
    if curve[-1][1] > 1 - LEVELS / 10 + SLACK / 2:
        return Calibration(name, why=f"{curve[-1][1]:.2f} of the score is left at its strongest sensible value")
    first = max((i for i, (_, k) in enumerate(curve) if min(k for _, k in curve[: i + 1]) > 0.95), default=0)
    last = next((i for i, (_, k) in enumerate(curve) if k < 0.45), len(curve) - 1)
    between = space(curve[first][0], curve[last][0], POINTS + 2)[1:-1] if last > first else []
    curve += [(float(p), reference.kept(name, float(p))) for p in between]
    curve.sort(reverse=strong < weak)
    severities = choose([p for p, _ in curve], [k for _, k in curve], ratio)
    kept = tuple(reference.kept(name, value) for value in severities)
    if any(abs(k - (1 - s / 10)) > SLACK for s, k in enumerate(kept, start=1)) or len(set(severities)) < LEVELS:
        shares = ", ".join(f"{k:.2f}" for k in kept)
        return Calibration(name, why=f"the score falls off a cliff: severities 1 to 5 would leave {shares}")
    return Calibration(name, severities, kept)


def choose(parameters: list[float], kept: list[float], ratio: bool) -> tuple[float, ...]:
    """Parameters that leave 0.9, 0.8, ... 0.5 of the clean score.

    Args:
        parameters: From the weakest to the strongest.
        kept: Share of the clean score left at each.
        ratio: Whether equal steps are ratios.
    """
    scale = np.log(parameters) if ratio else np.array(parameters)
    # Before the weakest parameter nothing is lost: the curve begins one step before it.
    scale = np.array([2 * scale[0] - scale[1], *scale])
    left = np.minimum.accumulate([1.0, *kept])
    # np.interp wants growing abscissae; a slope too small to matter breaks the ties of a plateau.
    lost = 1 - left + 1e-9 * np.arange(len(left))
    steps = np.interp([s / 10 for s in range(1, LEVELS + 1)], lost, scale)
    return tuple(_short(float(v)) for v in (np.exp(steps) if ratio else steps))


def _short(value: float) -> float:
    """Two significant digits: the table is read by people."""
    return value if value == 0 else round(value, 1 - math.floor(math.log10(abs(value))))


class Reference:
    """A modality of a dataset, and models whose score its corruption takes down.

    Attributes:
        clean: Chance-normalised score, mean over seeds.
        floor: What is left of it when the modality says nothing.
        told: What was trained.
    """

    def __init__(self, datamodule: HeldOut, modality: Modality, seeds: int) -> None:
        self.datamodule, self.modality, self.seeds = datamodule, modality, seeds
        self.task = datamodule.task
        self.told = "unimodal"
        self.methods = self._train()
        self.clean, self.floor = self.score(), 0.0
        if self.clean < CHANCE:
            self.told = "concat"
            self.methods = self._train()
            self.clean, self.floor = self.score(), self.score("misaligned", 1.0)

    def _train(self) -> list[Method]:
        trained: list[Method] = []
        for seed in range(self.seeds):
            seed_all(self.task.name, seed, "init")
            method: Method = (
                Concat(self.task, RECIPE)
                if self.told == "concat"
                else Unimodal(self.task, RECIPE, modality=self.modality.name)
            )
            fit(method, self.datamodule, seed=seed)
            trained.append(method.train(False))
        return trained

    def kept(self, corruption: str, parameter: float) -> float:
        """The share of what the modality gives to the clean score that is left."""
        return (self.score(corruption, parameter) - self.floor) / (self.clean - self.floor)

    @torch.inference_mode()
    def score(self, corruption: str = "", parameter: float = 0.0) -> float:
        """Chance-normalised score on the held-out rows, mean over seeds."""
        splits = self.datamodule.splits
        predicted: list[list[torch.Tensor]] = [[] for _ in self.methods]
        for batch in self.datamodule.ordered("test"):
            inputs = dict(batch.inputs)
            if corruption:
                inputs[self.modality.name] = self._corrupted(batch, corruption, parameter)
            for method, own in zip(self.methods, predicted, strict=True):
                own.append(self.task.goal.prediction(method(inputs, batch.present)))
        trivial = self.task.goal.trivial(splits["train"].target, splits["test"].target)
        scores = [self.task.goal.evaluate(torch.cat(own), splits["test"].target)[self.task.metric] for own in predicted]
        return float(np.mean([normalise(s, trivial, higher_is_better(self.task.metric)) for s in scores]))

    @property
    def recorded(self) -> Recorded | None:
        """The dataset, if it has the recordings that the modality is made of."""
        whole = self.datamodule.whole
        return whole if isinstance(whole, Recorded) and whole.sound == self.modality.name else None

    def _corrupted(self, batch: Batch, name: str, parameter: float) -> torch.Tensor:
        modality = self.modality
        if name in SOUNDS:
            assert self.recorded is not None
            return self.recorded.heard("train", name, parameter, self.datamodule.held[batch.row])
        key = corruption_key(self.task.name, self.task.version, "train", modality.name, name)
        return apply(
            batch.inputs[modality.name],
            batch.row,
            name=name,
            parameter=parameter,
            key=key,
            modality=modality,
            split=self.datamodule.splits["test"].inputs[modality.name],  # pyright: ignore[reportArgumentType] - indexed alike
        )


def _rows(split: Split, rows: torch.Tensor) -> Split:
    inputs: dict[str, torch.Tensor | Gathered] = {
        name: x.select(rows) if isinstance(x, Gathered) else x[rows] for name, x in split.inputs.items()
    }
    present, group = (None if part is None else part[rows] for part in (split.present, split.group))
    return Split(inputs, split.target[rows], present, group)
