"""The Board: one value with everything a table, a page or a plot shows of one track."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from leaderboard import measures, rows, stats
from leaderboard.merge import Evidence, recipe_notes
from leaderboard.record import Record
from leaderboard.robustness import Baselines, Curve, curves
from leaderboard.stats import Across, Estimate, Standing

PILLARS = ("clean", "robust")
CONTROL = "concat"
PUBLISHED_SEEDS = 5


@dataclass(frozen=True)
class Dataset:
    """A dataset as the board knows it; `resolves` is the smallest clean difference its rows and seeds can show."""

    name: str
    version: str
    metric: str
    higher_is_better: bool
    target: str
    modalities: tuple[str, ...]
    trivial: float | None
    bayes: float | None
    rows: int
    seeds: int
    curves: tuple[Curve, ...]
    resolves: float | None = None


@dataclass(frozen=True)
class Entry:
    """A method on a dataset.

    Attributes:
        status: `failed` when any of its seeds failed: a mean over the seeds that survived would flatter it.
        reason: Why there is a hole.
        measures: Name -> estimate over seeds.
        best: Measures of the pillars (`clean`, `area`) in which it is tied with the dataset's leader.
        records: Its records, sorted by seed.
    """

    status: Literal["ok", "failed", "absent"]
    reason: str = ""
    measures: Mapping[str, Estimate] = field(default_factory=dict)
    best: tuple[str, ...] = ()
    records: tuple[Record, ...] = ()


@dataclass(frozen=True)
class Row:
    """A method of the board.

    Attributes:
        standings: Pillar -> its place; only if it is complete on every dataset.
        missing: What keeps it from being ranked.
        entries: Dataset -> entry; one for every dataset of the board.
        means: Measure -> mean over datasets, None unless every dataset has it.
    """

    label: str
    method: str
    family: str
    options: Mapping[str, Any]
    standings: Mapping[str, Standing]
    missing: tuple[str, ...]
    entries: Mapping[str, Entry]
    means: Mapping[str, float | None]

    @property
    def complete(self) -> int:
        """Number of datasets it has a result on."""
        return sum(e.status == "ok" for e in self.entries.values())


@dataclass(frozen=True)
class Board:
    """Everything there is to say of one track.

    Attributes:
        rows: Ranked methods by clean place, then the others.
        resolves: Pillar -> the smallest mean normalised difference this board can show.
        across: Pillar -> the tests across datasets, or why there are none.
        notes: What was set aside, what could not be done.
    """

    track: str
    datasets: tuple[Dataset, ...]
    rows: tuple[Row, ...]
    resolves: Mapping[str, float | None]
    across: Mapping[str, Across]
    notes: tuple[str, ...]


def build(evidence: Evidence, track: str, draws: int = stats.DRAWS) -> Board:
    """Make the board of one track.

    Baselines of relative measures (unimodal, concat) are those of the plain track in both tracks: they are the same
    reference. Methods of different tracks are never in one table.
    """
    common = measures.common_curves(evidence.records)
    here = [r for r in evidence.records if r.cell.track == track]
    failed = [r for r in evidence.failed if r.cell.track == track]
    names = sorted({r.cell.dataset for r in (*here, *failed)})
    labels = sorted({r.cell.label for r in (*here, *failed)})
    baselines = {n: Baselines.of([r for r in evidence.records if r.cell.dataset == n]) for n in names}
    entries = {
        label: {n: _entry(label, n, here, failed, baselines[n], common.get(n, frozenset())) for n in names}
        for label in labels
    }
    pillars = {p: _pillar(p, entries, names, evidence, common, draws) for p in PILLARS}
    notes = [*evidence.notes, *recipe_notes(here), *_notes(entries, common, here)]
    for pillar in pillars.values():
        notes += [n for n in pillar.notes if n not in notes]
    datasets = tuple(
        _dataset(n, [r for r in (*here, *failed) if r.cell.dataset == n], common, pillars["clean"].by_dataset.get(n))
        for n in names
    )
    board_rows = [_row(label, entries[label], pillars, here + failed) for label in labels]
    return Board(
        track,
        datasets,
        tuple(sorted(board_rows, key=_order)),
        {p: pillars[p].resolves for p in PILLARS},
        {p: pillars[p].across for p in PILLARS},
        tuple(notes),
    )


def build_all(evidence: Evidence, draws: int = stats.DRAWS) -> tuple[Board, ...]:
    """One board per track that has records, plain first."""
    tracks = {r.cell.track for r in (*evidence.records, *evidence.failed)}
    return tuple(build(evidence, t, draws) for t in ("plain", "augmented") if t in tracks)


def _entry(
    label: str,
    dataset: str,
    here: Sequence[Record],
    failed: Sequence[Record],
    baselines: Baselines,
    common: frozenset[Curve],
) -> Entry:
    own = tuple(r for r in here if r.cell.label == label and r.cell.dataset == dataset)
    lost = [r for r in failed if r.cell.label == label and r.cell.dataset == dataset]
    if lost:
        seeds = ", ".join(str(r.cell.seed) for r in lost)
        error = lost[0].error
        reason = f"seed {seeds} failed" + (f": {error.type}: {error.message}" if error else "")
        return Entry("failed", reason, records=own)
    if not own:
        return Entry("absent", "not run")
    taken = [measures.measure(r, baselines, common) for r in own]
    # A measure some seed lacks is a hole: its mean would be over other seeds than the rest of the row.
    shared = [name for name in measures.MEASURES if all(name in t for t in taken)]
    return Entry("ok", "", {name: stats.estimate([t[name] for t in taken]) for name in shared}, (), own)


@dataclass(frozen=True)
class _Pillar:
    standings: Mapping[str, Standing]
    best: Mapping[str, tuple[str, ...]]
    by_dataset: Mapping[str, float | None]
    resolves: float | None
    across: Across
    notes: tuple[str, ...]


def _pillar(
    pillar: str,
    entries: Mapping[str, Mapping[str, Entry]],
    names: Sequence[str],
    evidence: Evidence,
    common: Mapping[str, frozenset[Curve]],
    draws: int,
) -> _Pillar:
    """Resample every dataset once; rank the methods that are complete."""
    measure = "clean" if pillar == "clean" else "area"
    drawn: dict[str, tuple[list[str], stats.Floats]] = {}
    notes: list[str] = []
    best: dict[str, tuple[str, ...]] = {}
    by_dataset: dict[str, float | None] = {}
    for n in names:
        labels = [m for m in entries if _rankable(entries[m][n], measure)]
        if not labels:
            continue
        weights = {"clean": 1.0} if pillar == "clean" else measures.area_weights(common[n])
        sample, note = _sample(n, {m: entries[m][n].records for m in labels}, weights, evidence)
        notes += note
        found = stats.resample(n, sample, labels, draws)
        drawn[n] = labels, found
        points = _points(entries, labels, [n], measure)
        order = sorted(range(len(labels)), key=lambda i: (-points[0, i], labels[i]))
        groups = stats.tie_groups(order, found, groups=1)
        best[n] = tuple(labels[i] for i, g in groups.items() if g == 1)
        gap = stats.resolvable_difference(found, order[0])
        scale = _scale(entries[labels[0]][n].records[0]) if pillar == "clean" else 1.0
        by_dataset[n] = None if gap is None else gap * scale
    ranked = [m for m in entries if all(_rankable(entries[m][n], measure) for n in names)]
    if not ranked:
        nobody = Across("none", "No method is complete on every dataset: nothing is ranked.")
        return _Pillar({}, best, by_dataset, None, nobody, tuple(notes))
    stacked = np.stack([drawn[n][1][:, [drawn[n][0].index(m) for m in ranked]] for n in names], axis=1)
    points = _points(entries, ranked, names, measure)
    standings = stats.standings(ranked, points, stacked)
    leader = ranked.index(standings[0].method)
    return _Pillar(
        {s.method: s for s in standings},
        best,
        by_dataset,
        stats.resolvable_difference(stacked.mean(axis=1), leader),
        stats.across(ranked, points, CONTROL),
        tuple(notes),
    )


def _points(
    entries: Mapping[str, Mapping[str, Entry]], labels: Sequence[str], names: Sequence[str], measure: str
) -> stats.Floats:
    """Normalised scores `[datasets, methods]`, higher is better."""
    return np.array([[_normalised(entries[m][n], measure) for m in labels] for n in names])


def _rankable(entry: Entry, measure: str) -> bool:
    return measure in entry.measures and np.isfinite(_normalised(entry, measure))


def _normalised(entry: Entry, measure: str) -> float:
    mean = entry.measures[measure].mean
    return measures.normalise(mean, entry.records[0]) if measure == "clean" else mean


def _scale(record: Record) -> float:
    """What one unit of normalised score is in the metric's own units."""
    return abs(1 / (measures.normalise(1.0, record) - measures.normalise(0.0, record)))


def _sample(
    dataset: str, records: Mapping[str, Sequence[Record]], weights: Mapping[str, float], evidence: Evidence
) -> tuple[stats.Rows, list[str]]:
    """Per-row normalised contributions; only the scores, with a note, where some predictions are not to be had."""
    found: dict[str, dict[int, stats.Floats]] = {}
    sizes: set[int] = set()
    for label, several in records.items():
        for record in several:
            values = rows.contributions(evidence.stores[record.cell.id], record, weights)
            if values is None:
                sizes.add(-1)
                continue
            sizes.add(len(values))
            found.setdefault(label, {})[record.cell.seed] = _normalise_rows(values, record)
    if len(sizes) == 1 and -1 not in sizes:
        return found, []
    reason = "predictions are missing or cannot be resampled" if -1 in sizes else "cells have different test rows"
    scores = {
        label: {r.cell.seed: _normalise_rows(np.array([_weighted(r, weights)]), r) for r in several}
        for label, several in records.items()
    }
    return scores, [f"{dataset}: {reason}, so intervals there are over seeds only"]


def _weighted(record: Record, weights: Mapping[str, float]) -> float:
    by_id = {c.id: c.score for c in record.conditions}
    return sum(w * by_id[name] for name, w in weights.items())


def _normalise_rows(values: stats.Floats, record: Record) -> stats.Floats:
    # Normalisation is affine, so it may be taken per row.
    zero = measures.normalise(0.0, record)
    return zero + values * (measures.normalise(1.0, record) - zero)


def _row(label: str, entries: Mapping[str, Entry], pillars: Mapping[str, _Pillar], records: Sequence[Record]) -> Row:
    any_record = next(r for r in records if r.cell.label == label)
    marked = {
        n: Entry(
            e.status,
            e.reason,
            e.measures,
            tuple(m for m, p in (("clean", "clean"), ("area", "robust")) if label in pillars[p].best.get(n, ())),
            e.records,
        )
        for n, e in entries.items()
    }
    missing = tuple(f"{n}: {e.reason}" for n, e in entries.items() if e.status != "ok")
    return Row(
        label,
        any_record.cell.method,
        any_record.cell.family,
        any_record.cell.options,
        {p: pillars[p].standings[label] for p in PILLARS if label in pillars[p].standings},
        missing,
        marked,
        {name: _mean(name, entries) for name in measures.MEASURES},
    )


def _mean(name: str, entries: Mapping[str, Entry]) -> float | None:
    if not all(_rankable(e, name) for e in entries.values()):
        return None
    return float(np.mean([_normalised(e, name) for e in entries.values()]))


def _order(row: Row) -> tuple[Any, ...]:
    standing = row.standings.get("clean")
    if standing is not None:
        return (0, standing.mean_rank, -(row.means["clean"] or 0.0), row.label)
    return (1, -row.complete, row.label)


def _dataset(
    name: str, records: Sequence[Record], common: Mapping[str, frozenset[Curve]], resolves: float | None
) -> Dataset:
    r = next((r for r in records if r.status == "ok"), records[0])
    return Dataset(
        name,
        r.cell.dataset_version,
        r.cell.metric,
        r.cell.higher_is_better,
        r.cell.target,
        r.cell.modalities,
        r.trivial,
        r.cell.bayes,
        r.rows,
        len({x.cell.seed for x in records}),
        tuple(sorted(common.get(name, ()))),
        resolves,
    )


def _notes(
    entries: Mapping[str, Mapping[str, Entry]], common: Mapping[str, frozenset[Curve]], here: Sequence[Record]
) -> list[str]:
    notes: list[str] = []
    for label, own in entries.items():
        notes += [f"{label} on {n}: {e.reason}" for n, e in own.items() if e.status == "failed"]
    collapsed = {
        (r.cell.label, r.cell.dataset, k) for r in here for k, v in r.summary.items() if k.endswith("_collapsed") and v
    }
    notes += [f"{label} on {n}: {k.replace('_', ' ')}" for label, n, k in sorted(collapsed)]
    for name, kept in sorted(common.items()):
        dropped = {c for r in here if r.cell.dataset == name for c in curves(r)} - kept
        if dropped:
            listed = ", ".join(f"{c} on {k}" for k, c in sorted(dropped))
            notes.append(f"{name}: the area is over the {len(kept)} curves all methods have; not in it: {listed}")
        if any(r.cell.dataset == name and r.trivial is None for r in here):
            notes.append(f"{name}: no trivial score in the records, so nothing is normalised or ranked there")
    return notes + _seed_notes(entries, sorted({r.cell.dataset for r in here}))


def _seed_notes(entries: Mapping[str, Mapping[str, Entry]], names: Sequence[str]) -> list[str]:
    notes: list[str] = []
    few: dict[int, list[str]] = {}
    for name in names:
        number = {m: len(e[name].records) for m, e in entries.items() if e[name].status == "ok"}
        most = max(number.values(), default=0)
        if less := sorted(m for m, n in number.items() if n < most):
            notes.append(f"{name}: fewer than {most} seeds for {', '.join(less[:6])}{', ...' * (len(less) > 6)}")
        if 0 < most < PUBLISHED_SEEDS:
            few.setdefault(most, []).append(name)
    for most, several in sorted(few.items()):
        where = "every dataset" if len(several) == len(names) else ", ".join(several)
        alone = ", and no interval or tie here knows how much seeds differ" if most == 1 else ""
        plural = "seed" if most == 1 else "seeds"
        notes.append(f"{most} {plural} on {where}: a published table has at least {PUBLISHED_SEEDS}{alone}")
    return notes
