"""The commands for a notebook, with the arguments of the command line by name: `run`, `plan`, `tune`, `board` and more.

```python
from benchmark import run

results = run(methods=["concat", MyMethod], datasets=["digit_halves"], seeds=3)
results.board()
```
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmark.plan import Plan
    from benchmark.tune import Tuned
    from leaderboard.board import Board
    from leaderboard.merge import Setting
    from leaderboard.results import Results

Choices = Sequence[str | type | Mapping[str, Any]]
"""Registered names, classes, or a name and options: `{"name": "interactions_xor", "rows": 4000}`."""


def plan(
    matrix: str | Path | None = None,
    *,
    methods: Choices | None = None,
    datasets: Choices | None = None,
    seeds: int | None = None,
    conditions: str | Sequence[str] | None = None,
    recipe: Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path | type] = (),
    baselines: bool = True,
    data: str | Path | None = None,
) -> Plan:
    """The cells of a matrix, every name and value checked.

    Args:
        matrix: A TOML file or a shipped matrix; None: `quick`, or the parts of it that the other arguments name.
        methods: Only these.
        datasets: Only these.
        seeds: Seeds 0 to n - 1.
        conditions: A named set, or groups and corruptions.
        recipe: Epochs, batch size and so on, for all datasets.
        plugins: Files with methods or datasets of your own, or their classes as they are.
        baselines: Whether `concat` and `unimodal` are added.
        data: Folder with your data.

    Raises:
        UsageError: For the first thing that is wrong.
    """
    from benchmark.arguments import plan_of

    given = (methods, datasets, seeds, conditions, recipe, plugins, baselines, data)
    return plan_of(_arguments("run", matrix, *given))


def run(
    matrix: str | Path | None = None,
    *,
    methods: Choices | None = None,
    datasets: Choices | None = None,
    seeds: int | None = None,
    conditions: str | Sequence[str] | None = None,
    recipe: Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path | type] = (),
    baselines: bool = True,
    data: str | Path | None = None,
    results: str | Path = "results",
    workers: int | None = None,
    tuned: str | Path | None = None,
    quiet: bool = False,
    **more: Any,
) -> Results:
    """Train and test every cell that has no record yet; what came of all of them.

    Args:
        matrix: As in `plan`, as are the others up to `data`.
        plugins: As in `plan`; a class that workers cannot import from a file runs in this process.
        results: Folder of the records.
        workers: Worker processes; 0 runs in this process. None: one per GPU or core.
        tuned: Choices of `tune`.
        quiet: No progress display.
        more: Any other argument of `polymodal run`, by its name: `devices=2`, `cell_timeout=600.0`, `rerun=True`.

    Raises:
        UsageError: For the first thing that is wrong, before anything is trained.
        KeyboardInterrupt: If it was stopped; what has ended has its record.
    """
    from leaderboard.results import load

    given = (methods, datasets, seeds, conditions, recipe, plugins, baselines, data)
    execution = {"results": str(results), "workers": workers, "quiet": quiet, "tuned": tuned and str(tuned), **more}
    arguments = _arguments("run", matrix, *given, **execution)
    planned = _carried_out(arguments, Path(results))
    return load(results, cells=_cells(planned, arguments))


def tune(
    matrix: str | Path | None = None,
    *,
    methods: Choices | None = None,
    datasets: Choices | None = None,
    recipe: Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path | type] = (),
    baselines: bool = True,
    data: str | Path | None = None,
    trials: int = 8,
    results: str | Path = "results",
    workers: int | None = None,
    quiet: bool = False,
    **more: Any,
) -> Tuned:
    """Choose each method's values on validation rows; `run(tuned=results / "tuned.toml")` runs the choice.

    Args:
        matrix: As in `plan`, as are the others up to `data`.
        trials: Of every method on every dataset; the first is the default.
        results: Folder of the trials and of `tuned.toml`.
        workers: As in `run`, as is `quiet`.
        more: Any other argument of `polymodal tune`, by its name.

    Raises:
        UsageError: For the first thing that is wrong.
        KeyboardInterrupt: If trials are left; they go on next time.
    """
    from benchmark.tune import read

    given = (methods, datasets, None, None, recipe, plugins, baselines, data)
    execution = {"results": str(results), "workers": workers, "quiet": quiet, "trials": trials, **more}
    _carried_out(_arguments("tune", matrix, *given, **execution), Path(results) / "trials")
    return read(Path(results) / "tuned.toml")


def board(
    *results: str | Path,
    beside: str | Path | Sequence[str | Path] = (),
    setting: Setting | None = None,
    track: str = "plain",
) -> Board:
    """The board of results folders, exports or tables; without any, that of `results`.

    Args:
        results: Where they are; `"reference"` is what Polymodal publishes.
        beside: Published results, or `"reference"`, that they are to stand beside.
        setting: Methods at their defaults, or tuned.
        track: `plain` or `augmented`.
    """
    from leaderboard.results import load

    return load(*(results or ("results",)), beside=beside, setting=setting).board(track)


def parsed(command: str, words: Sequence[str], given: Mapping[str, Any]) -> argparse.Namespace:
    """What the command line would have understood.

    Raises:
        TypeError: If the command has no such argument.
    """
    name = {"try": "try_"}.get(command, command)
    parser = argparse.ArgumentParser()
    import_module(f"benchmark.commands.{name}").add_arguments(parser)
    found = parser.parse_args(list(words))
    unknown = [key for key in given if not hasattr(found, key)]
    if unknown:
        raise TypeError(f"{command}() has no argument {unknown[0]!r}. Known: {', '.join(sorted(vars(found)))}")
    vars(found).update(given, command=command)
    return found


def _arguments(
    command: str,
    matrix: str | Path | None,
    methods: Choices | None,
    datasets: Choices | None,
    seeds: int | None,
    conditions: str | Sequence[str] | None,
    recipe: Mapping[str, Any] | None,
    plugins: Sequence[str | Path | type],
    baselines: bool,
    data: str | Path | None,
    **execution: Any,
) -> argparse.Namespace:
    """What the command line would have understood."""
    found = parsed(command, [], execution)
    classes = [c for c in (*(methods or ()), *(datasets or ()), *plugins) if isinstance(c, type)]
    files = [str(p) for p in plugins if not isinstance(p, type)]
    known = {cls: _registered(cls) for cls in classes}
    importable = [file for cls in classes if (file := _file(cls, known[cls])) is not None]
    settings = [f"recipe.{key}={_toml(value)}" for key, value in (recipe or {}).items()]
    chosen = {}
    for kind, choices in (("methods", methods), ("datasets", datasets)):
        chosen[kind] = None if choices is None else [_name(c, known, settings) for c in choices]
    asked = conditions if conditions is None or isinstance(conditions, str) else ",".join(conditions)
    vars(found).update(
        matrix=None if matrix is None else str(matrix),
        **chosen,
        seeds=seeds,
        conditions=asked,
        settings=settings,
        plugin=[*files, *dict.fromkeys(importable)],
        no_baselines=not baselines,
        data=None if data is None else str(data),
    )
    if len(importable) < len([cls for cls in classes if not _ours(cls)]):
        found.workers = 0  # other processes cannot know a class that is in no file of its own
    return found


def _carried_out(arguments: argparse.Namespace, folder: Path) -> Plan:
    """Do what the command would, with records in the folder; what was planned.

    Raises:
        KeyboardInterrupt: If it was stopped.
    """
    from benchmark.arguments import check_execution, plan_of
    from leaderboard.store import Store

    check_execution(arguments)
    store = Store(folder)
    store.prepare()
    planned = plan_of(arguments)
    if import_module(f"benchmark.commands.{arguments.command}").carry_out(planned, store, arguments) >= 128:
        raise KeyboardInterrupt(f"stopped before every cell of {folder} was run: run again to go on")
    return planned


def _name(choice: str | type | Mapping[str, Any], known: Mapping[type, str], settings: list[str]) -> str:
    """The registered name of a choice; its options join the settings."""
    if isinstance(choice, str):
        return choice
    if isinstance(choice, type):
        return known[choice]
    name = choice["name"]
    settings += [f"{name}.{key}={_toml(value)}" for key, value in choice.items() if key != "name"]
    return name


def _toml(value: Any) -> str:
    """A value as `--set` reads it; the tables of TOML are not those of JSON."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _registered(cls: type) -> str:
    """The name of a class, which is registered under that of the class in snake_case if it has none.

    Raises:
        TypeError: If it is neither a method nor a dataset.
    """
    from datamodules.base import DataModule
    from datamodules.registry import datasets
    from methods.base import Method
    from methods.registry import methods

    if not issubclass(cls, Method | DataModule):
        raise TypeError(f"Expected a subclass of `Method` or `DataModule`, but got {cls.__name__}")
    registry = methods if issubclass(cls, Method) else datasets
    own = [name for name, other in registry.classes().items() if other is cls]
    if own:
        return own[0]
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
    registry.register(name)(cls)
    return name


def _ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in ("methods", "datamodules")


def _file(cls: type, name: str) -> str | None:
    """The file from which a worker can have the class: one that registers it when it is imported, and is no script."""
    if cls.__module__ == "__main__" or _ours(cls):
        return None
    try:
        path = Path(inspect.getfile(cls))
    except (TypeError, OSError):
        return None
    registers = re.compile(rf"""@register\w*\(\s*["']{name}["']""")
    return str(path) if path.is_file() and registers.search(path.read_text(encoding="utf-8")) else None


def _cells(planned: Plan, arguments: argparse.Namespace) -> list[str]:
    if not arguments.tuned:
        return [cell.id for cell in planned.cells]
    from benchmark.tune import apply, read

    return [cell.id for cell in apply(planned, read(Path(arguments.tuned))).cells]
