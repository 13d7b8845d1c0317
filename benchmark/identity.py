"""The code behind a cell.

A digest of a method's source that changes when the code does, and not when a comment does.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

_OURS = ("methods", "datamodules")


def digest(cls: type) -> str:
    """Of the file that defines `cls`, and of every file of ours it imports, directly or not.

    An edited plugin, an edited encoder or an edited functional core therefore is a new cell, never a stale hit.
    """
    found: dict[str, str] = {}
    _collect(Path(inspect.getfile(cls)), found)
    for base in cls.__mro__:
        if base.__module__.split(".")[0] in _OURS:
            _collect(Path(inspect.getfile(base)), found)
    return hashlib.sha256("\n".join(f"{k}" for k in sorted(found.values())).encode()).hexdigest()


def _collect(path: Path, found: dict[str, str]) -> None:
    if str(path) in found:
        return
    normal, imports = _read(path, path.stat().st_mtime_ns)
    found[str(path)] = normal
    for module in imports:
        spec = find_spec(module)
        if spec is not None and spec.origin:
            _collect(Path(spec.origin), found)


@lru_cache(maxsize=512)
def _read(path: Path, changed: int) -> tuple[str, tuple[str, ...]]:
    """The digest of a file without comments, docstrings and layout, and the modules of ours it imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in _OURS:
            imports.append(node.module)
            imports += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names if alias.name.split(".")[0] in _OURS]
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    normal = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
    return normal, tuple(name for name in imports if _is_module(name))


@lru_cache(maxsize=1024)
def _is_module(name: str) -> bool:
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:  # a class imported from a module
        return False
    # Registries list names and hold no numbers: their edits change no result.
    return spec is not None and spec.origin is not None and not name.endswith("registry")
