"""The options of a cell: those given are checked by their annotations, the others are at their defaults."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from benchmark.errors import UsageError
from datamodules.options import convert, hints, is_sequence, parameters
from datamodules.registry import did_you_mean
from methods.registry import methods
from methods.wrapper import Base


def resolve(name: str, cls: type, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """All options of `cls`, the given ones checked and the others at their defaults.

    Raises:
        UsageError: For an unknown option, one without an annotation, or a value that the annotation does not allow.
    """
    known = parameters(cls)
    for key in given:
        if key not in known:
            raise UsageError(f"{name}: no option `{key}`. {did_you_mean(key, tuple(known))} ({where})")
    resolved: dict[str, Any] = {}
    for key, parameter in known.items():
        if key not in hints(cls):
            raise UsageError(f"{name}: option `{key}` has no annotation, so nothing says what it may be ({where})")
        if key in given:
            try:
                resolved[key] = convert(key, hints(cls)[key], given[key])
            except ValueError as error:
                raise UsageError(f"{name}: {error} ({where})") from None
        elif parameter.default is inspect.Parameter.empty:
            raise UsageError(f"{name}: option `{key}` has no default and must be given ({where})")
        else:
            resolved[key] = parameter.default
        if isinstance(resolved[key], Base):  # its own defaults are filled in too
            resolved[key] = _base(resolved[key], where)
    return resolved


def divide(cls: type, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The given options that are the class's own, and the others."""
    own = parameters(cls)
    return {k: v for k, v in given.items() if k in own}, {k: v for k, v in given.items() if k not in own}


def axes(cls: type, given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values each given option takes in a matrix: a list is an axis, unless the option is itself a sequence."""
    found = {}
    for key, value in given.items():
        is_axis = isinstance(value, list) and not (is_sequence(hints(cls).get(key)) and not _nested(value))
        found[key] = list(value) if is_axis else [value]
    return found


def plain(value: Any) -> Any:
    """An option as JSON can hold it."""
    if hasattr(value, "from_option"):  # a type of ours, written as it is read
        return {"name": value.name, **{k: plain(v) for k, v in value.options.items()}}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def _base(base: Base, where: str) -> Base:
    try:
        cls = methods.get(base.name)
    except KeyError as error:
        raise UsageError(f"base: {error.args[0]} ({where})") from None
    return Base(base.name, resolve(base.name, cls, base.options, where))


def _nested(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(v, list) for v in value)
