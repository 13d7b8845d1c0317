"""Two methods, row by row: where they differ, by how much, and whether seeds and rows suffice to say so.

The variance over seeds is drawn to what is usual of the methods of the dataset, and verdicts are adjusted (Holm) for
the number of lines: that any line is a false win or loss has a chance of 5 % at most.
"""

# pandas ships no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from leaderboard import measures, moderated, outcomes, pillars, rows, scores, variance_prior
from leaderboard.effect import Effect, Verdict, judge
from leaderboard.merge import BoardError, Evidence
from leaderboard.record import Condition, Record
from leaderboard.store import Store
from leaderboard.summary import Summary, summarise

if TYPE_CHECKING:
    from pandas import DataFrame

_FROZEN = {"clean": "clean", "robust": "drop"}  # kind of difference -> the measure it is of; the others are of no board


@dataclass(frozen=True)
class Difference:
    """A against B on a dataset under one condition, or over the area of a severity curve; positive: A is better.

    Attributes:
        kind: `clean`, `robust`, `curve`, `missing` or `condition` (a single one).
        what: For people: `clean`, `gaussian on image`, `without audio`.
        low: Lower end of the 95 % interval of this line alone; minus infinity when nothing is known of the seeds.
        p: Adjusted for the number of lines, as is `verdict`.
    """

    dataset: str
    metric: str
    kind: str
    what: str
    a: float
    b: float
    difference: float
    low: float
    high: float
    p: float
    verdict: Verdict


@dataclass(frozen=True)
class RowDifference:
    """A test row and what it adds to the scores, mean over seeds and the conditions both were tested under."""

    dataset: str
    row: int
    target: str
    a: float
    b: float


@dataclass(frozen=True)
class Comparison:
    """Everything `polymodal compare` shows."""

    a: str
    b: str
    differences: tuple[Difference, ...]
    rows: tuple[RowDifference, ...]
    notes: tuple[str, ...]

    def frame(self) -> DataFrame:
        """A row per difference."""
        import pandas as pd

        return pd.DataFrame([vars(d) for d in self.differences])

    def _repr_html_(self) -> str:
        return self.frame().to_html(index=False)

    def tally(self, kind: str) -> dict[Verdict, int]:
        """Wins, ties and losses of A among the differences of a kind."""
        found: dict[Verdict, int] = {"win": 0, "tie": 0, "loss": 0}
        for d in self.differences:
            if d.kind == kind:
                found[d.verdict] += 1
        return found


def compare(evidence: Evidence, a: str, b: str, every: bool = False, top: int = 10) -> Comparison:
    """Compare two methods on every dataset both have.

    Args:
        evidence: From `gather`.
        a: Label of the first method, as the board shows it.
        b: Label of the second.
        every: Also every single condition, not only areas.
        top: How many of the rows that differ most are kept per dataset.

    Raises:
        BoardError: If a label is not there, or the two share no dataset.
    """
    mine, theirs = _records(evidence, a), _records(evidence, b)
    shared = sorted(set(mine) & set(theirs))
    if not shared:
        raise BoardError(f"{a} and {b} have no dataset in common: {a} has {_list(mine)}, {b} has {_list(theirs)}")
    alone = ((a, set(mine) - set(theirs)), (b, set(theirs) - set(mine)))
    notes = [f"only {label} has results on {_list(others)}" for label, others in alone if others]
    if a == b:
        notes.append("the same method twice")
    tracks = {r.cell.track for own in (mine, theirs) for several in own.values() for r in several}
    if len(tracks) > 1:
        notes.append("of different tracks: one of them saw corrupted or missing modalities in training")
    lines: list[tuple[Difference, Effect]] = []
    without_rows: dict[tuple[str, ...], list[str]] = defaultdict(list)
    differing: list[RowDifference] = []
    failed = {(r.cell.label, r.cell.dataset): r.cell.seed for r in evidence.failed if r.cell.label in (a, b)}
    for name in shared:
        lost = [f"seed {failed[label, name]} of {label}" for label in (a, b) if (label, name) in failed]
        if lost:
            notes.append(f"{name} is left out, {' and '.join(lost)} failed: a mean over the others would flatter")
            continue
        pair = _Pair(a, b, mine[name], theirs[name], evidence)
        notes += pair.notes
        lines += [pair.line(*w) for w in _what(pair.conditions, every)]
        if pair.seeds_only and not pair.unpaired:
            without_rows[tuple(pair.seeds_only)].append(name)
        differing += pair.rows(top)
    for whats, names in without_rows.items():
        notes.append(
            f"{', '.join(names)}: an export keeps rows for what a board ranks by, so these intervals are over seeds "
            f"only: {', '.join(whats[:4])}{', ...' * (len(whats) > 4)}"
        )
    judged = judge([effect for _, effect in lines])
    differences = [replace(d, p=j.p, verdict=j.verdict) for (d, _), j in zip(lines, judged, strict=True)]
    return Comparison(a, b, tuple(differences), tuple(differing), tuple(notes))


def _records(evidence: Evidence, label: str) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in evidence.records:
        if record.cell.label == label:
            found.setdefault(record.cell.dataset, []).append(record)
    if not found:
        known = sorted({r.cell.label for r in evidence.records})
        near = difflib.get_close_matches(label, known, n=1)
        guess = f" Did you mean {near[0]!r}?" if near else ""
        raise BoardError(f"no method named {label!r} on the board.{guess} Known: {', '.join(known)}")
    return found


class _Pair:
    """The rows of two methods on one dataset, by seed and condition."""

    def __init__(self, a: str, b: str, mine: Sequence[Record], theirs: Sequence[Record], evidence: Evidence) -> None:
        self.records = (tuple(mine), tuple(theirs))
        self.labels = (a, b)
        first, cell = mine[0], mine[0].cell
        self.dataset, self.metric, self.higher = cell.dataset, cell.metric, cell.higher_is_better
        every = [{c.id: c for c in r.conditions} for r in (*mine, *theirs)]
        self.conditions = [c for c in first.conditions if all(c.id in own for own in every)]
        self.notes: list[str] = []
        ids = [c.id for c in self.conditions]
        self.stores = evidence.stores
        self.target: np.ndarray | None = None
        self.values = [{r.cell.seed: self._values(r, ids) for r in several} for several in self.records]
        # An export has no predictions, but knows of its rows what the board's own measures need.
        self.kept = [not isinstance(evidence.stores[several[0].cell.id], Store) for several in self.records]
        sizes = {v.shape[1] for own in self.values for v in own.values() if v is not None}
        unknown = any(
            v is None for own, kept in zip(self.values, self.kept, strict=True) for v in own.values() if not kept
        )
        if len(sizes) > 1 or unknown:
            self.notes.append(f"{self.dataset}: rows cannot be paired, so intervals there are over seeds only")
        if len(sizes) != 1 or unknown or any(self.kept):
            self.target = None
        self.index = {name: i for i, name in enumerate(ids)}
        self.groups = outcomes.grouping((*mine, *theirs), evidence.stores)
        self.unpaired = len(sizes) > 1 or unknown
        self.seeds_only: list[str] = []
        others: dict[tuple[str, str], list[Record]] = {}
        for r in evidence.records:
            if r.cell.dataset == self.dataset:
                others.setdefault((r.cell.label, r.cell.track), []).append(r)
        self.every = list(others.values())
        self.frozen = evidence.priors.get(self.dataset, {})

    def _values(self, record: Record, ids: Sequence[str]) -> np.ndarray | None:
        """What each row adds to the score under each condition, `[conditions, N]`."""
        cell = record.cell
        found = rows.read(self.stores[cell.id], cell.id, cell.metric, list(ids))
        if found is None:
            return None
        self.target = found[0]
        return scores.contributions(cell.metric, *found)

    def line(self, kind: str, what: str, weights: Mapping[str, float]) -> tuple[Difference, Effect]:
        """How the two differ in a weighted mean of conditions, not adjusted yet for the number of lines."""
        summaries = self._by_row(weights)
        if summaries is None:
            self.seeds_only.append(what)
            summaries = dict(zip(self.labels, (_by_score(own, weights) for own in self.records), strict=True))
        prior = self.frozen.get(_FROZEN.get(kind, "")) or self._prior(weights)
        panel = moderated.panel(summaries, 1.0 if self.higher else -1.0, prior)
        a, b = self.labels
        effect = panel.difference(a, b)
        facts = (self.dataset, self.metric, kind, what, summaries[a].mean, summaries[b].mean)
        return Difference(*facts, effect.value, *effect.interval(), effect.p, effect.verdict()), effect

    def _prior(self, weights: Mapping[str, float]) -> variance_prior.Prior:
        """Of the variance over seeds, from all methods of the dataset that have these conditions."""
        scores = [[{c.id: c.score for c in r.conditions} for r in several] for several in self.every]
        able = [own for own in scores if len(own) > 1 and all(s.keys() >= weights.keys() for s in own)]
        variances = [float(np.var([sum(w * s[n] for n, w in weights.items()) for s in own], ddof=1)) for own in able]
        return variance_prior.fit(variances, [len(own) - 1 for own in able])

    def _by_row(self, weights: Mapping[str, float]) -> dict[str, Summary] | None:
        """None unless the rows of both are known, and are the same."""
        if self.unpaired:
            return None
        found = [self._summary(i, weights) for i in range(2)]
        known = [summary for summary in found if summary is not None]
        if len(known) < 2 or len({len(summary.rows) for summary in known}) > 1:
            return None
        return dict(zip(self.labels, known, strict=True))

    def _summary(self, side: int, weights: Mapping[str, float]) -> Summary | None:
        if self.kept[side]:
            found = outcomes.summaries(self.records[side], {"line": weights}, self.stores, None)
            return None if found is None else found["line"]
        chosen = [self.index[name] for name in weights]
        own = np.array(list(weights.values()))
        values = [v for r in self.records[side] if (v := self.values[side][r.cell.seed]) is not None]
        return outcomes.from_rows(np.stack([np.tensordot(own, v[chosen], 1) for v in values]), self.groups)

    def rows(self, top: int) -> list[RowDifference]:
        """The rows that differ most, half of them in favour of each where there are enough."""
        if self.target is None:
            return []
        a, b = (np.mean([v.mean(axis=0) for v in own.values() if v is not None], axis=0) for own in self.values)
        gap: NDArray[np.float64] = (a - b).round(9)  # sums of equal terms differ in their last bits
        order = np.argsort(gap, kind="stable")
        half = top // 2
        chosen = [*order[::-1][: top - half], *order[:half]]
        return [
            RowDifference(self.dataset, int(i), _say(self.target[i]), round(a[i], 9) + 0.0, round(b[i], 9) + 0.0)
            for i in dict.fromkeys(chosen)
            if gap[i]
        ]


def _by_score(records: Sequence[Record], weights: Mapping[str, float]) -> Summary:
    scores = [{c.id: c.score for c in r.conditions} for r in records]
    return summarise(np.array([[sum(w * own[name] for name, w in weights.items())] for own in scores]))


def _what(conditions: Sequence[Condition], every: bool) -> Iterable[tuple[str, str, dict[str, float]]]:
    """Kind, name and weights of every comparison the conditions allow."""
    yield "clean", "clean", {"clean": 1.0}
    ids = {c.id for c in conditions}
    singles = {(str(c.modality), str(c.corruption)) for c in conditions if c.kind == "single"}
    whole = frozenset(k for k in singles if set(measures.area_weights(frozenset([k]))) <= ids)
    if whole:
        joint = pillars.robust(whole)
        change = joint if joint.keys() <= ids else pillars.single(whole)
        yield "robust", "change from clean under corruption", change
    for k, c in sorted(whole):
        yield "curve", f"{c} on {k}", measures.area_weights(frozenset([(k, c)]))
    for kind, name in (("joint", "all modalities corrupted"), ("misaligned", "pairing broken")):
        own = [c.id for c in conditions if c.kind == kind]
        if own:
            yield "curve", name, dict.fromkeys(own, 1 / len(own))
    for c in conditions:
        if c.kind == "missing":
            yield "missing", f"without {' + '.join(c.absent)}", {c.id: 1.0}
    if every:
        for c in conditions[1:]:
            yield "condition", c.id, {c.id: 1.0}


def _say(target: np.ndarray) -> str:
    return np.array2string(np.asarray(target), precision=3, separator=" ", threshold=8)


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
