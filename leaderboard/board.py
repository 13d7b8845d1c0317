"""The Board: one value with everything a table, a page or a plot shows of one track."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from leaderboard import board_notes, measures, panels, pillars, stats
from leaderboard.leagues import League, leagues
from leaderboard.merge import Evidence
from leaderboard.moderated import Panel
from leaderboard.panels import Side
from leaderboard.ranking import PILLARS, Ranking, Standing, best_of_each, rank
from leaderboard.record import Record
from leaderboard.robustness import Baselines, Curve
from leaderboard.showing import Shown
from leaderboard.stats import Across, Estimate

BEST_UNIMODAL = "best unimodal"
TRIVIAL = "trivial predictor"
RANKED_SEEDS = 5


@dataclass(frozen=True)
class Dataset:
    """A dataset as the board knows it.

    Attributes:
        inputs: What each modality is (`image 1x8x4`).
        resolves: The smallest clean difference from the control its rows and seeds show with 80 % power.
        unimodal: Label of the unimodal baseline that is best on validation.
        without: Modality -> chance-normalised clean score of the best unimodal baseline on the others.
    """

    name: str
    version: str
    metric: str
    higher_is_better: bool
    target: str
    modalities: tuple[str, ...]
    inputs: tuple[str, ...]
    trivial: float | None
    bayes: float | None
    rows: int
    seeds: int
    curves: tuple[Curve, ...]
    resolves: float | None
    unimodal: str | None
    without: Mapping[str, float]


@dataclass(frozen=True)
class Entry:
    """A method on a dataset.

    Attributes:
        status: `failed` when any of its seeds failed: a mean over the seeds that survived would flatter it.
        reason: Why there is a hole.
        measures: Name -> estimate over seeds, and over rows where the measure is one of rows.
        best: Measures of the pillars in which it may be the best of the dataset.
        records: Its records, sorted by seed.
        unconverged: How many of them were still getting better when their epochs were over.
    """

    status: Literal["ok", "failed", "not applicable", "not run"]
    reason: str = ""
    measures: Mapping[str, Estimate] = field(default_factory=dict[str, Estimate])
    best: tuple[str, ...] = ()
    records: tuple[Record, ...] = ()
    unconverged: int = 0


@dataclass(frozen=True)
class Row:
    """A method of the board.

    Attributes:
        standings: Pillar -> its place.
        holes: Datasets without a result, and why.
        entries: Dataset -> entry; one for every dataset of the board.
        means: Measure -> mean over datasets, None unless every dataset has it.
        folded: Label -> dataset -> entry, of the methods this row stands for.
    """

    label: str
    method: str
    family: str
    options: Mapping[str, Any]
    standings: Mapping[str, Standing]
    holes: tuple[str, ...]
    entries: Mapping[str, Entry]
    means: Mapping[str, float | None]
    folded: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict[str, Mapping[str, Entry]])

    @property
    def complete(self) -> int:
        """Number of datasets it has a result on."""
        return sum(e.status == "ok" for e in self.entries.values())


@dataclass(frozen=True)
class Board(Shown):
    """Everything there is to say of one track.

    Attributes:
        rows: The references, then by clean advantage.
        ranked: Whether there are seeds enough to number the rows.
        leagues: Shapes of task that only a part of the datasets has.
        resolves: Pillar -> the smallest advantage this board shows with 80 % power, of a method looked at alone.
        adjusted: Pillar -> the same, of one of all that are compared.
        across: Pillar -> the tests across datasets, or why there are none.
        notes: What was set aside, what could not be done.
        control: Label of the method that all are compared with.
    """

    track: str
    datasets: tuple[Dataset, ...]
    rows: tuple[Row, ...]
    ranked: bool
    resolves: Mapping[str, float | None]
    adjusted: Mapping[str, float | None]
    across: Mapping[str, Across]
    leagues: tuple[League, ...]
    notes: tuple[str, ...]
    control: str

    @property
    def references(self) -> tuple[str, ...]:
        """Rows that stand above all others, whatever these are ordered by: what every method is to be read against."""
        return _references(self.control)

    def order(self, pillar: str) -> list[Standing]:
        """The methods with a place in a pillar, best first."""
        found = [r.standings[pillar] for r in self.rows if pillar in r.standings]
        return sorted(found, key=lambda s: (-s.advantage, s.method))


Held = dict[str, dict[str, tuple[Record, ...]]]
"""Dataset -> label -> records by seed."""


def build(evidence: Evidence, track: str) -> Board:
    """Make the board of one track.

    Baselines of relative measures (unimodal, concat) are those of the plain track in both tracks: they are the same
    reference. Methods of different tracks are never in one table.
    """
    here = [r for r in evidence.records if r.cell.track == track]
    failed = [r for r in evidence.failed if r.cell.track == track]
    control = evidence.control
    lost = {(r.cell.label, r.cell.dataset) for r in failed}
    held = _held(evidence, track)
    names = list(held)
    baselines = {n: Baselines.of([r for r in evidence.records if r.cell.dataset == n]) for n in names}
    sides = _sides(evidence, held)
    labels = sorted({r.cell.label for r in (*here, *failed)})
    unimodal = {r.cell.label for r in (*here, *failed) if r.cell.method == "unimodal"}
    chosen = {n: _chosen(baselines[n], own) for n, own in held.items()}
    compared = {p: _compared(p, sides, chosen, held, control) for p in PILLARS}
    placed = [*(m for m in labels if m not in unimodal), BEST_UNIMODAL]
    rankings = {p: rank(own, placed, control) for p, own in compared.items()}
    tops = {PILLARS[p]: best_of_each(own, placed) for p, own in compared.items()}
    taken = {n: panels.estimates(own, sides[n], baselines[n]) for n, own in held.items() if own}

    def entry(label: str, n: str) -> Entry:
        if label not in held[n]:
            return _hole(label, n, failed if (label, n) in lost else (), evidence)
        shown = BEST_UNIMODAL if label == chosen[n] else label
        best = tuple(m for m, by_dataset in tops.items() if shown in by_dataset.get(n, ()))
        own = held[n][label]
        return Entry("ok", "", taken[n][label], best, own, sum(not r.converged for r in own))

    entries = {label: {n: entry(label, n) for n in names} for label in labels}
    first = {r.cell.label: r for r in reversed((*here, *failed))}
    rows = [_row(m, entries[m], rankings, first[m]) for m in labels if m not in unimodal]
    if unimodal:
        rows.append(_unimodal_row(chosen, {m: entries[m] for m in sorted(unimodal)}, rankings))
    by_dataset = {n: [r for r in (*here, *failed) if r.cell.dataset == n] for n in names}
    resolves = rankings["clean"].by_dataset
    datasets = tuple(_dataset(n, own, sides.get(n), resolves.get(n), baselines[n]) for n, own in by_dataset.items())
    return Board(
        track,
        datasets,
        tuple(sorted([*rows, _trivial_row(datasets)], key=partial(_order, control=control))),
        all(d.seeds >= RANKED_SEEDS for d in datasets),
        {p: rankings[p].resolves for p in PILLARS},
        {p: rankings[p].adjusted for p in PILLARS},
        {p: rankings[p].across for p in PILLARS},
        leagues({n: own[0].cell for n, own in by_dataset.items()}, compared, placed, control),
        tuple(board_notes.notes(evidence, here, failed, sides, baselines, control)),
        control,
    )


def of_league(board: Board, name: str) -> Board:
    """The board of one league: its datasets, the methods that are complete on them, their places among each other.

    Raises:
        KeyError: If the board has no such league.
    """
    league = next((league for league in board.leagues if league.name == name), None)
    if league is None:
        known = ", ".join(league.name for league in board.leagues) or "none: all its datasets are of one shape"
        raise KeyError(f"no league named {name!r} on the {board.track} board. Known: {known}")
    rows: list[Row] = []
    for row in board.rows:
        standings = {p: r.standings[row.label] for p, r in league.rankings.items() if row.label in r.standings}
        if standings or row.label in board.references:
            entries = {n: row.entries[n] for n in league.datasets}
            folded = {label: {n: own[n] for n in league.datasets} for label, own in row.folded.items()}
            holes = tuple(f"{n}: {e.reason}" for n, e in entries.items() if e.status != "ok")
            means = _means(entries) if row.label != TRIVIAL else row.means
            rows.append(replace(row, standings=standings, holes=holes, entries=entries, means=means, folded=folded))
    return replace(
        board,
        datasets=tuple(d for d in board.datasets if d.name in league.datasets),
        rows=tuple(sorted(rows, key=partial(_order, control=board.control))),
        resolves={p: r.resolves for p, r in league.rankings.items()},
        adjusted={p: r.adjusted for p, r in league.rankings.items()},
        across={p: r.across for p, r in league.rankings.items()},
        leagues=(),
    )


def build_all(evidence: Evidence) -> tuple[Board, ...]:
    """One board per track that has records, plain first."""
    tracks = {r.cell.track for r in (*evidence.records, *evidence.failed)}
    return tuple(build(evidence, t) for t in ("plain", "augmented") if t in tracks)


def sides(evidence: Evidence, track: str) -> dict[str, Side]:
    """Dataset -> its methods side by side, as the board of a track has them."""
    return _sides(evidence, _held(evidence, track))


def _held(evidence: Evidence, track: str) -> Held:
    here = [r for r in evidence.records if r.cell.track == track]
    failed = [r for r in evidence.failed if r.cell.track == track]
    lost = {(r.cell.label, r.cell.dataset) for r in failed}
    held: Held = {n: {} for n in sorted({r.cell.dataset for r in (*here, *failed)})}
    for r in sorted((r for r in here if (r.cell.label, r.cell.dataset) not in lost), key=lambda r: r.cell.label):
        held[r.cell.dataset][r.cell.label] = (*held[r.cell.dataset].get(r.cell.label, ()), r)
    return held


def _sides(evidence: Evidence, held: Held) -> dict[str, Side]:
    return {n: _side(n, own, _control(n, held, evidence), evidence) for n, own in held.items() if own}


def _control(dataset: str, held: Held, evidence: Evidence) -> tuple[Record, ...]:
    """The control of this track; where it has none, that of the plain one."""
    name = evidence.control
    if any(name in records for records in held.values()):
        return held[dataset].get(name, ())
    plain = [r for r in evidence.records if r.cell.label == name and r.cell.track == "plain"]
    return tuple(r for r in plain if r.cell.dataset == dataset)


def _side(name: str, own: Mapping[str, tuple[Record, ...]], control: tuple[Record, ...], evidence: Evidence) -> Side:
    methods = {**own, evidence.control: control} if control else own
    reference = control or [r for several in own.values() for r in several]
    return panels.side(methods, reference, evidence.stores, evidence.priors.get(name, {}))


def _chosen(baselines: Baselines, own: Mapping[str, Sequence[Record]]) -> str | None:
    label = baselines.chosen()
    return label if label in own else None


def _compared(
    pillar: str, sides: Mapping[str, Side], chosen: Mapping[str, str | None], held: Held, control: str
) -> dict[str, Panel]:
    """By dataset, the methods that have a place in a pillar."""
    found: dict[str, Panel] = {}
    for n, side in sides.items():
        own = side.panels.get(PILLARS[pillar])
        if own is None or not side.normal:
            continue
        kept = set(own.methods)
        if pillar == "robust" and control in own.methods:
            # Who is near chance has nothing to lose, and would lead.
            trivial = next(r.trivial for several in held[n].values() for r in several)
            kept = pillars.strong(side.panels["clean"], trivial or 0.0, control)
        renamed = {BEST_UNIMODAL if m == chosen[n] else m: s for m, s in own.methods.items() if m in kept}
        found[n] = Panel(renamed, own.prior, own.unit)
    return found


def _hole(label: str, dataset: str, failed: Sequence[Record], evidence: Evidence) -> Entry:
    lost = [r for r in failed if r.cell.label == label and r.cell.dataset == dataset]
    if lost:
        seeds, error = ", ".join(str(r.cell.seed) for r in lost), lost[0].error
        return Entry("failed", f"seed {seeds} failed" + (f": {error.type}: {error.message}" if error else ""))
    reason = evidence.not_applicable.get((label, dataset))
    return Entry("not applicable", f"not applicable: {reason}") if reason else Entry("not run", "not run")


def _row(label: str, entries: Mapping[str, Entry], rankings: Mapping[str, Ranking], record: Record) -> Row:
    cell = record.cell
    return _placed(label, cell.method, cell.family, cell.options, entries, rankings, {})


def _unimodal_row(
    chosen: Mapping[str, str | None], folded: Mapping[str, Mapping[str, Entry]], rankings: Mapping[str, Ranking]
) -> Row:
    """One row for all modalities alone: on each dataset the one that is best on validation."""
    any_label = next(iter(folded))
    entries = {n: folded[label or any_label][n] for n, label in chosen.items()}
    options = {n: label for n, label in chosen.items() if label}
    return _placed(BEST_UNIMODAL, "unimodal", "baseline", options, entries, rankings, folded)


def _trivial_row(datasets: Sequence[Dataset]) -> Row:
    """What a predictor scores that never looks at its inputs: who is not above it has learnt nothing."""
    entries = {
        d.name: Entry("not run", "no trivial score in the records")
        if d.trivial is None
        else Entry("ok", measures={"clean": Estimate(d.trivial, None, None, ())})
        for d in datasets
    }
    return Row(TRIVIAL, "", "reference", {}, {}, (), entries, dict.fromkeys(measures.MEASURES) | {"clean": 0.0})


def _placed(
    label: str,
    method: str,
    family: str,
    options: Mapping[str, Any],
    entries: Mapping[str, Entry],
    rankings: Mapping[str, Ranking],
    folded: Mapping[str, Mapping[str, Entry]],
) -> Row:
    standings = {p: ranking.standings[label] for p, ranking in rankings.items() if label in ranking.standings}
    holes = tuple(f"{n}: {e.reason}" for n, e in entries.items() if e.status != "ok")
    return Row(label, method, family, options, standings, holes, entries, _means(entries), folded)


def _means(entries: Mapping[str, Entry]) -> dict[str, float | None]:
    return {name: _mean(name, entries) for name in measures.MEASURES}


def _mean(name: str, entries: Mapping[str, Entry]) -> float | None:
    values = [_normalised(e, name) for e in entries.values() if name in e.measures]
    if not values or len(values) < len(entries) or not all(map(math.isfinite, values)):
        return None
    return stats.mean(values)


def _normalised(entry: Entry, measure: str) -> float:
    mean = entry.measures[measure].mean
    return measures.normalise(mean, entry.records[0]) if measure == "clean" else mean


def _references(control: str) -> tuple[str, ...]:
    return (TRIVIAL, BEST_UNIMODAL, control)


def _order(row: Row, control: str) -> tuple[Any, ...]:
    references = _references(control)
    if row.label in references:
        return (-1, references.index(row.label))
    standing = row.standings.get("clean")
    if standing is not None:
        return (0, -standing.advantage, row.label)
    return (1, -row.complete, -(row.means["clean"] or 0.0), row.label)


def _dataset(
    name: str, records: Sequence[Record], side: Side | None, resolves: float | None, baselines: Baselines
) -> Dataset:
    r = next((r for r in records if r.status == "ok"), records[0])
    scale = abs(side.panels["clean"].unit) if side else 1.0
    without = {k: label for k in r.cell.modalities if (label := baselines.chosen(without=k)) is not None}
    return Dataset(
        name,
        r.cell.dataset_version,
        r.cell.metric,
        r.cell.higher_is_better,
        r.cell.target,
        r.cell.modalities,
        r.cell.inputs,
        r.trivial,
        r.cell.bayes,
        r.rows,
        len({x.cell.seed for x in records}),
        tuple(sorted(side.curves)) if side else (),
        None if resolves is None else resolves / scale,
        baselines.chosen(),
        {
            k: float(np.mean([measures.normalise(x.clean, x) for x in baselines.unimodal[label].values()]))
            for k, label in without.items()
        },
    )
