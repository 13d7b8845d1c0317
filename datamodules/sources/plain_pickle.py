"""Pickles of plain data (numbers, strings, containers, numeric arrays), read without ever running what they say.

A pickle is a program. This is another machine for it, which knows only the instructions that build plain data: the
standard library takes the file apart (`pickletools`), names stay names, and the few calls with which numpy pickles
arrays are done by us. Any other instruction, name or call is refused. Nothing is imported and nothing of the file is
called.
"""

from __future__ import annotations

import mmap
import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

MAX_DEPTH = 16  # of containers in containers
MAX_VALUES = 5_000_000  # of them, counted as often as they are referred to
MAX_DIMENSIONS = 8

_DTYPE = re.compile(r"(?:b1|[iu][1248]|f[248]|[SU][0-9]{1,6})")
_MARK = object()


@dataclass(frozen=True)
class _Name:
    """Something of a module; never looked up."""

    path: str


@dataclass
class _Type:
    """A dtype, and its byte order once the pickle has told it."""

    code: str
    order: str = "|"


@dataclass
class _Array:
    """An array that the pickle has begun; `value` once it has told the rest."""

    value: np.ndarray | None = None


class UnsafePickle(ValueError):
    """A pickle that is damaged, or is more than plain data."""


def read_plain_pickle(path: Path) -> Any:
    """The value of a pickle that holds only None, numbers, strings, bytes, lists, tuples, dicts and numeric arrays.

    Raises:
        UnsafePickle: If it holds anything else or is damaged, naming the file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: name the one that you downloaded")
    if not path.stat().st_size:
        raise UnsafePickle(f"{path} is empty: copy it again")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        try:
            return _settled(_Machine().run(content))
        except (ValueError, TypeError, IndexError, KeyError, OverflowError, EOFError, MemoryError) as error:
            # `pickletools` says itself what is damaged; a refusal of ours has its reason; the rest is a broken program.
            reason = str(error) if isinstance(error, ValueError) else f"its instructions make no sense ({error!r})"
            shown = " ".join(reason.split())[:200]
            raise UnsafePickle(
                f"{path} is not a pickle of plain data, and nothing of it was run: {shown}; take the file as published"
            ) from None


def _refuse(what: str) -> NoReturn:
    raise UnsafePickle(f"{what} is not allowed")


class _Machine:
    """The stack and the memo of one pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[Any, Any] = {}

    def run(self, content: Any) -> Any:
        """The value that is on the stack at the end."""
        for opcode, argument, _ in pickletools.genops(content):
            name = opcode.name
            if name == "STOP":
                return self.stack.pop()
            if name in _PUSHED:
                self.stack.append(argument)
            elif name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name]())
            elif name in _GET:
                self.stack.append(self.memo[argument])
            elif name in _PUT:
                self.memo[len(self.memo) if name == "MEMOIZE" else argument] = self.stack[-1]
            elif name in _ACTIONS:
                _ACTIONS[name](self, argument)
            elif name not in _IGNORED:
                _refuse(f"the instruction {name}")
        raise UnsafePickle("it ends too early")

    def marked(self) -> list[Any]:
        """What is above the topmost mark, which goes too."""
        for start in reversed(range(len(self.stack))):
            if self.stack[start] is _MARK:
                found = self.stack[start + 1 :]
                del self.stack[start:]
                return found
        raise UnsafePickle("a mark is missing")

    def tuple_of(self, size: int) -> None:
        """The topmost values become a tuple."""
        parts = [self.stack.pop() for _ in range(size)]
        self.stack.append(tuple(reversed(parts)))

    def extend(self, values: list[Any]) -> None:
        """Append to the list below."""
        if not isinstance(self.stack[-1], list):
            _refuse(f"appending to {type(self.stack[-1]).__name__}")
        self.stack[-1].extend(values)

    def update(self, values: list[Any]) -> None:
        """Set keys of the dictionary below."""
        if not isinstance(self.stack[-1], dict) or len(values) % 2:
            _refuse(f"setting items of {type(self.stack[-1]).__name__}")
        self.stack[-1].update(_pairs(values))

    def name(self, argument: Any) -> None:
        """A name out of `module name`, or out of two strings on the stack."""
        if argument is None:
            attribute, module = self.stack.pop(), self.stack.pop()
            if not isinstance(module, str) or not isinstance(attribute, str):
                _refuse("a name that is no string")
        else:
            module, _, attribute = argument.partition(" ")
        path = f"{module}.{attribute}".replace("numpy._core.", "numpy.core.")
        if path not in _KNOWN:
            _refuse(f"the name {path}")
        self.stack.append(_Name(path))

    def call(self, _: Any) -> None:
        """One of the calls that build arrays."""
        arguments, called = self.stack.pop(), self.stack.pop()
        if not isinstance(called, _Name) or called.path not in _CALLS or not isinstance(arguments, tuple):
            _refuse(f"calling {called.path if isinstance(called, _Name) else type(called).__name__}")
        self.stack.append(_CALLS[called.path](*arguments))

    def build(self, _: Any) -> None:
        """The rest of an array or of a dtype."""
        state, begun = self.stack.pop(), self.stack[-1]
        if not isinstance(state, tuple):
            _refuse("a state that is no tuple")
        if isinstance(begun, _Type):
            _, order, subarray, names, fields, *_ = state
            if order not in ("<", ">", "|", "=") or (subarray, names, fields) != (None, None, None):
                _refuse("a dtype with fields")
            begun.order = order
        elif isinstance(begun, _Array):
            _, shape, dtype, fortran, content = state
            begun.value = _array(content, dtype, shape, "F" if fortran else "C")
        else:
            _refuse(f"a state of {type(begun).__name__}")


def _pairs(values: list[Any]) -> dict[Any, Any]:
    for key in values[::2]:
        if not isinstance(key, str | int | float | bytes | None):
            _refuse(f"a key that is {type(key).__name__}")
    return dict(zip(values[::2], values[1::2], strict=True))


def _dtype(code: Any, *_: Any) -> _Type:
    if not isinstance(code, str) or not _DTYPE.fullmatch(code):
        _refuse(f"an array of dtype {code!r}" if isinstance(code, str) else "a dtype of a dtype")
    return _Type(code)


def _array(content: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    """The array, if its parts agree."""
    if not isinstance(dtype, _Type) or order not in ("C", "F"):
        _refuse("an array without its dtype")
    content = _bytes(content)
    sizes = shape if isinstance(shape, tuple) else (shape,)
    if len(sizes) > MAX_DIMENSIONS or not all(type(size) is int and size >= 0 for size in sizes):
        _refuse("such a shape of an array")
    real = np.dtype(f"{dtype.order}{dtype.code}")
    if real.itemsize * prod(sizes) != len(content):
        raise UnsafePickle(f"an array of shape {sizes} and dtype {real} has {len(content)} bytes")
    return np.frombuffer(content, real).reshape(sizes, order=order).astype(real.newbyteorder("="), copy=False)


def _bytes(content: Any) -> bytes:
    if isinstance(content, str):  # as Python 2 wrote them
        return content.encode("latin-1")
    if not isinstance(content, bytes | bytearray):
        _refuse("an array of objects")
    return bytes(content)


def _begin(kind: Any, *_: Any) -> _Array:
    if kind != _Name("numpy.ndarray"):
        _refuse("another kind of array")
    return _Array()


def _scalar(dtype: Any, content: Any) -> Any:
    return _array(content, dtype, (), "C").item()


def _encoded(text: Any, encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        _refuse("such an encoding of bytes")
    return text.encode("latin-1")


def _no_bytes() -> bytes:
    """How protocols before 3 write empty bytes: a call without arguments."""
    return b""


def _frombuffer(content: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    return _array(content, dtype, shape, order)


_CALLS: dict[str, Callable[..., Any]] = {
    "numpy.core.multiarray._reconstruct": _begin,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy.core.numeric._frombuffer": _frombuffer,
    "numpy.dtype": _dtype,
    "_codecs.encode": _encoded,
    "__builtin__.bytes": _no_bytes,
}
_KNOWN = {*_CALLS, "numpy.ndarray"}
_PUSHED = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8", "BYTEARRAY8",
}  # fmt: skip
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
    "MARK": lambda: _MARK,
}
_GET = {"GET", "BINGET", "LONG_BINGET"}
_PUT = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_IGNORED = {"PROTO", "FRAME"}
_ACTIONS: dict[str, Callable[[_Machine, Any], Any]] = {
    "POP": lambda m, _: m.stack.pop(),
    "POP_MARK": lambda m, _: m.marked(),
    "LIST": lambda m, _: m.stack.append(m.marked()),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.marked())),
    "DICT": lambda m, _: m.stack.append(_pairs(m.marked())),
    "TUPLE1": lambda m, _: m.tuple_of(1),
    "TUPLE2": lambda m, _: m.tuple_of(2),
    "TUPLE3": lambda m, _: m.tuple_of(3),
    "APPEND": lambda m, _: m.extend([m.stack.pop()]),
    "APPENDS": lambda m, _: m.extend(m.marked()),
    "SETITEM": lambda m, _: m.update([m.stack.pop(-2), m.stack.pop()]),
    "SETITEMS": lambda m, _: m.update(m.marked()),
    "GLOBAL": lambda m, argument: m.name(argument),
    "STACK_GLOBAL": lambda m, _: m.name(None),
    "REDUCE": _Machine.call,
    "BUILD": _Machine.build,
}


def _settled(value: Any) -> Any:
    """The value with whole arrays in the place of begun ones; too deep or too many values are refused.

    Level by level and without recursion. Values are counted as often as they are referred to: ten lists of ten lists
    of ten lists, shared, are a thousand.
    """
    top = [value]
    level: list[list[Any] | dict[Any, Any]] = [top]
    count = 0
    for _ in range(MAX_DEPTH):
        below: list[list[Any] | dict[Any, Any]] = []
        for container in level:
            for key, item in list(container.items() if isinstance(container, dict) else enumerate(container)):
                count += 1
                if count > MAX_VALUES:
                    _refuse(f"more than {MAX_VALUES:,} values")
                container[key] = item = _plain(item)
                if isinstance(item, list | dict):
                    below.append(item)
        if not below:
            return top[0]
        level = below
    return _refuse(f"nesting deeper than {MAX_DEPTH}")


def _plain(item: Any) -> Any:
    """An item without our stand-ins; tuples become lists."""
    if isinstance(item, _Array):
        if item.value is None:
            _refuse("an array without its values")
        return item.value
    if isinstance(item, tuple):
        return list(item)
    if item is None or isinstance(item, list | dict | np.ndarray | str | bytes | bytearray | int | float):
        return item
    return _refuse(f"a lone {item.path if isinstance(item, _Name) else type(item).__name__}")
