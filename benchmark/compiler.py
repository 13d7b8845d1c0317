"""torch's compiler waits until somebody compiles: importing it takes as long as importing torch and Lightning.

Lightning imports `torch._dynamo` to tell compiled modules from others, optimizers and tensors without memory to say
what not to compile. While nothing is compiled, there is one answer to that. Whatever else is asked of the module
imports it, and from then on it answers for itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

NAME = "torch._dynamo"


class _Compiled(type):
    """Of a class that has the instances of the compiler's own, hence none while there is no compiler."""

    def __instancecheck__(cls, instance: object) -> bool:
        return not waits() and isinstance(instance, sys.modules[NAME].OptimizedModule)


class OptimizedModule(metaclass=_Compiled):
    """A module that was compiled."""


def disable(function: Callable[..., Any], recursive: bool = True, **more: Any) -> Callable[..., Any]:
    """The function, which is not compiled: by a compiler, once there is one, is to be told."""
    told: list[Callable[..., Any]] = []

    def disabled(*arguments: Any, **named: Any) -> Any:
        if waits():
            return function(*arguments, **named)
        if not told:
            told.append(sys.modules[NAME].disable(function, recursive, **more))
        return told[0](*arguments, **named)

    return disabled


def graph_break(msg: str = "") -> None:
    """Nothing to break while nothing is compiled."""


class _Waiting(ModuleType):
    """The module before somebody needs it."""

    def __getattribute__(self, name: str) -> Any:
        if name in _ANSWERS:
            return _ANSWERS[name]
        if name not in _OF_IMPORTS and waits():
            _load(self)
        return ModuleType.__getattribute__(self, name)  # `super()` would refuse what is a common module by now


_ANSWERS = {"OptimizedModule": OptimizedModule, "disable": disable, "graph_break": graph_break}
_OF_IMPORTS = ("__class__", "__dict__", "__file__", "__name__", "__path__", "__spec__")


class _Later(Loader):
    """Makes the module, and runs its code when it is needed."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Waiting(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return


def find(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """The compiler, to be imported when it is needed; None for any other module, of which its parts need it."""
    if fullname.startswith(NAME + ".") and waits():
        _load(sys.modules[NAME])
    spec = PathFinder.find_spec(fullname, path) if fullname == NAME else None
    if spec is not None and spec.loader is not None:
        spec.loader = _Later(spec.loader)
    return spec


def waits() -> bool:
    """Whether nobody has needed the compiler yet."""
    return type(sys.modules.get(NAME)) is _Waiting


def _load(module: ModuleType) -> None:
    spec = module.__spec__
    assert spec is not None and isinstance(spec.loader, _Later)
    module.__class__ = ModuleType
    module.__loader__ = spec.loader = spec.loader.loader
    spec.loader.exec_module(module)
