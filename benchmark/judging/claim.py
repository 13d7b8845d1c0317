"""A claim: a sentence of a source, the rule that decides it, fixed before the data, and the verdict that follows.

A rule is about one estimate and a threshold. Its interval alone decides: wholly on the right side of the threshold the
rule holds, wholly on the wrong side it is broken, across it nothing is decided. A claim with several rules is supported
if all hold and refuted if one is broken, so each is judged at a level that makes them simultaneous (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from benchmark.judging.results import Missing, Results
from datamodules.registry import Registry
from leaderboard.stats import ALPHA

Verdict = Literal["supported", "refuted", "open"]
Side = Literal["above", "below", "within"]
SEEDS = 5
CAP = 10


class Estimate(Protocol):
    """A number and how well it is known; `leaderboard.effect.Effect` is one."""

    @property
    def value(self) -> float:
        """The estimate."""
        ...

    def interval(self, level: float) -> tuple[float, float]:
        """Ends of the two-sided interval."""
        ...


class Estimator(Protocol):
    """How an estimate is made of results."""

    def __call__(self, results: Results) -> Estimate:
        """The estimate; raises `Missing` where results lack something."""
        ...

    def detectable(self, results: Results, seeds: int, alpha: float) -> float | None:
        """The smallest effect that so many seeds would find; None if seeds are not what decides."""
        ...


@dataclass(frozen=True)
class Rule:
    """One condition of a claim.

    Attributes:
        what: The quantity, for people.
        side: Where the interval must lie: above the threshold, below it, or within it on both sides of 0.
        size: How far beyond the threshold an effect must be to be worth finding; the number of seeds follows from it.
    """

    what: str
    estimate: Estimator
    side: Side
    threshold: float
    size: float

    def verdict(self, low: float, high: float) -> Verdict:
        """What an interval says."""
        t = self.threshold
        holds = {"above": low > t, "below": high < t, "within": -t < low and high < t}[self.side]
        broken = {"above": high < t, "below": low > t, "within": low > t or high < -t}[self.side]
        return "supported" if holds else "refuted" if broken else "open"

    @property
    def text(self) -> str:
        """The rule in words."""
        where = f"within ±{self.threshold:g}" if self.side == "within" else f"{self.side} {self.threshold:g}"
        return f"{self.what}: {where}"


def above(what: str, estimate: Estimator, threshold: float = 0.0, size: float = 0.02) -> Rule:
    """Holds if the whole interval is above the threshold."""
    return Rule(what, estimate, "above", threshold, size)


def below(what: str, estimate: Estimator, threshold: float = 0.0, size: float = 0.02) -> Rule:
    """Holds if the whole interval is below the threshold."""
    return Rule(what, estimate, "below", threshold, size)


def within(what: str, estimate: Estimator, threshold: float) -> Rule:
    """Holds if the whole interval is nearer to 0 than the threshold: equal for all that matters."""
    return Rule(what, estimate, "within", threshold, threshold)


@dataclass(frozen=True)
class Claim:
    """What a source says, as an experiment.

    Attributes:
        source: Who says it, and where.
        rules: All must hold.
        entries: Methods with their options, as in a matrix; "all" is every registered one.
        datasets: Likewise; recipes and conditions are those of `matrix`, unless `recipe` or `conditions` say otherwise.
        experiment: `module:function` of what is no cell: called with a seed, it returns named numbers.
        seeds: At least so many; more if the rules need them to find effects of their size, `cap` at most.
        needs: What this machine would have to have; the claim stays open without it.
        caveat: What a reader must know about the rule.
    """

    source: str
    rules: tuple[Rule, ...]
    entries: Literal["all"] | tuple[str | Mapping[str, Any], ...] = ()
    datasets: tuple[str | Mapping[str, Any], ...] = ()
    matrix: str = "reference"
    conditions: str | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    experiment: str | None = None
    seeds: int = SEEDS
    cap: int = CAP
    needs: str = ""
    caveat: str = ""

    def judge(self, results: Results) -> Judgement:
        """The verdict on these results."""
        return self.conclude(tuple(_judged(rule, results, self.level) for rule in self.rules))

    def conclude(self, found: tuple[Judged, ...]) -> Judgement:
        """What the rules say together."""
        verdicts = [one.verdict for one in found]
        verdict: Verdict = "open"
        if "refuted" in verdicts:
            verdict = "refuted"
        elif all(v == "supported" for v in verdicts):
            verdict = "supported"
        return Judgement(verdict, found, self.level)

    @property
    def level(self) -> float:
        """Of each rule's interval, so that all hold at once with 95 %."""
        return 1 - ALPHA / len(self.rules)


@dataclass(frozen=True)
class Judged:
    """A rule and what the results say of it; `reason` is why there is no estimate."""

    rule: Rule
    verdict: Verdict
    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim, and on each of its rules at `level`."""

    verdict: Verdict
    rules: tuple[Judged, ...]
    level: float

    @property
    def measured(self) -> bool:
        """Whether every rule has its estimate; else the verdict is open because something was not run."""
        return all(one.value is not None for one in self.rules)


def _judged(rule: Rule, results: Results, level: float) -> Judged:
    if results.lacking:  # what has been run would be judged in place of what the rule is about
        (label, dataset), more = results.lacking[0], len(results.lacking) - 1
        others = f", nor {more} other entries" if more else ""
        return Judged(rule, "open", reason=f"{label} on {dataset} has not been run with all seeds{others}")
    try:
        estimate = rule.estimate(results)
    except Missing as reason:
        return Judged(rule, "open", reason=str(reason))
    low, high = estimate.interval(level)
    return Judged(rule, rule.verdict(low, high), estimate.value, low, high)


claims = Registry("claim", "benchmark.claims", "polymodal.claims", decorator="claim")
"""Every claim by name: a function without arguments that returns its `Claim`, whose docstring is the sentence."""


def claim(name: str) -> Callable[[Callable[[], Claim]], Callable[[], Claim]]:
    """Decorator that makes a claim known under `name`."""
    return claims.register(name)  # pyright: ignore[reportReturnType] - the registry is typed for classes
