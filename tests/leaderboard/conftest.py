"""Synthetic results folders with planted effects, for every test of the leaderboard."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leaderboard.record import Condition, Fitted, Record
from leaderboard.store import Store
from tests import records

CORRUPTIONS = ("gaussian", "dropout", "scale")


@dataclass(frozen=True)
class Planted:
    """A method of known quality: clean accuracy, loss per severity step, spread over seeds."""

    accuracy: float = 0.8
    fragility: float = 0.05
    spread: float = 0.004
    missing: float = 0.15
    family: str = "fusion"
    track: str = "plain"
    weighs: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    parameters: int = 50_000
    seconds: float = 10.0


def _number(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8], "little")


def conditions_of(modalities: Sequence[str]) -> Iterator[Condition]:
    """The conditions of a sweep."""
    yield Condition("clean")
    for modality in modalities:
        for corruption in CORRUPTIONS:
            for severity in range(1, 6):
                yield Condition("single", modality, corruption, severity)
    for severity in range(1, 6):
        yield Condition("joint", severity=severity)
    for modality in modalities:
        yield Condition("missing", absent=(modality,))
        for severity in range(1, 6):
            yield Condition("misaligned", modality, severity=severity)
    for rate in (0.1, 0.3, 0.5, 0.7):
        yield Condition("missing_rate", rate=rate)


def accuracy_under(planted: Planted, condition: Condition) -> float:
    """The accuracy a planted method has under a condition."""
    match condition.kind:
        case "clean":
            loss = 0.0
        case "single":
            loss = planted.fragility * condition.severity * (1 + 0.2 * CORRUPTIONS.index(str(condition.corruption)))
        case "joint":
            loss = 1.6 * planted.fragility * condition.severity
        case "missing":
            loss = planted.missing
        case "missing_rate":
            loss = planted.missing * float(condition.rate or 0)
        case _:
            loss = 0.03 * condition.severity
    return planted.accuracy - loss


def make_record(
    label: str,
    planted: Planted,
    dataset: str = "digits",
    seed: int = 0,
    rows: int = 400,
    modalities: Sequence[str] = ("image", "audio"),
    classes: int = 4,
    extra: Sequence[Condition] | None = None,
) -> tuple[Record, dict[str, np.ndarray]]:
    """A record and its predictions; methods meet the same hard rows, so that pairing them is worth something."""
    shared = np.random.default_rng(_number(dataset))
    # As many rows of each class, so that the trivial predictor has one in `classes` right.
    target = np.argsort(np.argsort(shared.integers(0, classes, rows), kind="stable"), kind="stable") * classes // rows
    difficulty = shared.random(rows)
    own = np.random.default_rng(_number(label, dataset, seed))
    luck = planted.spread * own.standard_normal()
    # Mostly the row's own difficulty, a little of the method's: correlated mistakes, uniform margins kept by ranking.
    margin = np.argsort(np.argsort(difficulty + 0.15 * own.standard_normal(rows))) / rows
    predictions: dict[str, np.ndarray] = {"target": target, "row": np.arange(rows)}
    conditions = []
    for blank in extra if extra is not None else conditions_of(modalities):
        right = margin < max(accuracy_under(planted, blank) + luck, 1 / classes)
        pred = np.where(right, target, (target + 1) % classes)
        predictions[f"pred:{blank.id}"] = pred
        weights = None
        if planted.weighs:
            tilt = 0.08 * blank.severity if blank.kind == "single" else 0.0
            low = 0.5 - tilt
            weights = (low, 1 - low) if blank.modality == modalities[0] else (1 - low, low)
        score = float(right.mean())
        conditions.append(
            blank.measured(
                score,
                weights=weights,
                metrics={"macro_f1": score},
                calibration={"nll": 1.5 - score, "brier": 1 - score, "ece": 0.05},
            )
        )
    record = records.make_record(
        method="m" + re.sub(r"\W", "_", label) if re.search(r"[^\w\[\]]", label) else label.split("[")[0],
        label=label,
        family=planted.family,
        track=planted.track,
        options=dict(planted.options),
        dataset=dataset,
        seed=seed,
        modalities=tuple(modalities),
        recipe={"width": 64, "epochs": 10, "lr": 0.001},
        trivial=float(np.bincount(target).max() / rows),
        bayes=0.95 if dataset.startswith("interactions") else None,
        rows=rows,
        conditions=tuple(conditions),
        cost={
            "parameters": planted.parameters,
            "train_seconds": planted.seconds + 0.1 * seed,
            "peak_memory_mb": 300.0,
        },
        # Validation agrees with what was planted, not with the luck of the test rows.
        training=(Fitted("train", planted.seconds, 10, 1000, 7, planted.accuracy, "val/accuracy", cap=10),),
        provenance={"finished": "2025-11-16T02:00:00+00:00", "python": "3.11", "torch": "2.13"},
    )
    return record, predictions


def write_results(
    folder: Path,
    methods: Mapping[str, Planted],
    datasets: Sequence[str] = ("digits", "interactions_xor", "shapes"),
    seeds: int = 3,
    rows: int = 400,
    modalities: Sequence[str] = ("image", "audio"),
) -> Store:
    """A results folder with every planted method on every dataset."""
    store = Store(folder)
    store.prepare()
    for label, planted in methods.items():
        for dataset in datasets:
            for seed in range(seeds):
                store.write(*make_record(label, planted, dataset, seed, rows, modalities))
    return store


STANDARD: dict[str, Planted] = {
    "unimodal[image]": Planted(
        0.70, 0.06, family="baseline", parameters=20_000, seconds=4, options={"modality": "image"}
    ),
    "unimodal[audio]": Planted(
        0.62, 0.06, family="baseline", parameters=20_000, seconds=4, options={"modality": "audio"}
    ),
    "concat": Planted(0.82, 0.06, family="baseline", parameters=40_000),
    "additive": Planted(0.80, 0.05, parameters=30_000),
    "gated": Planted(0.90, 0.02, weighs=True, parameters=60_000, options={"mode": "soft"}),
    "gated_twin": Planted(0.90, 0.02, weighs=True, parameters=61_000),
    "tensor": Planted(0.86, 0.09, parameters=400_000, seconds=30),
    "augmented": Planted(0.84, 0.01, track="augmented", family="wrapper", seconds=25),
}


@pytest.fixture(scope="session", name="written")
def written_fixture() -> dict[str, Path]:
    """Folders already written, by what is in them: writing costs more than copying."""
    return {}


@pytest.fixture(name="build")
def build_fixture(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, written: dict[str, Path]
) -> Callable[..., Store]:
    """`build(methods, ...)` gives the test a results folder of its own."""

    def build(methods: Mapping[str, Planted] = STANDARD, name: str = "results", **settings: Any) -> Store:
        key = repr((sorted(methods.items()), sorted(settings.items())))
        if key not in written:
            written[key] = write_results(tmp_path_factory.mktemp("written") / "results", methods, **settings).folder
        return Store(shutil.copytree(written[key], tmp_path / name))

    return build
