"""Equal tuning: every method gets the same number of trials on every dataset, and its choice never sees a test row.

Trial 0 is the default. The others are points of one scrambled Sobol sequence per dataset: its first coordinates are
the learning rate, weight decay and dropout, the same for all methods, the others the method's own `search` space.
Trials are cells that train with other seeds than those of a board and are measured on the validation split.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import tomli_w
import torch
from scipy.stats import qmc

from benchmark.build import build_dataset, build_method, undrawn
from benchmark.errors import UsageError
from benchmark.options import plain, resolve
from benchmark.plan import Plan
from benchmark.seeds import derive
from datamodules.sources.files import write_whole
from datamodules.spec import Task
from leaderboard.record import Cell, Condition, Record, Tuning
from methods.parts.search import LogUniform, Space, Uniform
from methods.registry import methods

FIRST_SEED = 1000  # of trials; those of a board start at 0
SHARED: Mapping[str, Space] = {
    "lr": LogUniform(3e-4, 1e-2),
    "weight_decay": LogUniform(1e-6, 1e-1),
    "dropout": Uniform(0.0, 0.5),
}
OWN = 2  # options of its own that a method may search, at most


@dataclass(frozen=True)
class Trials:
    """The trials of one entry: `cells[t]` has a cell for each seed of trial t."""

    entry: Cell
    cells: tuple[tuple[Cell, ...], ...]


class Chosen(msgspec.Struct, frozen=True):
    """The choice of one entry.

    Attributes:
        scores: Of all trials, on validation; NaN for one that failed.
        recipe: Values that differ from the default, as do those of `options`.
    """

    label: str
    dataset: str
    trial: int
    scores: tuple[float, ...]
    recipe: dict[str, float]
    options: dict[str, Any]


class Tuned(msgspec.Struct, frozen=True):
    """All choices of a matrix."""

    trials: int
    seeds: int
    choice: tuple[Chosen, ...]

    @property
    def digest(self) -> str:
        """Of the choices, by which an edit is noticed."""
        return _digest(self)

    def of(self, choice: Chosen) -> str:
        """The digest that a cell at a choice keeps: of that choice alone, which choices made later do not change."""
        return _digest((self.trials, self.seeds, choice))


def plan_trials(plan: Plan, trials: int, seeds: int) -> tuple[Trials, ...]:
    """The trials of every entry of a plan.

    Raises:
        UsageError: If a point of a method's space does not build.
    """
    entries = {(cell.label, cell.dataset): cell for cell in reversed(plan.cells)}
    return tuple(Trials(entry, _cells(entry, trials, seeds)) for entry in reversed(entries.values()))


def choose(
    trials: Iterable[Trials], records: Mapping[str, Record], number: int, seeds: int, others: Iterable[Chosen] = ()
) -> Tuned:
    """The best trial of each entry by its mean validation score, of equals the first; beside choices of others."""
    chosen = [*others]
    for one in trials:
        sign = 1 if one.entry.higher_is_better else -1
        scores = [_score([records.get(cell.id) for cell in cells], sign) for cells in one.cells]
        if not any(map(math.isfinite, scores)):
            raise UsageError(f"{one.entry.label} on {one.entry.dataset}: every trial failed; `polymodal show` says why")
        best = scores.index(max(scores))
        cell = one.cells[best][0]
        chosen.append(
            Chosen(
                one.entry.label,
                one.entry.dataset,
                best,
                tuple(sign * score if math.isfinite(score) else math.nan for score in scores),
                {key: cell.recipe[key] for key in SHARED if cell.recipe[key] != one.entry.recipe[key]},
                {key: value for key, value in cell.options.items() if value != one.entry.options[key]},
            )
        )
    return Tuned(number, seeds, tuple(sorted(chosen, key=lambda c: (c.dataset, c.label))))


def kept(path: Path, trials: Iterable[Trials], number: int, seeds: int) -> tuple[Chosen, ...]:
    """What a file has chosen for entries that are not tuned now: a matrix may be tuned a dataset at a time.

    Raises:
        UsageError: If the file cannot be read, or chose for them by another number of trials: equal trials for all.
    """
    if not path.exists():
        return ()
    before, now = read(path), {(one.entry.label, one.entry.dataset) for one in trials}
    others = tuple(c for c in before.choice if (c.label, c.dataset) not in now)
    if others and (before.trials, before.seeds) != (number, seeds):
        raise UsageError(
            f"{path} has choices by {before.trials} trials of {before.seeds} seeds for others, {others[0].label} on "
            f"{others[0].dataset} among them: give as many, or another --results folder"
        )
    return others


def write(tuned: Tuned, path: Path) -> None:
    """Write the choices, readable and complete."""
    raw = {"digest": tuned.digest, **msgspec.to_builtins(tuned)}
    write_whole(path, tomli_w.dumps(raw).encode())


def read(path: Path) -> Tuned:
    """Read choices that nobody has edited since they were made.

    Raises:
        UsageError: If the file cannot be read, or its choices are not those that were written.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        digest = raw.pop("digest", None)
        tuned = msgspec.convert(raw, Tuned)
    except (OSError, ValueError, RecursionError) as error:  # of TOML, of Unicode, and what is no choice
        raise UsageError(f"{path} is no file of `polymodal tune`: {error}") from None
    if tuned.digest != digest:
        raise UsageError(
            f"{path} was changed after `polymodal tune` wrote it: tune again, or write a matrix of your own"
        )
    return tuned


def apply(plan: Plan, tuned: Tuned) -> Plan:
    """The plan with every entry at its choice.

    Raises:
        UsageError: If an entry was not tuned.
    """
    choices = {(c.label, c.dataset): c for c in tuned.choice}
    missing = sorted({(c.label, c.dataset) for c in plan.cells} - set(choices))
    if missing:
        listed = ", ".join(f"{label} on {dataset}" for label, dataset in missing[:5])
        raise UsageError(f"not tuned: {listed}{', ...' * (len(missing) > 5)}. Run `polymodal tune` with them first")
    own = [(cell, choices[cell.label, cell.dataset]) for cell in plan.cells]
    return replace(plan, cells=tuple(_tuned(cell, choice, tuned.of(choice)) for cell, choice in own))


def points(dataset: str, trials: int) -> list[list[float]]:
    """Coordinates of trials 1, 2, ... on a dataset; the same for every method and any larger number of trials."""
    engine = qmc.Sobol(len(SHARED) + OWN, scramble=True, rng=derive("tune", dataset))
    power = max(0, (trials - 2).bit_length())
    return engine.random_base2(power)[: max(0, trials - 1)].tolist()


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def _cells(entry: Cell, trials: int, seeds: int) -> tuple[tuple[Cell, ...], ...]:
    shared = {"split": "val", "conditions": (Condition("clean"),), "corruptions": {}}
    default = msgspec.structs.replace(entry, **shared)
    tried = [default, *(_at(default, u) for u in points(entry.dataset, trials))]
    return tuple(tuple(cell.with_seed(FIRST_SEED + s) for s in range(seeds)) for cell in tried)


def _at(entry: Cell, u: Sequence[float]) -> Cell:
    """The entry at a point of the search space."""
    cls = methods.get(entry.method)
    recipe = {key: space.at(x) for (key, space), x in zip(SHARED.items(), u, strict=False)}
    options = {key: space.at(x) for (key, space), x in zip(cls.search.items(), u[len(SHARED) :], strict=False)}
    return _with(entry, recipe, options)


def _tuned(cell: Cell, choice: Chosen, digest: str) -> Cell:
    made = _with(cell, choice.recipe, choice.options)
    scores = tuple(score if math.isfinite(score) else None for score in choice.scores)
    return msgspec.structs.replace(made, tuning=Tuning(digest, choice.trial, scores))


def _with(cell: Cell, recipe: Mapping[str, Any], options: Mapping[str, Any]) -> Cell:
    """The cell with other values, its parameters counted again."""
    cls = methods.get(cell.method)
    where = f"{cell.label}, search space"
    resolved = resolve(cell.method, cls, {**cell.options, **options}, where)
    values = {**cell.recipe, **recipe}
    task = _task(cell.dataset, json.dumps(cell.dataset_options))
    with undrawn(), torch.device("meta"):
        size = sum(p.numel() for p in build_method(cell.method, resolved, task, values).parameters())
    given = {key: plain(value) for key, value in resolved.items()}
    return msgspec.structs.replace(cell, recipe=values, options=given, parameters=size)


@lru_cache(maxsize=64)
def _task(dataset: str, options: str) -> Task:
    return build_dataset(dataset, json.loads(options)).task


def _score(records: Sequence[Record | None], sign: int) -> float:
    """Mean validation score of a trial, larger is better; minus infinity if it failed with some seed."""
    if any(record is None or record.status != "ok" for record in records):
        return -math.inf
    return statistics.fmean(sign * record.clean for record in records if record is not None)
