"""Calibrate `datamodules/corruptions/severities.toml`: severity s takes s tenths of the score of `unimodal`.

For each kind of modality there are references: `unimodal` is trained on four fifths of a training split (groups of rows
stay whole), and its score on the last fifth, chance-normalised, is measured along each parameter. Validation rows
only stop the training; test rows are not touched. Where even the strongest sensible value takes less than half, the
severities are equal steps up to that value and the corruption is listed as capped.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from benchmark.build import build_dataset
from benchmark.seeds import seed_all
from benchmark.trainer import fit
from datamodules.base import DataModule, Gathered, Split, SplitName
from datamodules.corruptions import apply, corruption_key
from datamodules.corruptions.registry import LEVELS
from datamodules.spec import Batch, Modality, Task
from leaderboard.robustness import normalise
from methods.base import Method, Recipe
from methods.metrics import higher_is_better
from methods.unimodal import Unimodal

REFERENCES: dict[str, tuple[tuple[str, str], ...]] = {  # kind -> dataset and modality; what is lost is their mean
    "image": (("av_digits", "image"), ("digit_halves", "upper")),  # 28 x 28 and 4 x 8 pixels
    "sequence": (("av_digits", "audio"),),
    "vector": (("multi_digits", "kar"),),
    "text": (("easy_vqa", "question"),),
}
RECIPE = Recipe(width=64, epochs=30, batch_size=64, lr=3e-3, patience=8)
POINTS = 14
MOST = 6000  # rows of a split

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
        "snr_noise": (30, -15, False),
        "time_mask": (0.05, 0.8, False),
        "frame_drop": (0.05, 0.9, False),
        "time_shift": (0.03, 0.35, False),
        "gain": (1, 24, False),
    },
    "vector": {
        "gaussian_noise": (0.1, 5, True),
        "feature_dropout": (0.05, 0.9, False),
        "quantize": (0.2, 5, True),
        "scale_drift": (0.1, 5, True),
    },
    "text": {
        "token_drop": (0.02, 0.8, False),
        "token_swap": (0.05, 1, False),
        "typo": (0.02, 0.8, False),
        "token_replace": (0.02, 0.8, False),
    },
}


class HeldOut(DataModule):
    """A dataset whose test split is a fifth of another's training split."""

    def __init__(self, source: DataModule) -> None:
        super().__init__()
        self.whole = source

    def describe(self) -> Task:
        return self.whole.task

    def load(self) -> dict[SplitName, Split]:
        train = self.whole.splits["train"]
        group = torch.arange(len(train.target)) if train.group is None else train.group
        held = group % 5 == 4
        rows: dict[SplitName, tuple[Split, torch.Tensor]] = {
            "train": (train, (~held).nonzero().squeeze(1)),
            "val": (self.whole.splits["val"], torch.arange(len(self.whole.splits["val"].target))),
            "test": (train, held.nonzero().squeeze(1)),
        }
        return {name: _rows(split, index[:MOST]) for name, (split, index) in rows.items()}


@dataclass(frozen=True)
class Calibration:
    """What was measured of a corruption: the share of the score kept along its parameter, and the severities it gives.

    Attributes:
        clean: Chance-normalised score on each reference.
        kept: Share of it that is left at each parameter, one line per reference.
    """

    name: str
    clean: tuple[float, ...]
    parameters: tuple[float, ...]
    kept: tuple[tuple[float, ...], ...]
    severities: tuple[float, ...]
    capped: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kinds", nargs="+", choices=sorted(REFERENCES), default=list(REFERENCES))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/studies/severities"))


def run(arguments: argparse.Namespace) -> int:
    arguments.out.mkdir(parents=True, exist_ok=True)
    for kind in arguments.kinds:
        calibrations = calibrate(kind, arguments.seeds)
        (arguments.out / f"{kind}.json").write_text(json.dumps([asdict(c) for c in calibrations], indent=1))
        clean = ", ".join(f"{d} {m} {c:.3f}" for (d, m), c in zip(REFERENCES[kind], calibrations[0].clean, strict=True))
        print(f"[{kind}] # clean: {clean}")
        for c in calibrations:
            print(f"{c.name} = {list(c.severities)}" + ("  # capped" if c.capped else ""))
    return 0


def calibrate(kind: str, seeds: int) -> list[Calibration]:
    """Severities of every corruption of a kind, from the mean over references and seeds."""
    references = [_Reference(dataset, name, seeds) for dataset, name in REFERENCES[kind]]
    calibrations = []
    for corruption, (weak, strong, ratio) in LIMITS[kind].items():
        along = (np.geomspace if ratio else np.linspace)(weak, strong, POINTS)
        kept = [[r.score(corruption, float(p)) / r.clean for p in along] for r in references]
        severities, capped = choose(along.tolist(), np.mean(kept, axis=0).tolist(), ratio)
        clean, parameters = tuple(r.clean for r in references), tuple(along.tolist())
        calibrations.append(Calibration(corruption, clean, parameters, tuple(map(tuple, kept)), severities, capped))
    return calibrations


def choose(parameters: list[float], kept: list[float], ratio: bool) -> tuple[tuple[float, ...], bool]:
    """Parameters that leave 0.9, 0.8, ... 0.5 of the clean score; equal steps to the last where that is not reached.

    Args:
        parameters: From the weakest to the strongest.
        kept: Share of the clean score left at each.
        ratio: Whether equal steps are ratios.

    Returns:
        Five severities, and whether they are capped.
    """
    scale = np.log(parameters) if ratio else np.array(parameters)
    # Before the weakest parameter nothing is lost: the curve begins one step before it.
    scale = np.array([2 * scale[0] - scale[1], *scale])
    left = np.minimum.accumulate([1.0, *kept])
    capped = bool(left[-1] > 1 - LEVELS / 10)
    if capped:
        steps = np.linspace(scale[0], scale[-1], LEVELS + 1)[1:]
    else:
        # np.interp wants growing abscissae; a slope too small to matter breaks the ties of a plateau.
        lost = 1 - left + 1e-9 * np.arange(len(left))
        steps = np.interp([s / 10 for s in range(1, LEVELS + 1)], lost, scale)
    values = np.exp(steps) if ratio else steps
    return tuple(_short(float(v)) for v in values), capped


def _short(value: float) -> float:
    """Two significant digits: the table is read by people."""
    return value if value == 0 else round(value, 1 - math.floor(math.log10(abs(value))))


class _Reference:
    """A dataset, one of its modalities, and `unimodal` trained on it with some seeds."""

    def __init__(self, dataset: str, modality: str, seeds: int) -> None:
        self.datamodule = HeldOut(build_dataset(dataset, {}))
        self.task = self.datamodule.task
        self.modality = next(m for m in self.task.modalities if m.name == modality)
        self.methods = [self._train(seed) for seed in range(seeds)]
        self.clean = self.score()

    def _train(self, seed: int) -> Method:
        seed_all(self.task.name, seed, "init")
        method = Unimodal(self.task, RECIPE, modality=self.modality.name)
        fit(method, self.datamodule, seed=seed)
        return method.train(False)

    @torch.inference_mode()
    def score(self, corruption: str = "", parameter: float = 0.0) -> float:
        """Chance-normalised score on the held-out rows, mean over seeds."""
        splits = self.datamodule.splits
        predicted: list[list[torch.Tensor]] = [[] for _ in self.methods]
        for batch in self.datamodule.ordered("test"):
            inputs = dict(batch.inputs)
            if corruption:
                inputs[self.modality.name] = _corrupted(batch, self.task, self.modality, corruption, parameter)
            for method, own in zip(self.methods, predicted, strict=True):
                own.append(self.task.goal.prediction(method(inputs, batch.present)))
        trivial = self.task.goal.trivial(splits["train"].target, splits["test"].target)
        scores = [self.task.goal.evaluate(torch.cat(own), splits["test"].target)[self.task.metric] for own in predicted]
        return float(np.mean([normalise(s, trivial, higher_is_better(self.task.metric)) for s in scores]))


def _corrupted(batch: Batch, task: Task, modality: Modality, name: str, parameter: float) -> torch.Tensor:
    key = corruption_key(task.name, task.version, "train", modality.name, name)
    return apply(batch.inputs[modality.name], batch.row, name=name, parameter=parameter, key=key, modality=modality)


def _rows(split: Split, rows: torch.Tensor) -> Split:
    inputs: dict[str, torch.Tensor | Gathered] = {
        name: x.select(rows) if isinstance(x, Gathered) else x[rows] for name, x in split.inputs.items()
    }
    present, group = (None if part is None else part[rows] for part in (split.present, split.group))
    return Split(inputs, split.target[rows], present, group)
