"""A method's or dataset's own hyper-parameters: found in its signature, checked, and filled in with their defaults."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from datamodules.registry import did_you_mean
from methods.base import Base
from methods.registry import methods


class UsageError(ValueError):
    """Something the user wrote is wrong: the message says what, where, and what would be right."""


def parameters(cls: type) -> dict[str, inspect.Parameter]:
    """The keyword-only arguments of a class: its own hyper-parameters."""
    found = inspect.signature(cls.__init__).parameters.values()
    return {p.name: p for p in found if p.kind is inspect.Parameter.KEYWORD_ONLY}


def resolve(name: str, cls: type, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """All options of `cls`, the given ones checked and the others at their defaults.

    Raises:
        UsageError: For an unknown option or a value of the wrong type.
    """
    known = parameters(cls)
    hints = typing.get_type_hints(cls.__init__)
    for key in given:
        if key not in known:
            raise UsageError(f"{name}: no option `{key}`. {did_you_mean(key, tuple(known))} ({where})")
    resolved: dict[str, Any] = {}
    for key, parameter in known.items():
        if key in given:
            resolved[key] = _checked(f"{name}: `{key}`", hints.get(key, Any), given[key], where)
        elif parameter.default is inspect.Parameter.empty:
            raise UsageError(f"{name}: option `{key}` has no default and must be given ({where})")
        else:
            resolved[key] = parameter.default
        if isinstance(resolved[key], Base):  # its own defaults are filled in too
            resolved[key] = _base(resolved[key].name, resolved[key].options, where)
    return resolved


def divide(cls: type, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The given options that are the class's own, and the others."""
    own = parameters(cls)
    return {k: v for k, v in given.items() if k in own}, {k: v for k, v in given.items() if k not in own}


def axes(cls: type, given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values each given option takes in a matrix: a list is an axis, unless the option is itself a sequence."""
    hints = typing.get_type_hints(cls.__init__)
    found = {}
    for key, value in given.items():
        is_axis = isinstance(value, list) and not (_is_sequence(hints.get(key)) and not _nested(value))
        found[key] = list(value) if is_axis else [value]
    return found


def plain(value: Any) -> Any:
    """An option as JSON can hold it."""
    if isinstance(value, Base):
        return {"name": value.name, **{k: plain(v) for k, v in value.options.items()}}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def _checked(what: str, hint: Any, value: Any, where: str) -> Any:
    if hint is Base:
        if isinstance(value, str):
            return Base(value)
        if isinstance(value, Mapping) and "name" in value:
            return Base(value["name"], {k: v for k, v in value.items() if k != "name"})
        raise UsageError(f'{what} must be a method name or {{ name = "..", .. }}, got {value!r} ({where})')
    if not _fits(hint, value):
        raise UsageError(f"{what} must be {_describe(hint)}, got {value!r} ({where})")
    if _is_sequence(hint) and isinstance(value, list):
        return tuple(value)
    return float(value) if hint is float else value


def _base(name: str, options: Mapping[str, Any], where: str) -> Base:
    try:
        cls = methods.get(name)
    except KeyError as error:
        raise UsageError(f"base: {error.args[0]} ({where})") from None
    return Base(name, resolve(name, cls, options, where))


def _fits(hint: Any, value: Any) -> bool:
    origin = get_origin(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(h, value) for h in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if hint is type(None):
        return value is None
    if _is_sequence(hint):
        inner = [h for h in get_args(hint) if h is not Ellipsis] or [Any]
        return isinstance(value, list | tuple) and all(_fits(inner[0], v) for v in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return not isinstance(hint, type) or isinstance(value, hint)


def _describe(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(repr(v) for v in get_args(hint))
    if origin in (Union, types.UnionType):
        return " or ".join(_describe(h) for h in get_args(hint))
    names = {int: "an integer", float: "a number", bool: "true or false", str: "a string", type(None): "nothing"}
    return names.get(hint, "a list" if _is_sequence(hint) else str(getattr(hint, "__name__", hint)))


def _is_sequence(hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_is_sequence(h) for h in get_args(hint))
    return isinstance(origin, type) and issubclass(origin, Sequence)


def _nested(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(v, list) for v in value)
