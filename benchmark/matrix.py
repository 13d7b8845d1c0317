"""The matrix: which methods meet which datasets, how often and under which conditions. Read from TOML and the command
line.

Reading checks every name against the registries without importing a method; the values are checked when the plan is
made.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from benchmark.errors import UsageError
from datamodules.options import convert, shown
from datamodules.registry import Registry, datasets, did_you_mean
from methods.registry import methods

FOLDER = Path(__file__).parent / "matrices"
DEFAULT = "quick"
SEEDS = 100_000  # of a matrix, at most; each may be any that a record can hold
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Seeds = Annotated[int, Meta(ge=1, le=SEEDS)]
_Table = dict[str, Any]
# What a matrix may say. Methods and datasets are lists of names and tables, or a table of tables, or "all".
_KEYS: dict[str, Any] = {
    "seeds": Seeds | Annotated[list[Seed], Meta(min_length=1, max_length=SEEDS)],
    "conditions": str | list[str],
    "methods": Literal["all"] | list[str | _Table] | dict[str, _Table],
    "datasets": Literal["all"] | list[str | _Table] | dict[str, _Table],
    "recipe": _Table,
    "recipes": dict[str, _Table],
    "trainer": _Table,
    "baselines": bool,
    "exclude": list[str],
    "missing_data": Literal["fail", "skip"],
}


@dataclass(frozen=True)
class Choice:
    """A method or dataset with the options the matrix gives it; `where` says which lines did, for errors."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""


@dataclass(frozen=True)
class Matrix:
    """What to run.

    Attributes:
        recipe: Overrides of the default recipe; `recipes` overrides it further for some datasets.
        baselines: Whether `concat` and `unimodal` are added where they are missing: gains and mCE are relative to them.
        missing_data: What happens to a dataset whose files are not on this machine: the plan fails, or goes on without.
    """

    source: str
    methods: tuple[Choice, ...]
    datasets: tuple[Choice, ...]
    seeds: tuple[int, ...] = (0,)
    conditions: str | tuple[str, ...] = "standard"
    recipe: Mapping[str, Any] = field(default_factory=dict)
    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    trainer: Mapping[str, Any] = field(default_factory=dict)
    baselines: bool = True
    missing_data: Literal["fail", "skip"] = "fail"


def shipped() -> dict[str, Path]:
    """The matrices that come with the package."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def read(name: str) -> Matrix:
    """Read a matrix file, or a shipped matrix by name.

    Raises:
        UsageError: If it cannot be read or says something unknown.
    """
    path = Path(name)
    if not path.suffix and name in shipped():
        path = shipped()[name]
    if not path.is_file():
        raise UsageError(
            f"no matrix {name!r}: neither a file nor a shipped one. {did_you_mean(name, tuple(shipped()))}"
        )
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # TOML, UTF-8, numbers of thousands of digits, thousands of brackets
        raise UsageError(f"{path.name} is not valid TOML: {error}") from None
    return parse(raw, path.name)


def parse(raw: Mapping[str, Any], source: str) -> Matrix:
    """A matrix from its tables."""
    for key, value in raw.items():
        if key not in _KEYS:
            raise UsageError(f"{source}: no key `{key}` in a matrix. {did_you_mean(key, tuple(_KEYS))}")
        try:
            convert(key, _KEYS[key], value)
        except ValueError as error:
            raise UsageError(f"{source}: {error}") from None
    excluded = raw.get("exclude", [])
    for name in excluded:
        _known(methods, name, source, "exclude")
    chosen = tuple(c for c in _choices(raw.get("methods", "all"), methods, source, "methods") if c.name not in excluded)
    for name in raw.get("recipes", {}):
        _known(datasets, name, source, "recipes")
    conditions = raw.get("conditions", "standard")
    return Matrix(
        source=source,
        methods=chosen,
        datasets=_choices(raw.get("datasets", []), datasets, source, "datasets"),
        seeds=_seeds(raw.get("seeds", 1)),
        conditions=tuple(conditions) if isinstance(conditions, list) else conditions,
        recipe=raw.get("recipe", {}),
        recipes=raw.get("recipes", {}),
        trainer=raw.get("trainer", {}),
        baselines=raw.get("baselines", True),
        missing_data=raw.get("missing_data", "fail"),
    )


def with_arguments(
    matrix: Matrix,
    *,
    method_names: Sequence[str] | None = None,
    dataset_names: Sequence[str] | None = None,
    seeds: int | None = None,
    settings: Sequence[str] = (),
    conditions: str | None = None,
    trainer: Mapping[str, Any] | None = None,
    baselines: bool | None = None,
) -> Matrix:
    """The matrix with what the command line says on top of it."""
    if method_names is not None:
        matrix = replace(matrix, methods=_pick(method_names, methods, matrix.methods, "--methods"))
    if dataset_names is not None:
        matrix = replace(matrix, datasets=_pick(dataset_names, datasets, matrix.datasets, "--datasets"))
    if seeds is not None:
        try:
            matrix = replace(matrix, seeds=_seeds(convert("--seeds", Seeds, seeds)))
        except ValueError as error:
            raise UsageError(str(error)) from None
    if conditions is not None:
        from benchmark.conditions import SETS  # here: it imports torch, which reading a matrix does without

        matrix = replace(matrix, conditions=conditions if conditions in SETS else tuple(conditions.split(",")))
    if trainer:
        matrix = replace(matrix, trainer={**matrix.trainer, **trainer})
    if baselines is not None:
        matrix = replace(matrix, baselines=baselines)
    for setting in settings:
        matrix = _set(matrix, setting)
    return matrix


def _set(matrix: Matrix, setting: str) -> Matrix:
    """Apply one `--set name.key=value`: an option of a method or dataset, or a part of the recipe or trainer."""
    target, separator, text = setting.partition("=")
    name, dot, key = target.strip().rpartition(".")
    if not separator or not dot:
        raise UsageError(f"--set takes NAME.KEY=VALUE, got {setting!r}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        value = text.strip()  # a bare word is a string
        if value[:1] in ("{", "["):
            raise UsageError(
                f'--set {setting}: not a TOML value ({error}): write lists as ["a", "b"] and tables as '
                '{ name = ["a"] }, with quotes, in single quotes for the shell'
            ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--set {name}.{key}: {error}") from None
    where = f"--set {setting}"
    if name == "recipe":  # said last and for all: it wins over the file's recipes of single datasets
        recipes = {dataset: {k: v for k, v in own.items() if k != key} for dataset, own in matrix.recipes.items()}
        return replace(matrix, recipe={**matrix.recipe, key: value}, recipes=recipes)
    if name == "trainer":
        return replace(matrix, trainer={**matrix.trainer, key: value})
    for kind in ("methods", "datasets"):
        choices: tuple[Choice, ...] = getattr(matrix, kind)
        if any(c.name == name for c in choices):
            changed = [
                replace(c, options={**c.options, key: value}, where=_where(c, where)) if c.name == name else c
                for c in choices
            ]
            return replace(matrix, **{kind: tuple(changed)})
    known = ("recipe", "trainer", *(c.name for c in (*matrix.methods, *matrix.datasets)))
    raise UsageError(f"{where}: nothing named {name!r} in this matrix. {did_you_mean(name, known)}")


def _where(choice: Choice, setting: str) -> str:
    """Which lines gave the options; of several `--set` none is singled out, as the error names the option."""
    return f"{choice.name}, by --set" if "--set" in choice.where else setting


def _pick(names: Sequence[str], registry: Registry, given: tuple[Choice, ...], where: str) -> tuple[Choice, ...]:
    """The named ones, with the options the matrix gives them; `all` is everything registered."""
    picked: list[Choice] = []
    for name in registry.names() if list(names) == ["all"] else names:
        _known(registry, name, where, "")
        picked += [c for c in given if c.name == name] or [Choice(name, where=where)]
    return tuple(picked)


def _choices(raw: Any, registry: Registry, source: str, key: str) -> tuple[Choice, ...]:
    """Names, tables with a name, or a table of tables; `"all"` is everything registered."""
    if raw == "all":
        return tuple(Choice(name, where=f"{source}, {key}") for name in registry.names())
    if isinstance(raw, Mapping):
        raw = [{"name": name, **options} for name, options in raw.items()]
    choices = []
    for item in raw:
        item = {"name": item} if isinstance(item, str) else dict(item)
        name = item.pop("name", None)
        if not isinstance(name, str):
            raise UsageError(f"{source}: an entry of `{key}` has no name: {shown(item)}")
        _known(registry, name, source, key)
        choices.append(Choice(name, item, f"{source}, [{key}.{name}]"))
    return tuple(choices)


def _known(registry: Registry, name: str, source: str, key: str) -> None:
    if name not in registry.names():
        raise UsageError(f"{registry.unknown(name)} ({', '.join(filter(None, (source, key)))})")


def _seeds(raw: int | list[int]) -> tuple[int, ...]:
    """Seeds 0..n-1, or those of a list."""
    return tuple(range(raw)) if isinstance(raw, int) else tuple(dict.fromkeys(raw))
