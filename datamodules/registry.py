"""Registries.

Names to classes, filled by decorators, entry points and plugin files, listed without importing anything.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from types import ModuleType

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_PLUGIN = "polymodal_plugin_"  # how the modules of plugin files are named


@dataclass(frozen=True)
class Entry:
    """What can be said of a registered name without importing it."""

    name: str
    summary: str = ""
    family: str = ""
    origin: str = ""


class Registry:
    """Names of one kind of thing (methods, datasets, corruptions) and where to find them.

    A name comes from a `@register("name")` decorator in one of `folder`'s files, from an entry point in `group` of an
    installed package, or from a plugin file the user gave. A name that is registered twice is an error.
    """

    def __init__(self, noun: str, package: str, group: str, decorator: str = "register") -> None:
        self.noun = noun
        self.package = package
        self.group = group
        self.decorator = decorator
        self._loaded: dict[str, type] = {}

    def register(self, name: str) -> Callable[[type], type]:
        """Class decorator that makes the class available under `name`."""

        def add(cls: type) -> type:
            if not _NAME.fullmatch(name):
                raise ValueError(f"Expected a {self.noun} name in snake_case, but got {name!r}")
            known = self._loaded.get(name)
            if known is not None and _origin(known) != _origin(cls):
                raise ValueError(f"{self.noun} {name!r} is registered twice: in {_origin(known)} and {_origin(cls)}")
            shipped = self._shipped().get(name)
            if shipped is not None and cls.__module__ != shipped[0]:
                raise ValueError(f"{self.noun} {name!r} is registered twice: in {shipped[0]} and {_origin(cls)}")
            self._loaded[name] = cls
            return cls

        return add

    def entries(self) -> tuple[Entry, ...]:
        """Every known name, sorted; reads source text and package metadata, imports nothing."""
        found = {name: entry for name, (_, entry) in self._shipped().items()}
        for name, point in self._installed().items():
            if name in found:
                raise ValueError(f"{self.noun} {name!r} is registered twice: by us and by {point.value}")
            found[name] = Entry(name, origin=point.value)
        for name, cls in self._loaded.items():
            if name not in found:
                summary = (cls.__doc__ or "").strip().partition("\n")[0]
                found[name] = Entry(name, summary, getattr(cls, "family", ""), _origin(cls))
        return tuple(found[name] for name in sorted(found))

    def names(self) -> tuple[str, ...]:
        """Every known name, sorted."""
        return tuple(entry.name for entry in self.entries())

    def get(self, name: str) -> type:
        """The class registered as `name`, importing its file if need be.

        Raises:
            KeyError: With a suggestion, if there is none.
            ImportError: If the installed package that registers it fails, saying where.
        """
        if name in self._loaded:
            return self._loaded[name]
        if shipped := self._shipped().get(name):
            importlib.import_module(shipped[0])
        elif point := self._installed().get(name):
            self._loaded.setdefault(name, self._load(point))
        else:
            raise KeyError(self.unknown(name))
        return self._loaded[name]

    def classes(self) -> dict[str, type]:
        """What has been imported so far, by name."""
        return dict(self._loaded)

    def installed(self) -> tuple[str, ...]:
        """The names that installed packages register."""
        return tuple(self._installed())

    def faults(self) -> tuple[str, ...]:
        """What is wrong with installed packages that register something here: imports all of them."""
        found = []
        for point in self._installed().values():
            try:
                self._load(point)
            except ImportError as error:
                found.append(str(error))
        return tuple(found)

    def _load(self, point: EntryPoint) -> type:
        package = point.dist.name if point.dist else point.value
        try:
            return point.load()
        except (Exception, SystemExit) as error:
            top = point.module.partition(".")[0]
            own = raised_at(error, lambda file: top in (Path(file).stem, *Path(file).parts))
            place = f" ({own[0]}, line {own[1]})" if own else ""
            said = f"{type(error).__name__}: {error}{place}"
            raise ImportError(
                f"{self.noun} {point.name!r} of the package {package} failed to import: {said}"
            ) from error

    def unknown(self, name: str) -> str:
        """The message for a name nobody registered."""
        return f"no {self.noun} named {name!r}. {did_you_mean(name, self.names())}"

    def _shipped(self) -> dict[str, tuple[str, Entry]]:
        """Names decorated in our own files: name -> (module, entry)."""
        if not hasattr(self, "_shipped_cache"):
            folder = Path(next(iter(_package_path(self.package))))
            self._shipped_cache = scan(folder, self.package, self.decorator)
        return self._shipped_cache

    def _installed(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in _entry_points(self.group, tuple(sys.path))}


@lru_cache(maxsize=8)
def _entry_points(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Of the packages on `sys.path`: reading the metadata of them all takes 30 milliseconds."""
    return entry_points(group=group)


def did_you_mean(name: str, known: tuple[str, ...] | list[str]) -> str:
    """`Did you mean 'x'? Known: ...`, the first part only if something is close."""
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known: {', '.join(sorted(known)) or 'none'}"


def scan(folder: Path, package: str, decorator: str) -> dict[str, tuple[str, Entry]]:
    """Find `@decorator("name")` on the classes and functions of a folder's files by reading them, not by importing."""
    found: dict[str, tuple[str, Entry]] = {}
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if f"@{decorator}(" not in text:  # parsing costs 100 times this look
            continue
        for node in ast.parse(text).body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef):
                continue
            for name in _decorated_names(node, decorator):
                module = f"{package}.{path.stem}"
                if name in found:
                    raise ValueError(f"{name!r} is registered twice: in {found[name][0]} and {module}")
                summary = (ast.get_docstring(node) or "").partition("\n")[0]
                found[name] = (module, Entry(name, summary, _family(node), module))
    return found


def loaded_plugins() -> tuple[str, ...]:
    """The plugin files of this process, for one that it starts."""
    return tuple(str(module.__file__) for name, module in list(sys.modules.items()) if name.startswith(_PLUGIN))


def load_plugin(path: str | Path) -> ModuleType:
    """Import a plugin file the user chose; its decorators register what is in it. This runs the file's code.

    Raises:
        FileNotFoundError: If there is no such file.
        ImportError: If the file raises, with its own error as the cause.
    """
    path = Path(path).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"no plugin file {path}")
    name = f"{_PLUGIN}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(path) and module.__name__ != "__main__":
            return module  # imported by the user's own code, so what it registers is registered
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or not isinstance(spec.loader, SourceFileLoader):
        raise ImportError(f"plugin {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        # The file that is hashed, never what Python kept of it: an edit of the same second and size looks unchanged.
        exec(spec.loader.source_to_code(path.read_bytes(), str(path)), module.__dict__)
    except (Exception, SystemExit) as error:  # who ends the process would end a run that has not begun, with success
        del sys.modules[name]
        own = raised_at(error, lambda file: file == str(path))
        place = f" ({own[0]}, line {own[1]})" if own else ""
        raise ImportError(f"plugin {path} failed to import: {type(error).__name__}: {error}{place}") from error
    return module


def raised_at(error: BaseException, own: Callable[[str], bool]) -> tuple[str, int] | None:
    """File and line where an error left the files that are somebody's own, or where they cannot be read."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno and own(error.filename):
        return error.filename, error.lineno
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.lineno and own(f.filename)]
    return (frames[-1].filename, frames[-1].lineno or 0) if frames else None


def _package_path(package: str) -> list[str]:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"{package} is not an importable package")
    return list(spec.submodule_search_locations)


def _decorated_names(node: ast.ClassDef | ast.FunctionDef, decorator: str) -> list[str]:
    calls = [d for d in node.decorator_list if isinstance(d, ast.Call) and isinstance(d.func, ast.Name) and d.args]
    literals = [c.args[0] for c in calls if isinstance(c.func, ast.Name) and c.func.id == decorator]
    return [n.value for n in literals if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def _family(node: ast.ClassDef | ast.FunctionDef) -> str:
    """The literal of a class-level `family = "..."`, if there is one."""
    for statement in node.body:
        target = statement.target if isinstance(statement, ast.AnnAssign) else None
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
        if isinstance(target, ast.Name) and target.id == "family":
            value = getattr(statement, "value", None)
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
    return ""


def _origin(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


datasets = Registry("dataset", "datamodules", "polymodal.datasets")
register = datasets.register
