"""The records that a claim is judged by, and the numbers of its experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from leaderboard import panels
from leaderboard.panels import Side
from leaderboard.record import Record
from leaderboard.rows import Source
from leaderboard.variance_prior import Priors


class Missing(LookupError):
    """Results that a rule needs and that are not there; the message says which."""


@dataclass(frozen=True, eq=False)
class Results:
    """What is known so far.

    Attributes:
        records: (label, dataset) -> its records, one per seed.
        sources: Cell id -> where its rows are known from.
        experiment: The numbers of an experiment, one mapping per seed.
        failed: (label, dataset) -> why a cell of it failed.
        lacking: (label, dataset) of which a cell has not been run.
        priors: Of the variance over seeds, frozen with reference results.
    """

    records: Mapping[tuple[str, str], Sequence[Record]] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    experiment: Sequence[Mapping[str, float]] = ()
    failed: Mapping[tuple[str, str], str] = field(default_factory=dict)
    lacking: Sequence[tuple[str, str]] = ()
    priors: Priors = field(default_factory=dict)

    @property
    def datasets(self) -> tuple[str, ...]:
        """Those with records."""
        return tuple(dict.fromkeys(dataset for _, dataset in self.records))

    @property
    def labels(self) -> tuple[str, ...]:
        """Methods with records."""
        return tuple(dict.fromkeys(label for label, _ in self.records))

    def of(self, label: str, dataset: str) -> Sequence[Record]:
        """The records of a method on a dataset.

        Raises:
            Missing: If there are none, or a cell failed: a mean over the other seeds would flatter.
        """
        if (label, dataset) in self.failed:
            raise Missing(f"{label} failed on {dataset}: {self.failed[label, dataset]}")
        found = self.records.get((label, dataset), ())
        if not found:
            raise Missing(f"no records of {label} on {dataset} yet")
        return found

    def side(self, dataset: str) -> Side:
        """All methods of a dataset beside each other, by seed and row."""
        return _side(self, dataset)

    def numbers(self, key: str) -> tuple[float, ...]:
        """A number of the experiment, by seed."""
        found = tuple(run[key] for run in self.experiment if key in run)
        if not found:
            raise Missing(f"the experiment has not measured {key!r} yet")
        return found


@lru_cache(maxsize=256)
def _side(results: Results, dataset: str) -> Side:
    methods = {
        label: results.of(label, dataset)
        for label, where in results.records
        if where == dataset and (label, dataset) not in results.failed
    }
    if not methods:
        raise Missing(f"no records on {dataset} yet")
    reference = methods.get("concat") or next(iter(methods.values()))
    return panels.side(methods, reference, results.sources, results.priors.get(dataset, {}))
