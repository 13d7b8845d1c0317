"""From a claim to its cells and back: what must be run, and what is there already."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from benchmark.errors import UsageError
from benchmark.identity import code_digest
from benchmark.judging.claim import Claim, Rule
from benchmark.judging.results import Results
from benchmark.matrix import Choice, Matrix, parse, read
from benchmark.plan import Plan, make_plan
from leaderboard.export import read as read_export
from leaderboard.record import Cell, Record
from leaderboard.rows import Source
from leaderboard.stats import ALPHA
from leaderboard.store import Store


def matrix_of(name: str, claim: Claim, seeds: int) -> Matrix:
    """The cells of a claim as a matrix, with the recipes, conditions and dataset options of the one it names."""
    base = read(claim.matrix)
    methods = claim.entries if claim.entries == "all" else list(claim.entries)
    own = parse({"methods": methods, "datasets": list(claim.datasets), "seeds": seeds}, f"claim {name}")
    given = {choice.name: choice for choice in base.datasets}
    return replace(
        base,
        source=own.source,
        methods=own.methods,
        datasets=tuple(_with_options(choice, given.get(choice.name)) for choice in own.datasets),
        seeds=own.seeds,
        conditions=claim.conditions or base.conditions,
        recipe={**base.recipe, **claim.recipe},
        recipes={name: {**own, **claim.recipe} for name, own in base.recipes.items()},
        baselines=False,
    )


def plan_of(name: str, claim: Claim, seeds: int) -> Plan:
    """The cells of a claim.

    Raises:
        UsageError: If a method that its rules name would not be run, which is an error of the claim.
    """
    return make_plan(matrix_of(name, claim, seeds)) if claim.datasets else Plan(())


class Published:
    """Reference results as a place where cells are done."""

    def __init__(self, path: Path) -> None:
        export = read_export(path)
        self.rows = export.kept
        self.priors = export.priors("default", "plain")
        self._records = {record.cell.id: record for record in export.records if record.status == "ok"}

    def done(self, cell: str) -> Record | None:
        """The cell's record, if it was published."""
        return self._records.get(cell)


def collect(
    cells: Iterable[Cell],
    store: Store,
    published: Published | None = None,
    experiment: Sequence[Mapping[str, float]] = (),
) -> Results:
    """What is known of these cells.

    An entry is taken from the published results if all its seeds are there, and else wholly from the store: what is
    published of its rows is about all its seeds together.
    """
    records: dict[tuple[str, str], list[Record]] = {}
    sources: dict[str, Source] = {}
    failed: dict[tuple[str, str], str] = {}
    lacking: list[tuple[str, str]] = []
    for key, own in _entries(cells).items():
        whole = [published.done(cell.id) for cell in own] if published else []
        known = [record for record in whole if record is not None]
        if not published or len(known) < len(own):
            known = [record for cell in own if (record := store.done(cell.id)) is not None]
            if why := next(filter(None, (_failure(cell, store) for cell in own)), ""):
                failed[key] = why
            sources |= {record.cell.id: store for record in known}
        else:
            sources |= {record.cell.id: published.rows for record in known}
        if known:
            records[key] = known
        if len(known) < len(own) and key not in failed:
            lacking.append(key)
    return Results(records, sources, experiment, failed, lacking, published.priors if published else {})


def missing(cells: Sequence[Cell], store: Store, published: Published | None) -> list[Cell]:
    """Cells that must be run: of entries that are not published with all these seeds, those that are not done."""
    todo: list[Cell] = []
    for own in _entries(cells).values():
        if not published or any(published.done(cell.id) is None for cell in own):
            todo += [cell for cell in own if store.done(cell.id) is None]
    return todo


def _entries(cells: Iterable[Cell]) -> dict[tuple[str, str], list[Cell]]:
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.label, cell.dataset), []).append(cell)
    return found


@dataclass(frozen=True)
class Need:
    """How many seeds a claim needs, and why not fewer or why even these will not do, a line per rule."""

    seeds: int
    reasons: tuple[str, ...]


def needed(claim: Claim, results: Results) -> Need:
    """From the spread of the results so far, never from their difference: looking at that would bias the verdict."""
    seeds, reasons = claim.seeds, []
    for rule in claim.rules:
        finds = _finds(claim, rule, results)
        enough = next((n for n, size in finds if size <= rule.size), None)
        if not finds:
            reasons.append(f"{rule.what}: decided by the number of datasets or methods, not by seeds")
        elif enough is None:
            _, best = finds[-1]
            reasons.append(f"{rule.what}: even {claim.cap} seeds find only {best:.3f}, {rule.size:g} is asked for")
            seeds = claim.cap
        else:
            reasons.append(f"{rule.what}: {enough} seeds find an effect of {rule.size:g} with a power of .8")
            seeds = max(seeds, enough)
    return Need(seeds, tuple(reasons))


def _finds(claim: Claim, rule: Rule, results: Results) -> list[tuple[int, float]]:
    """The effect that each number of seeds would find; empty if seeds do not decide."""
    alpha = ALPHA / len(claim.rules)
    found = [(n, rule.estimate.detectable(results, n, alpha)) for n in range(claim.seeds, claim.cap + 1)]
    return [(n, size) for n, size in found if size is not None]


def experiment(name: str, claim: Claim, seeds: int, folder: Path) -> None:
    """Run what a claim measures besides cells, a file per seed; what is there and of the same code is not run again.

    Raises:
        UsageError: If a number of it is none.
    """
    for seed, path in enumerate(_files(name, claim, seeds, folder)):
        if path.exists():
            continue
        module, function = str(claim.experiment).split(":")
        numbers = {k: float(v) for k, v in getattr(importlib.import_module(module), function)(seed).items()}
        if bad := [key for key, value in numbers.items() if not math.isfinite(value)]:
            raise UsageError(f"claim {name}: its experiment gave no number for {', '.join(bad)} (seed {seed})")
        Store(folder).write_bytes(path.stem, path.suffix, (json.dumps(numbers, indent=1) + "\n").encode())


def measured(name: str, claim: Claim, seeds: int, folder: Path) -> list[dict[str, float]]:
    """The numbers of a claim's experiment, by seed, as far as it was run."""
    files = _files(name, claim, seeds, folder)
    return [json.loads(path.read_text(encoding="utf-8")) for path in files if path.exists()]


def _files(name: str, claim: Claim, seeds: int, folder: Path) -> list[Path]:
    if claim.experiment is None:
        return []
    spec = find_spec(claim.experiment.partition(":")[0])
    assert spec is not None and spec.origin is not None, claim.experiment
    code = code_digest(Path(spec.origin))[:12]
    # Not `.json`, which are records.
    return [folder / f"{name}-{seed}-{code}.numbers" for seed in range(seeds)]


def _with_options(choice: Choice, base: Choice | None) -> Choice:
    return base if base is not None and not choice.options else choice


def _failure(cell: Cell, store: Store) -> str:
    record = store.read(cell.id) if store.path(cell.id).exists() else None
    return record.error.message.partition("\n")[0] if record is not None and record.error is not None else ""
