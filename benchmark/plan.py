"""The plan.

A matrix resolved into cells, each complete, checked and addressed by a hash of everything that decides its numbers.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec
import torch

from benchmark import conditions
from benchmark.build import resolve_dataset, undrawn
from benchmark.complete_rows import CompleteRows
from benchmark.errors import UsageError, printable
from benchmark.faults import Faults, Faulty
from benchmark.few_steps import Sketch, step_notes
from benchmark.identity import method_digest, protocol_digest
from benchmark.matrix import Choice, Matrix
from benchmark.options import axes, plain, resolve
from benchmark.trainer import TrainerOptions
from datamodules.base import DataModule
from datamodules.registry import datasets, did_you_mean
from datamodules.spec import Task
from leaderboard.record import SCHEMA, Cell, Failure, Record
from methods.base import Method, Recipe
from methods.metrics import higher_is_better
from methods.registry import methods
from methods.wrapper import Base

BASELINES = ("concat", "unimodal")


@dataclass(frozen=True)
class NotApplicable:
    """A pair the matrix asks for that makes no sense, and why."""

    label: str
    dataset: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """Every cell of a matrix, datasets together; what was left out, what was added, and what the methods warn of.

    Attributes:
        trainable: (label, dataset) -> parameters that some stage fits by gradient, as boards count them.
    """

    cells: tuple[Cell, ...]
    not_applicable: tuple[NotApplicable, ...] = ()
    added: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    faulty: tuple[Faulty, ...] = ()
    trainable: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])


@dataclass(frozen=True)
class Entry:
    """A method with one combination of its options, and its name on the board."""

    choice: Choice
    cls: type[Method]
    options: Mapping[str, Any]
    label: str

    def sketch(self, task: Task, recipe: Recipe) -> tuple[Sketch, tuple[str, ...]]:
        """What can be known without rows, and what the method warns of; a bad value fails."""
        with warnings.catch_warnings(record=True) as caught, torch.device("meta"):
            warnings.simplefilter("always")
            method = self.cls(task, recipe, **self.options)
            stages = method.stages()
        return Sketch.of(method, stages), tuple(str(w.message) for w in caught if w.category is UserWarning)


class Sketches:
    """The sketches of a plan: of a method on two tasks of one shape, that of the first."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], tuple[Sketch, tuple[str, ...]]] = {}

    def of(self, entry: Entry, task: Task, recipe: Recipe) -> tuple[Sketch, tuple[str, ...]]:
        """As `entry.sketch`."""
        shape = (task.modalities, task.target, task.num_outputs, task.metric, task.class_names, task.shared, task.ks)
        key = (entry.cls, repr(entry.options), recipe, *shape)
        if key not in self._made:
            self._made[key] = entry.sketch(task, recipe)
        return self._made[key]


def make_plan(matrix: Matrix) -> Plan:
    """Resolve a matrix: expand its axes, check every value by building every model on the meta device.

    A method that raises of its own is no reason not to run the others: it is among the `faulty` of the plan.

    Raises:
        UsageError: For the first thing that is wrong, naming file, key and what would be right.
    """
    if not matrix.datasets:
        raise UsageError(f"{matrix.source}: no datasets. Known: {', '.join(datasets.names())}")
    if not matrix.methods:
        raise UsageError(f"{matrix.source}: no methods. Known: {', '.join(methods.names())}")
    trainer = _fields(TrainerOptions, matrix.trainer, f"{matrix.source}, [trainer]")
    try:
        conditions.check(matrix.conditions)
    except ValueError as error:
        raise UsageError(f"{error} ({matrix.source}, conditions)") from None
    names = {choice.name for choice in matrix.methods}
    added = tuple(b for b in BASELINES if matrix.baselines and b not in names)
    chosen = (*matrix.methods, *(Choice(name, where="baselines") for name in added))
    cells: dict[str, Cell] = {}
    left_out: list[NotApplicable] = []
    notes: list[str] = []
    warnings_of: dict[tuple[str, str], list[str]] = {}  # (label, message) -> datasets
    fitted: dict[tuple[str, str], int] = {}
    faults, made = Faults(), Sketches()
    for dataset in matrix.datasets:
        if matrix.missing_data == "skip" and (missing := _missing(dataset)):
            notes.append(f"{dataset.name} is left out: {missing}")
            continue
        for datamodule, dataset_options in _datasets(dataset, faults):
            shown = dataset.name + datamodule.suffix
            notes += datamodule.notes  # what was done to the user's rows, and why they are scored as they are
            recipe = _recipe(matrix, dataset.name, trainer)
            shared = _shared(matrix, datamodule, recipe, trainer)
            sketches: dict[str, Sketch] = {}
            complete = CompleteRows(datamodule)
            for entry in _entries(chosen, datamodule.task, faults):
                with faults.of(entry.label, shown, entry.choice, entry.cls), undrawn():
                    reason = entry.cls.applies_to(datamodule.task, entry.options)
                    if reason is not None:
                        left_out.append(NotApplicable(entry.label, shown, printable(reason)))
                        continue
                    sketch, warned = made.of(entry, datamodule.task, recipe)
                    if reason := complete.reason_against(sketch):
                        left_out.append(NotApplicable(entry.label, shown, reason))
                        continue
                    sketches[entry.label], fitted[entry.label, shown] = sketch, sketch.trainable
                    for message in filter(None, (*warned, complete.narrowed(sketch, recipe))):
                        warnings_of.setdefault((entry.label, message), []).append(shown)
                    first = _cell(
                        method=entry.choice.name,
                        label=entry.label,
                        family=entry.cls.family,
                        track=entry.cls.track,
                        options={key: plain(value) for key, value in entry.options.items()},
                        dataset=shown,
                        dataset_options=dataset_options,
                        seed=0,
                        parameters=sketch.parameters,
                        source=method_digest(entry.cls, entry.options),
                        **shared,
                    )
                    cells.update((cell.id, cell) for cell in map(first.with_seed, matrix.seeds) if cell.id not in cells)
            notes += [f"{shown}: {note}" for note in step_notes(datamodule, recipe, trainer, sketches)]
    notes += [f"{label} on {', '.join(where)}: {message}" for (label, message), where in warnings_of.items()]
    if faults.found and not cells:
        raise UsageError("\n".join(["nothing is left to run", *map(str, faults.found)]))
    if not cells and not left_out:
        raise UsageError(f"{matrix.source}: none of its datasets is on this machine: set POLYMODAL_DATA or give --data")
    return Plan(
        tuple(cells.values()),
        tuple(dict.fromkeys(left_out)),
        added,
        tuple(dict.fromkeys(map(printable, notes))),  # a dataset's classes or columns may be called anything
        tuple(faults.found),
        fitted,
    )


def _cell(**facts: Any) -> Cell:
    """A cell that can be written and read again: names of one line, values that JSON can hold.

    Raises:
        UsageError: If it could not.
    """
    try:
        cell = Cell(**facts)
        Record.from_json(Record(cell=cell, status="failed", schema=SCHEMA, error=Failure("", "")).to_json())
    except (ValueError, msgspec.MsgspecError, OverflowError, RecursionError, TypeError) as error:
        where = f"{facts['method']} on {facts['dataset']}"
        raise UsageError(f"{where}: a name or value that no record can hold: {error}") from None
    return cell


def _shared(matrix: Matrix, datamodule: DataModule, recipe: Recipe, trainer: TrainerOptions) -> dict[str, Any]:
    """The fields that all cells of a dataset have in common."""
    task = datamodule.task
    wanted = conditions.resolve(matrix.conditions, datamodule.raw)
    return {
        "dataset_version": task.version,
        "recipe": asdict(recipe),
        "trainer": asdict(trainer),
        "conditions": wanted,
        "corruptions": conditions.versions(wanted, datamodule.raw),
        "modalities": task.names,
        "inputs": tuple(f"{m.kind} {'x'.join(map(str, m.shape))}" for m in task.modalities),
        "target": task.target,
        "metric": task.metric,
        "higher_is_better": higher_is_better(task.metric),
        "bayes": task.bayes,
        "protocol": protocol_digest(datamodule),
    }


def _datasets(choice: Choice, faults: Faults) -> Iterator[tuple[DataModule, dict[str, Any]]]:
    with faults.of("", choice.name, choice):
        for given in _product(datasets.get(choice.name), choice):
            try:
                datamodule, options = resolve_dataset(choice.name, given, choice.where)
                datamodule.task  # noqa: B018 - described now, so that a wrong value is an error now
            except UsageError:
                raise
            except (ValueError, OSError) as error:
                raise UsageError(f"{choice.name}: {error} ({choice.where})") from error
            yield datamodule, {k: plain(v) for k, v in options.items()}


def _missing(choice: Choice) -> str:
    """What of a dataset's files is not on this machine; empty if it can be loaded. Damaged files are no excuse."""
    cls = datasets.get(choice.name)
    if cls.wheels or cls.source.startswith(("generated", "scikit-learn")):  # every machine has it: not loaded to know
        return ""
    for given in _product(cls, choice):
        try:
            resolve_dataset(choice.name, given, choice.where)[0].splits  # noqa: B018 - loads
        except FileNotFoundError as error:
            return str(error)
        except (ValueError, OSError) as error:
            raise UsageError(f"{choice.name}: {error} ({choice.where})") from error
    return ""


def _entries(chosen: tuple[Choice, ...], task: Task, faults: Faults) -> Iterator[Entry]:
    for choice in chosen:
        found: list[Entry] = []
        with faults.of(choice.name, "", choice):
            cls = methods.get(choice.name)
            with faults.of(choice.name, "", choice, cls):
                found = _entries_of(choice, cls, task)
        yield from found


def _entries_of(choice: Choice, cls: type[Method], task: Task) -> list[Entry]:
    variants = cls.variants(task)
    named = {key for variant in variants for key in variant}  # shown by value: unimodal[image]
    found = []
    for given in _product(cls, choice):
        # A bare name stands for its variants; an option the user gave is the user's.
        expanded = variants if not named & set(given) else ({},)
        for variant in expanded:
            options = resolve(choice.name, cls, {**variant, **given}, choice.where)
            found.append(Entry(choice, cls, options, _label(choice.name, cls, options, named)))
    return found


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
    if isinstance(value, Base):  # its options are filled in: those that are not the defaults tell two bases apart
        usual = resolve(value.name, methods.get(value.name), {}, value.name)
        value = replace(value, options={k: v for k, v in value.options.items() if v != usual[k]})
    value = plain(value)
    if isinstance(value, dict):
        own = ";".join(f"{k}={v}" for k, v in value.items() if k != "name")
        return f"{value['name']}:{own}" if own else value["name"]
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


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
