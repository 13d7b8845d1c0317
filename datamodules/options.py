"""Options: what a class takes by keyword, said by its annotations and checked in one place.

Matrices, `--set`, plugins and direct construction all come through here: `rank: Annotated[int, Meta(ge=1)] = 8` or
`combine: Literal["bayes", "mean"] = "bayes"` is all that a class has to say about a value.
"""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(ge=0, le=1)]

_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "a string", type(None): "nothing"}
_BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


@lru_cache(maxsize=512)
def parameters(cls: type) -> Mapping[str, inspect.Parameter]:
    """The keyword-only arguments of a class: its own options."""
    found = inspect.signature(cls.__init__).parameters.values()
    return {p.name: p for p in found if p.kind is inspect.Parameter.KEYWORD_ONLY}


@lru_cache(maxsize=512)
def hints(cls: type) -> Mapping[str, Any]:
    """The annotations of a class's arguments, bounds included."""
    return typing.get_type_hints(cls.__init__, include_extras=True)


def convert(key: str, hint: Any, value: Any) -> Any:
    """A value as its annotation wants it: a list becomes a tuple, an integer a float.

    Raises:
        ValueError: If it is nothing the annotation allows, saying what would be.
    """
    if hasattr(hint, "from_option"):  # a type of ours that says itself how it is written
        return value if isinstance(value, hint) else hint.from_option(key, value)
    try:
        converted = msgspec.convert(value, hint)
    except msgspec.ValidationError:
        raise ValueError(f"`{key}` must be {describe(hint)}, got {shown(value)}") from None
    if not _finite(converted):
        raise ValueError(f"`{key}` must be finite and of at most 64 bits, got {shown(value)}")
    return converted


def shown(value: Any) -> str:
    """A value for a message, which must not be longer than a line or two."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, a list in a list in a list ...
        text = f"a very large {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:200]} ..."


def check(cls: type, given: Mapping[str, Any]) -> None:
    """Raise ValueError unless every given option is one its annotation allows."""
    known = hints(cls)
    for key, value in given.items():
        if key in parameters(cls) and key in known:
            try:
                convert(key, known[key], value)
            except ValueError as error:
                raise ValueError(f"{cls.__name__}: {error}") from None


def check_fields(noun: str, values: Any) -> None:
    """Raise ValueError unless every field of a dataclass is what its annotation allows."""
    for key, hint in typing.get_type_hints(type(values), include_extras=True).items():
        try:
            convert(key, hint, getattr(values, key))
        except ValueError as error:
            raise ValueError(f"{noun}: {error}") from None


def describe(hint: Any) -> str:
    """An annotation in words."""
    origin = get_origin(hint)
    if origin is Annotated:
        inner, *extras = get_args(hint)
        bounds = [f"{sign} {getattr(m, name):g}" for m in extras if isinstance(m, Meta)
                  for name, sign in _BOUNDS.items() if getattr(m, name) is not None]  # fmt: skip
        return " ".join(filter(None, (describe(inner), " and ".join(bounds))))
    if origin is Literal:
        return "one of " + ", ".join(repr(v) for v in get_args(hint))
    if origin in (Union, types.UnionType):
        return " or ".join(describe(h) for h in get_args(hint))
    if is_sequence(hint):
        return f"a list, each {describe(get_args(hint)[0])}" if get_args(hint) else "a list"
    if origin in (dict, Mapping):
        values = get_args(hint)[1]
        return "a table" if values is Any else f"a table, each {describe(values)}"
    return _NAMES.get(hint, str(getattr(hint, "__name__", hint)))


def is_sequence(hint: Any) -> bool:
    """Whether a list is one value of the option, and not an axis of a matrix."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType, Annotated):
        return any(is_sequence(h) for h in get_args(hint))
    return isinstance(origin, type) and issubclass(origin, typing.Sequence)


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    if isinstance(value, Mapping):
        return all(map(_finite, value.values()))
    return all(map(_finite, value)) if isinstance(value, list | tuple) else True
