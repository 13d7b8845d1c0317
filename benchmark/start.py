"""A quick start for processes of our own: importing torch takes 1.5 seconds of a core, and Lightning took five.

Lightning imports torchmetrics, which imports whatever it finds installed for metrics of images, sound and text that no
task here has, and torch's compiler, which nothing here uses. Processes of the command line and their workers tell the
one that these are not there, and let the other wait. In a notebook or a script of the user's nothing is changed.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

from benchmark import compiler

ours = False
"""Whether this is a process of the command line: nobody else's objects are in it."""

_SPARED = ("matplotlib", "scipy", "torchvision", "transformers")


class _Sparing(MetaPathFinder):
    """Hears when torchmetrics is looked for, and lets torch's compiler and `scipy.stats` wait until somebody uses them.

    pytorch-metric-learning imports `scipy.stats` for one function of a miner that nobody here calls.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "torchmetrics":
            _spare()
        spec = PathFinder.find_spec(fullname, path, target) if fullname == "scipy.stats" else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec or compiler.find(fullname, path)


def quick() -> None:
    """Import less when Lightning is imported, if it is; to be called before."""
    global ours
    ours = True
    if "torchmetrics" not in sys.modules:
        sys.meta_path.insert(0, _Sparing())


@contextmanager
def importing() -> Iterator[None]:
    """What is made here stays until the process ends: nobody looks for garbage in it, neither now nor later.

    Looking took a fifth of the time of importing torch and Lightning, and 0.2 seconds of every cell, whose memory is
    measured after a collection.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # or libraries would tell of what was never freed


def leave(code: int) -> None:
    """End the process at once: to free, object by object, what torch and Lightning hold takes a second of a core.

    Returns if something is left to do that Python does at its end: a thread to wait for, output that cannot be written.
    """
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        return
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _spare() -> None:
    from lightning_utilities.core import imports

    available, look = imports.package_available, imports.RequirementCache._check_available

    def look_less(self: imports.RequirementCache) -> None:
        if (self.requirement or "").partition(">")[0] in _SPARED:
            self.available, self.message = False, f"{self.requirement} is not imported by the command line"
        look(self)

    imports.RequirementCache._check_available = look_less
    imports.package_available = lambda name: name not in _SPARED and available(name)
