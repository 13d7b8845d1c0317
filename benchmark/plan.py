"""The plan.

A matrix resolved into cells, each complete, checked and addressed by a hash of everything that decides its numbers.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from benchmark import conditions as conditions_
from benchmark.identity import digest
from benchmark.matrix import Choice, Matrix
from benchmark.options import UsageError, axes, divide, parameters, plain, resolve
from benchmark.trainer import TrainerOptions
from datamodules.base import DataModule
from datamodules.encoders.features import Features
from datamodules.registry import datasets, did_you_mean
from datamodules.spec import Task
from leaderboard.record import SCHEMA, Condition
from methods.base import Base, Method, Recipe
from methods.metrics import higher_is_better
from methods.registry import methods

BASELINES = ("concat", "unimodal")


@dataclass(frozen=True)
class Cell:
    """One run.

    A method on a dataset with a seed. Everything in it is plain data, so that it can go to another process.
    """

    id: str
    method: str
    label: str
    family: str
    track: str
    options: Mapping[str, Any]
    dataset: str
    dataset_version: str
    dataset_options: Mapping[str, Any]
    seed: int
    recipe: Mapping[str, Any]
    conditions: tuple[Condition, ...]
    trainer: Mapping[str, Any]
    modalities: tuple[str, ...]
    target: str
    metric: str
    higher_is_better: bool
    bayes: float | None
    parameters: int
    source: str

    def __post_init__(self) -> None:
        json.dumps([self.options, self.dataset_options])  # plain data, or an error here and not in a worker


@dataclass(frozen=True)
class NotApplicable:
    """A pair the matrix asks for that makes no sense, and why."""

    label: str
    dataset: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """Every cell of a matrix, datasets together; what was left out, what was added, and what the methods warn of."""

    cells: tuple[Cell, ...]
    not_applicable: tuple[NotApplicable, ...] = ()
    added: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def make_plan(matrix: Matrix) -> Plan:
    """Resolve a matrix: expand its axes, check every value by building every model on the meta device.

    Raises:
        UsageError: For the first thing that is wrong, naming file, key and what would be right.
    """
    if not matrix.datasets:
        raise UsageError(f"{matrix.source}: no datasets. Known: {', '.join(datasets.names())}")
    if not matrix.methods:
        raise UsageError(f"{matrix.source}: no methods. Known: {', '.join(methods.names())}")
    trainer = _fields(TrainerOptions, matrix.trainer, f"{matrix.source}, [trainer]")
    try:
        conditions_.check(matrix.conditions)  # pyright: ignore[reportArgumentType]
    except ValueError as error:
        raise UsageError(f"{error} ({matrix.source}, conditions)") from None
    names = {choice.name for choice in matrix.methods}
    added = tuple(b for b in BASELINES if matrix.baselines and b not in names)
    chosen = (*matrix.methods, *(Choice(name, where="baselines") for name in added))
    cells: dict[str, Cell] = {}
    left_out: list[NotApplicable] = []
    notes: list[str] = []
    for dataset in matrix.datasets:
        for datamodule, dataset_options in _datasets(dataset):
            shown = dataset.name + datamodule.suffix
            recipe = _recipe(matrix, dataset.name, trainer)
            wanted = conditions_.resolve(matrix.conditions, datamodule.raw)  # pyright: ignore[reportArgumentType]
            for label, cls, choice, options in _methods(chosen, datamodule.task):
                reason = cls.applies_to(datamodule.task, options)
                if reason is not None:
                    left_out.append(NotApplicable(label, shown, reason))
                    continue
                size, warned = _size(cls, choice, options, datamodule.task, recipe)
                notes += [f"{label} on {shown}: {message}" for message in warned]
                for seed in matrix.seeds:
                    cell = _cell(choice.name, label, cls, options, shown, dataset_options, datamodule.task, seed,
                                 recipe, wanted, trainer, size)  # fmt: skip
                    cells.setdefault(cell.id, cell)
    return Plan(tuple(cells.values()), tuple(dict.fromkeys(left_out)), added, tuple(dict.fromkeys(notes)))


def build_dataset(name: str, options: Mapping[str, Any]) -> DataModule:
    """The dataset of a cell, through the encoders its options name; `name` may be its name on the board."""
    return _dataset(name.partition("[")[0], options, name)[0]


def build_method(name: str, options: Mapping[str, Any], task: Task, recipe: Mapping[str, Any]) -> Method:
    """The method of a cell, untrained."""
    cls = methods.get(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the plan has said them once
        return cls(task, Recipe(**recipe), **resolve(name, cls, options, name))


def _datasets(choice: Choice) -> Iterator[tuple[DataModule, dict[str, Any]]]:
    cls = datasets.get(choice.name)
    for given in _product(cls, choice):
        try:
            datamodule, options = _dataset(choice.name, given, choice.where)
            datamodule.task  # noqa: B018 - described now, so that a wrong value is an error now
        except UsageError:
            raise
        except (ValueError, OSError) as error:
            raise UsageError(f"{choice.name}: {error} ({choice.where})") from error
        yield datamodule, {k: plain(v) for k, v in options.items()}


def _dataset(name: str, given: Mapping[str, Any], where: str) -> tuple[DataModule, dict[str, Any]]:
    """A dataset and its options: its own, filled in with defaults, then the encoders of its modalities."""
    cls = datasets.get(name)
    own, encoders = divide(cls, given)
    options = resolve(name, cls, own, where)
    datamodule: DataModule = cls(**options)
    if not encoders:
        return datamodule, options
    known = (*parameters(cls), *datamodule.task.names, "freeze")
    for key in encoders:
        if key not in known:
            raise UsageError(f"{name}: no option `{key}`. {did_you_mean(key, known)} ({where})")
    freeze = encoders.pop("freeze", True)
    if not isinstance(freeze, bool):
        raise UsageError(f"{name}: `freeze` must be true or false, got {freeze!r} ({where})")
    for key, value in encoders.items():
        if not isinstance(value, str):
            raise UsageError(f"{name}: `{key}` must be an encoder (a string), got {value!r} ({where})")
    if not encoders:
        raise UsageError(f"{name}: `freeze` needs an encoder for {' or '.join(datamodule.task.names)} ({where})")
    shown = {**options, **encoders} | ({} if freeze else {"freeze": False})
    return Features(datamodule, encoders, freeze=freeze), shown


def _methods(chosen: tuple[Choice, ...], task: Task) -> Iterator[tuple[str, type[Method], Choice, dict[str, Any]]]:
    """Each method with each combination of its options, and its name on the board."""
    for choice in chosen:
        cls: type[Method] = methods.get(choice.name)
        variants = cls.variants(task)
        named = {key for variant in variants for key in variant}  # shown by value: unimodal[image]
        for given in _product(cls, choice):
            # A bare name stands for its variants; an option the user gave is the user's.
            expanded = variants if not named & set(given) else ({},)
            for variant in expanded:
                options = resolve(choice.name, cls, {**variant, **given}, choice.where)
                yield _label(choice.name, cls, options, named), cls, choice, options


def _product(cls: type, choice: Choice) -> Iterator[dict[str, Any]]:
    values = axes(cls, choice.options)
    for combination in itertools.product(*values.values()):
        yield dict(zip(values, combination, strict=True))


def _label(name: str, cls: type, options: Mapping[str, Any], named: set[str]) -> str:
    defaults = resolve(name, cls, {}, name)
    shown = []
    for key, value in options.items():
        if key in named:
            shown.append(f"{value}")
        elif value != defaults[key]:
            shown.append(f"{key}={_short(value)}")
    return f"{name}[{','.join(shown)}]" if shown else name


def _short(value: Any) -> str:
    value = plain(value)
    if isinstance(value, dict):
        return value["name"]
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


def _size(
    cls: type[Method], choice: Choice, options: Mapping[str, Any], task: Task, recipe: Recipe
) -> tuple[int, list[str]]:
    """Parameters of the method and what it warns of, by building it where tensors cost nothing; a bad value fails."""
    try:
        with warnings.catch_warnings(record=True) as caught, torch.device("meta"):
            warnings.simplefilter("always")
            size = sum(p.numel() for p in cls(task, recipe, **options).parameters())
    except (ValueError, TypeError, KeyError) as error:
        message = error.args[0] if error.args else error
        raise UsageError(f"{message} ({choice.where})") from error
    return size, [str(w.message) for w in caught if w.category is UserWarning]


def _recipe(matrix: Matrix, dataset: str, trainer: TrainerOptions) -> Recipe:
    given = {**matrix.recipe, **matrix.recipes.get(dataset, {})}
    where = f"{matrix.source}, [recipe] or [recipes.{dataset}]"
    recipe: Recipe = _fields(Recipe, given, where)
    try:
        trainer.share(recipe.batch_size)
    except ValueError as error:
        raise UsageError(f"{error} ({where})") from None
    return recipe


def _fields(cls: type, given: Mapping[str, Any], where: str) -> Any:
    known = tuple(cls.__dataclass_fields__)
    for key in given:
        if key not in known:
            raise UsageError(f"no key `{key}`. {did_you_mean(key, known)} ({where})")
    try:
        return cls(**given)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{error} ({where})") from error


def _sources(cls: type[Method], options: Mapping[str, Any]) -> list[str]:
    """Digests of the method's code and of the code of what it wraps."""
    found = [digest(cls)]
    for value in options.values():
        if isinstance(value, Base):
            found += _sources(methods.get(value.name), value.options)
    return found


def _cell(
    method: str,
    label: str,
    cls: type[Method],
    options: Mapping[str, Any],
    dataset: str,
    dataset_options: dict[str, Any],
    task: Task,
    seed: int,
    recipe: Recipe,
    wanted: tuple[Condition, ...],
    trainer: TrainerOptions,
    size: int,
) -> Cell:
    given = {key: plain(options[key]) for key in parameters(cls)}
    identity: dict[str, Any] = {
        "schema": SCHEMA,
        "method": method,
        "options": given,
        "source": _sources(cls, options),
        "dataset": dataset,
        "dataset_version": task.version,
        "dataset_options": dataset_options,
        "seed": seed,
        "recipe": recipe.__dict__,
        "conditions": [c.id for c in wanted],
        "corruptions": conditions_.versions(wanted),
        "precision": trainer.precision,  # devices are not identity: they must not change the numbers
    }
    code = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    return Cell(
        id=f"{method}-{dataset.partition('[')[0]}-{seed}-{code}",
        method=method,
        label=label,
        family=cls.family,
        track=cls.track,
        options=given,
        dataset=dataset,
        dataset_version=task.version,
        dataset_options=dataset_options,
        seed=seed,
        recipe=dict(recipe.__dict__),
        conditions=wanted,
        trainer=dict(trainer.__dict__),
        modalities=task.names,
        target=task.target,
        metric=task.metric,
        higher_is_better=higher_is_better(task.metric),
        bayes=task.bayes,
        parameters=size,
        source=hashlib.sha256("".join(identity["source"]).encode()).hexdigest(),
    )
