"""The quantities a rule may be about, each with an interval that says how well seeds, rows or datasets know it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy.stats

from benchmark.judging.results import Missing, Results
from leaderboard import robustness
from leaderboard.effect import Effect, average
from leaderboard.hsu import with_the_best
from leaderboard.moderated import Panel
from leaderboard.record import Record
from leaderboard.stats import wilson

Pillar = Literal["clean", "drop", "drop_single", "drop_joint", "missing"]
Reading = Callable[[Record], float | None]


@dataclass(frozen=True)
class Difference:
    """How much better `a` is than `b`, mean over datasets, in chance-normalised score; by seed and row (moderated t).

    Attributes:
        pillar: Clean score, change from clean under corruption (`drop...`), or score with modalities missing. Positive
            is better in all of them.
        on: Datasets; empty means all of the claim.
    """

    a: str
    b: str
    pillar: Pillar = "clean"
    on: tuple[str, ...] = ()

    def __call__(self, results: Results) -> Effect:
        return average([panel.difference(self.a, self.b) for panel in self._panels(results)])

    def detectable(self, results: Results, seeds: int, alpha: float) -> float | None:
        panels = [_with_seeds(panel, seeds) for panel in self._panels(results)]
        return average([panel.difference(self.a, self.b) for panel in panels]).detectable(alpha)

    def _panels(self, results: Results) -> list[Panel]:
        return [self._panel(results, dataset) for dataset in self.on or _run(results)]

    def _panel(self, results: Results, dataset: str) -> Panel:
        for label in (self.a, self.b):
            results.of(label, dataset)
        panel = results.side(dataset).panels.get(self.pillar)
        if panel is None or not {self.a, self.b} <= panel.methods.keys():
            raise Missing(f"{self.a} and {self.b} were not both measured for {self.pillar} on {dataset}")
        return panel


@dataclass(frozen=True)
class Number:
    """A number of a method's records or of the experiment, mean over datasets; t interval over seeds.

    Attributes:
        read: From a record; or the key of an experiment's number, and then `label` is not needed.
    """

    read: Reading | str
    label: str = ""
    on: tuple[str, ...] = ()

    def __call__(self, results: Results) -> Effect:
        return average([_over_seeds(values) for values in _values(self, results)])

    def detectable(self, results: Results, seeds: int, alpha: float) -> float | None:
        return average([_at(_over_seeds(v), len(v), seeds) for v in _values(self, results)]).detectable(alpha)


@dataclass(frozen=True)
class Contrast:
    """A number of `a`'s records less that of `b`'s, mean over datasets; Welch's interval over seeds."""

    a: str
    b: str
    read: Reading
    on: tuple[str, ...] = ()

    def __call__(self, results: Results) -> Effect:
        return average([_minus(_over_seeds(a), _over_seeds(b)) for a, b in self._pairs(results)])

    def detectable(self, results: Results, seeds: int, alpha: float) -> float | None:
        each = [[_at(_over_seeds(x), len(x), seeds) for x in pair] for pair in self._pairs(results)]
        return average([_minus(a, b) for a, b in each]).detectable(alpha)

    def _pairs(self, results: Results) -> list[tuple[list[float], list[float]]]:
        a, b = (list(_values(Number(self.read, label, self.on), results)) for label in (self.a, self.b))
        return list(zip(a, b, strict=True))


class _NotOfSeeds:
    """An estimate whose sample is datasets or methods: more seeds make it no more exact."""

    def detectable(self, results: Results, seeds: int, alpha: float) -> float | None:
        return None


@dataclass(frozen=True)
class Proportion:
    """Successes of a number of trials; Wilson's interval."""

    successes: int
    trials: int

    @property
    def value(self) -> float:
        """The share."""
        return self.successes / self.trials

    def interval(self, level: float) -> tuple[float, float]:
        """Wilson's."""
        return wilson(self.successes, self.trials, level)


@dataclass(frozen=True)
class Share(_NotOfSeeds):
    """On which share of the datasets a method may be the best of all (Hsu's group); datasets are the sample."""

    label: str
    pillar: Pillar = "clean"

    def __call__(self, results: Results) -> Proportion:
        among = [self._may_be_best(results, dataset) for dataset in results.datasets]
        known = [x for x in among if x is not None]
        if not known:
            raise Missing(f"no dataset has {self.label} and another method")
        return Proportion(sum(known), len(known))

    def _may_be_best(self, results: Results, dataset: str) -> bool | None:
        panel = results.side(dataset).panels.get(self.pillar)
        if panel is None or self.label not in panel.methods or len(panel.methods) < 2:
            return None
        candidates = with_the_best([panel], list(panel.methods))
        return next(c.best for c in candidates if c.method == self.label)


@dataclass(frozen=True)
class Correlation:
    """A rank correlation of some things; Fisher's interval with the variance of Bonett and Wright (2000)."""

    value: float
    number: int

    def interval(self, level: float) -> tuple[float, float]:
        """The whole range when there are too few things to say anything.

        Two equal orders would have an interval without width; theirs is that of orders in which one pair of neighbours
        is exchanged, which is the least that a few things can tell from equality.
        """
        if self.number < 4:
            return -1.0, 1.0
        most = 1 - 12 / (self.number * (self.number**2 - 1))
        value = min(max(self.value, -most), most)
        half = scipy.stats.norm.ppf((1 + level) / 2) * math.sqrt((1 + value**2 / 2) / (self.number - 3))
        return math.tanh(math.atanh(value) - half), math.tanh(math.atanh(value) + half)


@dataclass(frozen=True)
class Agreement(_NotOfSeeds):
    """Spearman correlation, over the methods of all datasets, of the orders by two pillars; methods are the sample."""

    first: Pillar
    second: Pillar
    control: str = "concat"

    def __call__(self, results: Results) -> Correlation:
        first, second = (self._advantages(results, pillar) for pillar in (self.first, self.second))
        shared = sorted(first.keys() & second.keys())
        if len(shared) < 4:
            raise Missing(f"{len(shared)} methods were measured for {self.first} and {self.second} on all datasets")
        return _correlation([(first[m], second[m]) for m in shared])

    def _advantages(self, results: Results, pillar: Pillar) -> dict[str, float]:
        """Of the methods that are complete, mean over datasets."""
        sides = [results.side(dataset).panels.get(pillar) for dataset in results.datasets]
        whole = [panel for panel in sides if panel is not None and self.control in panel.methods]
        if not whole:
            raise Missing(f"no dataset has {self.control} measured for {pillar}")
        names = set.intersection(*(set(panel.methods) for panel in whole)) - {self.control}
        return {n: float(np.mean([panel.difference(n, self.control).value for panel in whole])) for n in names}


@dataclass(frozen=True)
class Tracking(_NotOfSeeds):
    """Spearman correlation, over datasets, of a known property of each with a difference of two methods there."""

    known: tuple[tuple[str, float], ...]
    difference: Difference

    def __call__(self, results: Results) -> Correlation:
        found = [(value, replace(self.difference, on=(dataset,))(results).value) for dataset, value in self.known]
        return _correlation(found)


@dataclass(frozen=True)
class Behind(_NotOfSeeds):
    """Share of the plain methods that do worse with a modality corrupted than the best other modality does alone.

    Mean over modalities, corruptions, datasets and seeds of each method; methods are the sample.
    """

    severity: int

    def __call__(self, results: Results) -> Proportion:
        gains: dict[str, list[float]] = {}
        for dataset in results.datasets:
            here = {label: results.of(label, dataset) for label, where in results.records if where == dataset}
            baselines = robustness.Baselines.of([r for own in here.values() for r in own])
            for label, own in here.items():
                if own[0].cell.track == "plain" and own[0].cell.method != "unimodal":
                    gains.setdefault(label, []).extend(self._gains(own, baselines))
        known = [float(np.mean(own)) for own in gains.values() if own]
        if not known:
            raise Missing("no method was measured under corruption beside the unimodal baselines")
        return Proportion(sum(gain < 0 for gain in known), len(known))

    def _gains(self, records: Sequence[Record], baselines: robustness.Baselines) -> list[float]:
        each = [robustness.corrupted_gains(record, baselines) for record in records]
        return [gain for found in each for (_, severity), gain in found.items() if severity == self.severity]


def _correlation(pairs: Sequence[tuple[float, float]]) -> Correlation:
    ranks = scipy.stats.rankdata(np.array(pairs), axis=0)
    return Correlation(float(np.corrcoef(ranks.T)[0, 1]), len(pairs))


def _values(number: Number, results: Results) -> list[list[float]]:
    """The number by dataset and seed."""
    if isinstance(number.read, str):
        return [list(results.numbers(number.read))]
    found = []
    for dataset in number.on or _run(results):
        values = [number.read(record) for record in results.of(number.label, dataset)]
        known = [v for v in values if v is not None and math.isfinite(v)]
        if len(known) < len(values):
            raise Missing(f"{number.label} on {dataset} has not measured what the rule is about")
        found.append(known)
    return found


def _run(results: Results) -> tuple[str, ...]:
    """The datasets with records, of which there must be one."""
    if not results.datasets:
        raise Missing("nothing has been run yet")
    return results.datasets


def _over_seeds(values: Sequence[float]) -> Effect:
    """The mean; of one value nothing is known but itself."""
    n = len(values)
    if n < 2:
        return Effect(float(values[0]), math.inf, 1.0)
    variance = float(np.var(values, ddof=1)) / n
    return Effect(float(np.mean(values)), variance, n - 1 if variance > 0 else math.inf)


def _minus(a: Effect, b: Effect) -> Effect:
    both = average([a, b])  # its variance is a quarter of that of the difference
    return Effect(a.value - b.value, 4 * both.variance, both.freedom)


def _at(effect: Effect, seeds: int, wanted: int) -> Effect:
    """What an effect over some seeds would be known to over others."""
    freedom = effect.freedom if math.isinf(effect.freedom) else wanted - 1
    return Effect(effect.value, effect.variance * seeds / wanted, freedom)


def _with_seeds(panel: Panel, seeds: int) -> Panel:
    """The panel as it would be with another number of seeds and the same spread."""
    return replace(panel, methods={name: replace(own, seeds=seeds) for name, own in panel.methods.items()})
