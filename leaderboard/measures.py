"""The columns of a board: one number per record for each measure, and how it is written."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from leaderboard import robustness, stats
from leaderboard.record import Record
from leaderboard.robustness import Baselines, Curve, curves


@dataclass(frozen=True)
class Measure:
    """A column.

    Attributes:
        better: Direction, `""` where there is none.
        style: How the number is written: a score, a signed difference, or a quantity with a unit.
    """

    name: str
    title: str
    help: str
    better: Literal["higher", "lower", ""] = "higher"
    style: Literal["score", "signed", "count", "seconds", "quantity"] = "score"


_COLUMNS = (
    Measure("clean", "Clean", "the task's own metric on the untouched test split"),
    Measure(
        "gain",
        "Gain",
        "clean score minus that of the unimodal baseline that is best on validation; negative: fusing loses to it",
        style="signed",
    ),
    Measure(
        "drop",
        "Drop",
        "fall of the chance-normalised score from clean, mean over severities, half under single and half under joint "
        "corruption",
        better="lower",
    ),
    Measure("drop_single", "Drop single", "the fall with one modality corrupted at a time", better="lower"),
    Measure("drop_joint", "Drop joint", "the fall with every modality corrupted at once", better="lower"),
    Measure("area", "Area", "area under the severity curves, chance-normalised, mean over modalities and corruptions"),
    Measure("worst", "Worst modality", "the area of the modality whose corruption hurts most"),
    Measure("joint", "Joint area", "area under the severity curve with every modality corrupted at once"),
    Measure("misaligned", "Misaligned", "area under the severity curve as the pairing of modalities is corrupted"),
    Measure(
        "corrupted_gain",
        "Broken gain",
        "score with one modality corrupted minus the best unimodal baseline on the others; "
        "negative: fusing is worse than ignoring the broken modality",
        style="signed",
    ),
    Measure("mce", "mCE", "corruption error relative to concat, which has 1", better="lower"),
    Measure(
        "retention",
        "Retention",
        "share of the clean score kept under corruption; never ranked by, blank below 0.8 of concat's clean score",
    ),
    Measure(
        "missing",
        "Missing",
        "chance-normalised score, mean over absent subsets of modalities; what fills them is chosen on validation",
    ),
    Measure("missing_zero", "Missing, zero", "the same with absent encodings zero"),
    Measure("missing_mean", "Missing, mean", "the same with absent encodings at their mean over the training rows"),
    Measure("missing_worst", "Worst subset", "chance-normalised score with the worst subset of modalities absent"),
    Measure("missing_rate", "Missing rate", "area over the rate at which modalities go missing per sample"),
    Measure("nll", "NLL", "negative log-likelihood, clean", better="lower"),
    Measure("brier", "Brier", "Brier score, clean", better="lower"),
    Measure("ece", "ECE", "expected calibration error, clean", better="lower"),
    Measure("nll_corrupted", "NLL corr.", "negative log-likelihood, mean over corruptions", better="lower"),
    Measure("ece_corrupted", "ECE corr.", "expected calibration error, mean over corruptions", better="lower"),
    Measure(
        "error_auroc",
        "Doubt AUROC",
        "chance that a wrong answer has a lower softmax confidence than a right one, clean; .5 says nothing",
    ),
    Measure(
        "uncertainty_auroc",
        "Own AUROC",
        "the same of the uncertainty that the method declares itself (EMMA: system energy), clean",
    ),
    Measure("uncertainty_auroc_corrupted", "Own AUROC corr.", "the same, mean over single corruptions"),
    Measure("uncertainty_auroc_missing", "Own AUROC miss.", "the same, mean over absent subsets of modalities"),
    Measure("asked", "On the asked", "share of the attention on cells of what is asked about, where places are known"),
    Measure("asked_gain", "Above uniform", "that share minus what uniform attention has", style="signed"),
    Measure("attention_entropy", "Attention entropy", "of the attention over cells, 1 is uniform", better=""),
    Measure("attention_support", "Support", "share of the cells that get any attention", better=""),
    Measure(
        "parameters",
        "Params",
        "parameters that some stage of the training fits by gradient",
        better="lower",
        style="count",
    ),
    Measure("steps", "Steps", "optimiser steps of all stages together", better="lower", style="count"),
    Measure("flops", "FLOPs", "floating-point operations per sample", better="lower", style="count"),
    Measure("train_seconds", "Train s", "training seconds times devices", better="lower", style="seconds"),
    Measure("latency_1", "ms @1", "latency at batch 1, median, milliseconds", better="lower", style="quantity"),
    Measure("latency_64", "ms @64", "latency at batch 64, median, milliseconds", better="lower", style="quantity"),
    Measure(
        "memory",
        "Memory MB",
        "peak memory of a cell above what its process held before",
        better="lower",
        style="quantity",
    ),
)
MEASURES: dict[str, Measure] = {m.name: m for m in _COLUMNS}

SLICES: dict[str, tuple[str, ...]] = {
    "overview": ("clean", "drop", "missing", "parameters", "train_seconds"),
    "clean": ("clean", "gain", "nll", "brier", "ece"),
    "robust": (
        *("drop", "drop_single", "drop_joint", "area", "worst", "joint", "misaligned"),
        *("corrupted_gain", "mce", "retention", "nll_corrupted", "ece_corrupted"),
    ),
    "missing": ("missing", "missing_zero", "missing_mean", "missing_worst", "missing_rate"),
    "audit": (
        *("error_auroc", "uncertainty_auroc", "uncertainty_auroc_corrupted", "uncertainty_auroc_missing"),
        *("asked", "asked_gain", "attention_entropy", "attention_support"),
    ),
    "cost": ("parameters", "steps", "flops", "train_seconds", "latency_1", "latency_64", "memory"),
}

_COST = {
    "parameters": ("trainable_parameters", "parameters"),
    "flops": ("flops",),
    "train_seconds": ("train_seconds",),
    "latency_1": ("latency_b1_p50_ms",),
    "latency_64": ("latency_b64_p50_ms",),
    "memory": ("peak_memory_mb",),
}


def common_curves(records: Sequence[Record]) -> dict[str, frozenset[Curve]]:
    """Per dataset the severity curves every swept record has: only these are averaged, so that all are alike."""
    found: dict[str, frozenset[Curve]] = {}
    for record in records:
        if own := frozenset(curves(record)):
            found[record.cell.dataset] = found.get(record.cell.dataset, own) & own
    return found


def measure(record: Record, baselines: Baselines, common: frozenset[Curve]) -> dict[str, float]:
    """Every measure of one record that is not a weighted sum over conditions; what cannot be taken is left out."""
    absent = robustness.missing(record)
    found: dict[str, float | None] = {
        "gain": robustness.gain(record, baselines),
        "misaligned": _mean(robustness.areas(record, "misaligned").values()),
        "missing_zero": absent.zero,
        "missing_mean": absent.filled,
        "missing_worst": absent.worst,
        "missing_rate": absent.rate,
        **robustness.calibration(record),
        **robustness.uncertainty(record),
        **_looked(record),
        **_cost(record),
    }
    if common and common <= set(curves(record)):
        found |= _under_corruption(record, baselines, common)
    return {name: value for name in MEASURES if (value := found.get(name)) is not None and math.isfinite(value)}


def normalise(score: float, record: Record) -> float:
    """The score of a record's metric, chance-normalised."""
    return robustness.normalise(score, record.trivial, record.cell.higher_is_better)


def area_weights(common: frozenset[Curve]) -> dict[str, float]:
    """The robust area as a weighted mean over conditions, by which it can be resampled over rows.

    Corruptions are averaged within a modality, then modalities; the trapezoid rule gives both ends half a step.
    """
    modalities = {k for k, _ in common}
    step = 1 / robustness.LEVELS
    weights: dict[str, float] = {"clean": step / 2}
    for k, c in sorted(common):
        share = step / len(modalities) / sum(other == k for other, _ in common)
        for s in range(1, robustness.LEVELS + 1):
            weights[f"single:{k}:{c}:{s}"] = share / 2 if s == robustness.LEVELS else share
    return weights


def audit(records: Sequence[Record]) -> dict[str, float]:
    """The attention audit of each modality, mean over seeds; empty for a method that weighs none."""
    return _over_seeds(robustness.audits(records))


def reliance(records: Sequence[Record]) -> dict[str, float]:
    """Shapley value of each modality, mean over seeds; empty unless every subset was tested."""
    return _over_seeds([robustness.reliance(r) or {} for r in records])


def _over_seeds(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means of what every seed has."""
    return {k: stats.mean([s[k] for s in several]) for k in several[0] if all(k in s for s in several)}


def _under_corruption(record: Record, baselines: Baselines, common: frozenset[Curve]) -> dict[str, float | None]:
    worst = robustness.worst_modality(record, common)
    found: dict[str, float | None] = {
        "worst": worst[1] if worst else None,
        "corrupted_gain": _mean(robustness.corrupted_gains(record, baselines, common).values()),
    }
    concat = baselines.concat.get(record.cell.seed)
    if concat is not None and common <= set(curves(concat)):
        found["mce"] = robustness.mce(record, concat, common)
        found["retention"] = robustness.retention(record, concat, common)
    return found


def _looked(record: Record) -> dict[str, float | None]:
    """The score of attention, mean over the modalities whose places are known."""
    found: dict[str, float | None] = {}
    for name in ("asked", "uniform", "entropy", "support"):
        own = [v for k, v in record.summary.items() if k.startswith("attention/") and k.endswith(f"/{name}")]
        found[name] = _mean(own)
    asked, uniform = found["asked"], found["uniform"]
    return {
        "asked": asked,
        "asked_gain": None if asked is None or uniform is None else asked - uniform,
        "attention_entropy": found["entropy"],
        "attention_support": found["support"],
    }


def _cost(record: Record) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, keys in _COST.items():
        found[name] = next((record.cost[k] for k in keys if record.cost.get(k) is not None), None)
    found["steps"] = float(sum(stage.steps for stage in record.training)) if record.training else None
    if found["train_seconds"] is not None:
        found["train_seconds"] *= record.cost.get("devices", 1)
    return found


def _mean(values: Collection[float]) -> float | None:
    return stats.mean(list(values)) if values else None
