"""How a method breaks, from records alone.

Functions of one record, and of the baselines it is compared with. What cannot be measured is None: never a number that
looks like a result.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, pairwise
from typing import Literal

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from leaderboard.record import Record

Floats = NDArray[np.float64]

Curve = tuple[str, str]
"""Modality and corruption of a severity curve."""

LEVELS = 5
_SEVERITIES = dict.fromkeys(range(LEVELS + 1)).keys()
WEAK = 0.8
"""A clean normalised score below this share of concat's is not worth retaining: retention stays blank."""


def normalise(score: float, trivial: float | None, higher_is_better: bool) -> float:
    """Chance-normalised score: 0 for the trivial predictor, 1 for a perfect one; not clipped, NaN without a reference.

    A metric of errors (lower is better, 0 perfect) is mirrored: `(trivial - score) / trivial`.
    """
    if trivial is None:
        return math.nan
    room, gained = (1 - trivial, score - trivial) if higher_is_better else (trivial, trivial - score)
    return gained / room if room > 0 else math.nan


def curves(record: Record, kind: Literal["single", "joint", "misaligned"] = "single") -> dict[Curve, tuple[float, ...]]:
    """Raw scores at severities 0 to 5, by modality and corruption; an incomplete curve is left out.

    The joint curve is filed under `("joint", "joint")`, the misaligned ones under `(modality, "misaligned")`.
    """
    known = vars(record)
    if "_curves" not in known:  # a board asks twenty times
        known["_curves"] = _curves(record)
    return known["_curves"][kind]


def _curves(record: Record) -> dict[str, dict[Curve, tuple[float, ...]]]:
    found: dict[str, dict[Curve, dict[int, float]]] = {"single": {}, "joint": {}, "misaligned": {}}
    for c in record.conditions:
        if c.kind in found:
            key = _curve(c.modality or "joint", c.corruption or c.kind)
            found[c.kind].setdefault(key, {0: record.clean})[c.severity] = c.score
    return {
        kind: {key: tuple([curve[s] for s in _SEVERITIES]) for key, curve in own.items() if curve.keys() == _SEVERITIES}
        for kind, own in found.items()
    }


@lru_cache(maxsize=10_000)
def _curve(modality: str, corruption: str) -> Curve:
    """One key for all records."""
    return modality, corruption


def area(curve: Sequence[float]) -> float:
    """`R_c`: area under a severity curve by the trapezoid rule, severities 0 to 5 spanning an interval of length 1."""
    return (sum(curve) - (curve[0] + curve[-1]) / 2) / (len(curve) - 1)


def areas(record: Record, kind: Literal["single", "joint", "misaligned"] = "single") -> dict[Curve, float]:
    """`R_{k,c}` of every complete curve, chance-normalised."""
    known = vars(record).setdefault("_areas", {})
    if kind not in known:
        known[kind] = {key: _normalise(area(curve), record) for key, curve in curves(record, kind).items()}
    return known[kind]


def modality_areas(record: Record, only: Collection[Curve] | None = None) -> dict[str, float]:
    """`R_k`: the mean over the corruptions of a modality.

    Args:
        record: The cell.
        only: The curves to average, so that records with other sweeps are compared over the same ones.

    Raises:
        KeyError: If the record lacks one of `only`: a mean over what happens to exist would not be comparable.
    """
    own = areas(record)
    return _by_modality(own if only is None else {key: own[key] for key in sorted(only)})


def robustness(record: Record, only: Collection[Curve] | None = None) -> float | None:
    """`R`: the mean over modalities of the mean over their corruptions; the primary measure."""
    return _mean(modality_areas(record, only).values())


def worst_modality(record: Record, only: Collection[Curve] | None = None) -> tuple[str, float] | None:
    """The modality whose corruption leaves the smallest area."""
    own = modality_areas(record, only)
    return min(own.items(), key=lambda item: item[1]) if own else None


def corruption_errors(record: Record, concat: Record, only: Collection[Curve] | None = None) -> dict[Curve, float]:
    """`CE_c = sum_s e_{c,s} / sum_s e^concat_{c,s}`, over the curves both have.

    Args:
        record: The cell.
        concat: The baseline of the same dataset and seed.
        only: Leave out other curves.
    """
    own, base = curves(record), curves(concat)
    shared = [key for key in own if key in base and (only is None or key in only)]
    ratios = {key: (_error(own[key], record), _error(base[key], concat)) for key in shared}
    # A baseline without an error has nothing to be compared with.
    return {key: mine / theirs for key, (mine, theirs) in ratios.items() if theirs > 0}


def mce(record: Record, concat: Record, only: Collection[Curve] | None = None) -> float | None:
    """`mCE` of Hendrycks & Dietterich against concat of the same seed; lower is better, concat has 1."""
    return _mean(corruption_errors(record, concat, only).values())


def retention(record: Record, concat: Record, only: Collection[Curve] | None = None) -> float | None:
    """Mean share of the clean normalised score kept along the severity curves (their area over it).

    It rewards a model which is flat because it is bad: shown, never ranked by, None below `WEAK` of concat's clean
    score.
    """
    clean = _normalise(record.clean, record)
    if not clean > 0 or clean < WEAK * _normalise(concat.clean, concat):
        return None
    kept = robustness(record, only)
    return None if kept is None else kept / clean


def gain(record: Record, baselines: Baselines) -> float | None:
    """`G`: what fusing is worth, the clean score minus the best unimodal baseline's; positive is better."""
    best = baselines.best(record.cell.seed)
    return None if best is None else _advantage(record.clean, best, record)


def corrupted_gains(
    record: Record, baselines: Baselines, only: Collection[Curve] | None = None
) -> dict[tuple[str, int], float]:
    """`G_k(s)`: the score with k corrupted (mean over corruptions) minus the best unimodal baseline without k.

    Negative: fusing is worse than ignoring the broken modality.
    """
    found: dict[tuple[str, int], float] = {}
    for k in record.cell.modalities:
        best = baselines.best(record.cell.seed, without=k)
        own = [curve for key, curve in curves(record).items() if key[0] == k and (only is None or key in only)]
        if best is None or not own:
            continue
        for s in range(1, LEVELS + 1):
            found[k, s] = _advantage(sum(curve[s] for curve in own) / len(own), best, record)
    return found


@dataclass(frozen=True)
class Missing:
    """Scores with modalities absent, chance-normalised; `rate` is the area over the missing rate, mean height.

    Attributes:
        zero: As `mean`, with absent encodings zero whatever was chosen.
        filled: As `mean`, with absent encodings at their training mean whatever was chosen.
    """

    mean: float | None
    worst: float | None
    rate: float | None
    zero: float | None = None
    filled: float | None = None


def missing(record: Record) -> Missing:
    """The mean and the worst over absent subsets, and the area over the missing rate."""
    subsets = {c.absent: _normalise(c.score, record) for c in record.conditions if c.kind == "missing"}
    # Of all modalities together: those of one alone are other curves.
    joint = [c for c in record.conditions if c.kind == "missing_rate" and c.modality is None]
    points = [(0.0, record.clean), *sorted((c.rate, c.score) for c in joint if c.rate is not None)]
    trapezoids = [(x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(points)]
    return Missing(
        _mean(subsets.values()),
        min(subsets.values(), default=None),
        _normalise(sum(trapezoids) / points[-1][0], record) if trapezoids else None,
        _filled(record, "zero"),
        _filled(record, "mean"),
    )


def _filled(record: Record, fill: Literal["zero", "mean"]) -> float | None:
    """Mean over absent subsets with one fill; a mask leaves nothing to fill and is the score of both."""
    own = [c.fills for c in record.conditions if c.kind == "missing"]
    scores = [score for fills in own if (score := fills.get(fill, fills.get("mask"))) is not None]
    return _mean([_normalise(s, record) for s in scores]) if len(scores) == len(own) else None


def uncertainty(record: Record) -> dict[str, float | None]:
    """AUROC of the uncertainty that a method declares against its errors: clean, and means over other conditions."""

    told = [(c.kind, c.diagnostics["error_auroc"]) for c in record.conditions if "error_auroc" in c.diagnostics]

    def mean_of(kind: str) -> float | None:
        return _mean([value for of, value in told if of == kind])

    return {
        "uncertainty_auroc": mean_of("clean"),
        "uncertainty_auroc_corrupted": mean_of("single"),
        "uncertainty_auroc_missing": mean_of("missing"),
    }


def calibration(record: Record) -> dict[str, float]:
    """NLL, Brier score and ECE: clean under their own names; `<name>_corrupted` is the mean over single corruptions."""
    found = dict(record.conditions[0].calibration)
    corrupted = [c.calibration for c in record.conditions if c.kind == "single"]
    for name in found.copy():
        values = [c[name] for c in corrupted if name in c]
        # One without a value would make the mean one over other conditions than the rest of the board's.
        if values and len(values) == len(corrupted):
            found[f"{name}_corrupted"] = sum(values) / len(values)
    return found


def reliance(record: Record) -> dict[str, float] | None:
    """Shapley value of each modality over the subsets that are present; the empty one scores `trivial`.

    The values add up to the clean score minus the trivial one. None unless every subset was tested.
    """
    names = record.cell.modalities
    everything = frozenset(names)
    value = {everything - set(c.absent): c.score for c in record.conditions if c.kind == "missing"}
    value[everything] = record.clean
    if record.trivial is None or len(value) != 2 ** len(names) - 1:
        return None
    value[frozenset()] = record.trivial
    sign = 1 if record.cell.higher_is_better else -1
    found = dict.fromkeys(names, 0.0)
    for k in names:
        for size in range(len(names)):
            weight = 1 / (len(names) * math.comb(len(names) - 1, size))
            for others in combinations([j for j in names if j != k], size):
                found[k] += sign * weight * (value[frozenset(others) | {k}] - value[frozenset(others)])
    return found


def attention_audit(record: Record) -> dict[Curve, float]:
    """Spearman correlation of the mean weight of modality k with the severity applied to k, for each corruption.

    The claim of a method that weighs modalities is a value near -1. Weights that do not move give 0. Empty for a method
    that weighs none.
    """
    return _attention_audits([record])[0]


def audits(records: Sequence[Record]) -> list[dict[str, float]]:
    """The attention audit of each modality, the mean over its corruptions, of each record."""
    return [_by_modality(own) for own in _attention_audits(records)]


def _attention_audits(records: Sequence[Record]) -> list[dict[Curve, float]]:
    """Those of many records, whose thousands of correlations are taken at once."""
    series = [_weights(record) for record in records]
    every = [line for own in series for line in own.values()]
    found = iter(_with_severity(np.array(every)) if every else ())
    return [{key: next(found) for key in own} for own in series]


def _weights(record: Record) -> dict[Curve, list[float]]:
    """The mean weight of a modality at severities 0 to 5 of what befalls it."""
    known = {(c.modality, c.corruption, c.severity): c.weights for c in record.conditions if c.kind == "single"}
    clean = record.conditions[0].weights
    found: dict[Curve, list[float]] = {}
    for k, c in curves(record):
        own = [clean, *(known[k, c, s] for s in range(1, LEVELS + 1))]
        i = record.cell.modalities.index(k)
        line = [weights[i] for weights in own if weights is not None and len(weights) > i]
        if len(line) == len(own):
            found[k, c] = line
    return found


def _with_severity(series: Floats) -> list[float]:
    """Spearman's correlation of each line `[lines, severities]` with its own order; 0 if it does not move."""
    # Rounding noise has a rank too: differences below 1e-6 are none.
    ranked: Floats = scipy.stats.rankdata(series.round(6), axis=1)
    ranks: Floats = ranked - ranked.mean(axis=1, keepdims=True)
    order: Floats = np.linspace(-1, 1, series.shape[1])
    size: Floats = np.sqrt((ranks**2).sum(axis=1) * (order**2).sum())
    return np.where(size > 0, ranks @ order / np.where(size > 0, size, 1), 0).tolist()


@dataclass(frozen=True)
class Baselines:
    """What the relative measures of one dataset are relative to: plain-track `unimodal` by label, `concat`; by seed."""

    unimodal: Mapping[str, Mapping[int, Record]]
    concat: Mapping[int, Record]

    @classmethod
    def of(cls, records: Sequence[Record]) -> Baselines:
        """Collect them from the records of one dataset and version."""
        plain = [r for r in records if r.status == "ok" and r.cell.track == "plain"]
        unimodal: dict[str, dict[int, Record]] = {}
        for r in plain:
            if r.cell.method == "unimodal":
                unimodal.setdefault(r.cell.label, {})[r.cell.seed] = r
        return cls(unimodal, {r.cell.seed: r for r in plain if r.cell.label == "concat"})

    @cached_property
    def validated(self) -> bool:
        """Whether all unimodal baselines have validation scores, so that the test split need not choose among them."""
        return all(validation(r) is not None for own in self.unimodal.values() for r in own.values())

    @cached_property
    def _choices(self) -> dict[str | None, str | None]:
        return {}

    def chosen(self, without: str | None = None) -> str | None:
        """Label of the best unimodal baseline on any modality but `without`.

        By the mean over seeds of its validation score, since the best on the test split would be partly luck; by the
        test score only where nothing else is known.
        """
        if without not in self._choices:  # a board asks for every record
            means = {
                label: float(np.mean([self._selection(r) for r in own.values()]))
                for label, own in sorted(self.unimodal.items())
                if all(r.cell.options.get("modality") != without for r in own.values())
            }
            self._choices[without] = max(means, key=lambda label: means[label]) if means else None
        return self._choices[without]

    def _selection(self, record: Record) -> float:
        score = validation(record) if self.validated else None
        if score is None:
            return record.clean if record.cell.higher_is_better else -record.clean
        return score

    def best(self, seed: int, without: str | None = None) -> float | None:
        """Clean score, with `seed`, of the chosen unimodal baseline."""
        label = self.chosen(without)
        own = self.unimodal[label].get(seed) if label else None
        return own.clean if own else None


def validation(record: Record) -> float | None:
    """What the last trained stage was selected by, higher is better; None when nothing was trained."""
    stage = next((s for s in reversed(record.training) if s.best_score is not None), None)
    if stage is None or stage.best_score is None:
        return None
    higher = record.cell.higher_is_better and not stage.monitor.endswith("loss")
    return stage.best_score if higher else -stage.best_score


def _normalise(score: float, record: Record) -> float:
    return normalise(score, record.trivial, record.cell.higher_is_better)


def _error(curve: Sequence[float], record: Record) -> float:
    """Sum of the errors at severities 1 to 5."""
    return sum(1 - a if record.cell.higher_is_better else a for a in curve[1:])


def _advantage(score: float, other: float, record: Record) -> float:
    return score - other if record.cell.higher_is_better else other - score


def _by_modality(values: Mapping[Curve, float]) -> dict[str, float]:
    """Means over the corruptions of each modality."""
    found: dict[str, list[float]] = {}
    for (k, _), value in values.items():
        found.setdefault(k, []).append(value)
    return {k: sum(own) / len(own) for k, own in found.items()}


def _mean(values: Collection[float]) -> float | None:
    return sum(values) / len(values) if values else None
