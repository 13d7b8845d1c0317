"""From argv to results: the matrix, the plan, the runner, the sweep and the command line.

`from benchmark import run, plan, tune, board` is the same for a notebook: see `benchmark/api.py`.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmark.api import board, plan, run, tune
    from benchmark.own_data.answer import predict, try_data

__all__ = ["board", "plan", "predict", "run", "try_data", "tune"]
_OWN_DATA = ("predict", "try_data")


def _check_root() -> None:
    """The names of our packages are generic: make sure that each is ours, and name the intruder if one is not."""
    root = Path(__file__).resolve().parent.parent
    for name in ("datamodules", "methods", "leaderboard"):
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ImportError(f"Polymodal is incomplete: no package `{name}` beside {root / 'benchmark'}")
        found = Path(spec.origin).resolve().parent.parent
        if found != root:
            raise ImportError(
                f"`import {name}` finds {found / name}, not Polymodal's own in {root}: rename the intruder, or "
                "run your script by `polymodal python FILE`, which puts Polymodal's packages first"
            )


_check_root()


class _Package(ModuleType):
    """The package, whose functions `plan` and `tune` keep their names though there are files of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    # Late, so that nothing is imported before something is asked for; torch not before something is planned.
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("benchmark.own_data.answer" if name in _OWN_DATA else "benchmark.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
