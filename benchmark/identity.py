"""The code behind a cell: digests that change when code that decides numbers does, and not when a comment does.

A method's digest covers its own files and what they import of `methods`. The protocol's digest covers what trains and
scores all methods alike, and the dataset's own files. How data is fetched, shown or commanded decides no number.

Code that was made faster and gives the same numbers, bit for bit, keeps the digest it had: `same_numbers.toml` names
it. Or nobody could ever speed up a protocol without losing all results of it.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any

from benchmark.syntax import written
from datamodules.base import DataModule
from datamodules.bases.around import Around
from methods.base import Method
from methods.registry import methods
from methods.wrapper import Base

PROTOCOL = (
    "benchmark.attention",
    "benchmark.evaluate",
    "benchmark.fills",
    "benchmark.seeds",
    "benchmark.tally",
    "benchmark.trainer",
    "datamodules.base",
    "methods.base",
    "methods.metrics",
    "methods.parts.encoders",
    "methods.stage",
    "methods.wrapper",
)
_METHODS = ("methods",)
_DATASETS = ("datamodules",)
# Names, checks and ways to fetch bytes, whose content is checked where it is read; and what a cell says of itself:
# corruptions by version, encoders in the files of the datasets that use them.
_NEUTRAL = (
    "datamodules",
    "datamodules.corruptions",
    "datamodules.options",
    "datamodules.registry",
    "datamodules.sources.files",
    "datamodules.sources.folders",
    "datamodules.sources.hub_table",
    "datamodules.sources.wheels",
    "methods",
    "methods.registry",
)


def method_digest(cls: type[Method], options: Mapping[str, Any]) -> str:
    """Of a method's code and of the code of what its options make it wrap."""
    bases = [value for value in options.values() if isinstance(value, Base)]
    wrapped = [method_digest(methods.get(base.name), base.options) for base in bases]
    return _join([_digest(cls, _METHODS), *wrapped])


def protocol_digest(datamodule: DataModule) -> str:
    """Of the code that all methods share on a dataset."""
    return _join(
        [
            *_protocol(),
            *(_digest(type(part), _DATASETS) for part in (*layers(datamodule), datamodule.task.goal)),
        ]
    )


def layers(datamodule: DataModule) -> list[DataModule]:
    """The dataset and what it is around, the innermost last: as many rows, without what is computed of them."""
    found = [datamodule]
    while isinstance(found[-1], Around):
        found.append(found[-1].base)
    return found


def as_imported(*classes: type) -> bool:
    """Whether the files of these classes, and what trains them, are as when this process first asked about them.

    Ask right after importing. A file that was edited before the import and put back after it has the digest of the
    plan, and what was imported has not.
    """
    now: dict[type | None, str] = {c: _digest(c, _METHODS if issubclass(c, Method) else _DATASETS) for c in classes}
    now[None] = _join(_protocol())
    return all(_first.setdefault(c, digest) == digest for c, digest in now.items())


_first: dict[type | None, str] = {}


def wrapped_by(options: Mapping[str, Any]) -> Iterator[type[Method]]:
    """The methods that a method's options make it wrap."""
    for value in options.values():
        if isinstance(value, Base):
            yield methods.get(value.name)
            yield from wrapped_by(value.options)


def code_digest(path: Path) -> str:
    """Of a file and what it imports of methods and datasets, for numbers that are made outside of cells."""
    files: set[Path] = set()
    _collect(path, (*_METHODS, *_DATASETS), files)
    return _join(sorted(_read(file, _changed(file))[0] for file in files))


def _protocol() -> Iterator[str]:
    return (_read(path, _changed(path))[0] for path in map(_path, PROTOCOL))


def _digest(cls: type, packages: tuple[str, ...]) -> str:
    typed = [_typed(cls)] if _file(cls) is None else []
    return _join(sorted([*typed, *(_read(path, _changed(path))[0] for path in _files(cls, packages))]))


def _file(cls: type) -> Path | None:
    """Where a class is written down; None for one that was typed into a notebook."""
    try:
        path = Path(inspect.getfile(cls))
    except (TypeError, OSError):
        return None
    return path if path.is_file() else None


def _typed(cls: type) -> str:
    """Of a class without a file: what its functions do, and its other attributes."""
    parts: list[str] = []
    for name, value in sorted(vars(cls).items()):
        function = getattr(value, "__func__", value)
        code = getattr(function, "__code__", None)
        if code is not None:
            parts += [name, *_instructions(code), repr(function.__defaults__), repr(function.__kwdefaults__)]
        elif not name.startswith("__"):
            parts += [name, repr(value)]
    return _join(parts)


def _instructions(code: CodeType) -> list[str]:
    constants = [_instructions(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts if c != code.co_name]
    return [code.co_code.hex(), repr(code.co_names), repr(code.co_varnames), repr(constants)]


@lru_cache(maxsize=512)
def _files(cls: type, packages: tuple[str, ...]) -> frozenset[Path]:
    """The files that define a class and its bases, and every file of `packages` they import, directly or not."""
    files: set[Path] = set()
    for base in cls.__mro__:
        top = base.__module__.partition(".")[0]
        path = _file(base)
        if path is not None and (base is cls or (top in packages and base.__module__ not in PROTOCOL)):
            _collect(path, packages, files)
    return frozenset(files)


def _collect(path: Path, packages: tuple[str, ...], files: set[Path]) -> None:
    if path in files:
        return
    files.add(path)
    for module in _read(path, _changed(path))[1]:
        if module.partition(".")[0] in packages and module not in PROTOCOL and module not in _NEUTRAL:
            _collect(_path(module), packages, files)


@lru_cache(maxsize=512)
def _read(path: Path, changed: int) -> tuple[str, tuple[str, ...]]:
    """The digest of a file without comments, docstrings and layout, and the modules of ours it imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports: list[str] = []
    for node in _statements(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            imports += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    normal = hashlib.sha256(written(tree).encode()).hexdigest()
    return _same_numbers().get(normal, normal), tuple(name for name in dict.fromkeys(imports) if _is_module(name))


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement below a node, and itself; expressions, which are most of a tree, hold none."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for part in ("body", "orelse", "handlers", "finalbody", "cases"):
            waiting += getattr(node, part, ())


@lru_cache(maxsize=1)
def _same_numbers() -> dict[str, str]:
    """The digest of code -> of the code before it that gave the same numbers."""
    text = Path(__file__).with_name("same_numbers.toml").read_text(encoding="utf-8")
    return {change["now"]: change["before"] for change in tomllib.loads(text)["change"]}


@lru_cache(maxsize=2048)
def _is_module(name: str) -> bool:
    if name.partition(".")[0] not in (*_METHODS, *_DATASETS):
        return False
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:  # a class imported from a module
        return False
    return spec is not None and spec.origin is not None


@lru_cache(maxsize=512)
def _path(module: str) -> Path:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None, module
    return Path(spec.origin)


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns


def _join(digests: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()
