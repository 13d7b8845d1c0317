"""One torch thread per test process; under CI a skip fails, unless it needs a GPU, LaTeX or a Slurm that starts."""

import os
import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

from datamodules.corruptions.registry import corruptions
from datamodules.registry import datasets
from datamodules.targets import targets
from methods.registry import methods

torch.set_num_threads(1)
# Timing never decides a test, and a run that failed can be repeated.
settings.register_profile("polymodal", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("polymodal")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    report = yield
    if os.environ.get("POLYMODAL_CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(word in reason for word in ("GPU", "Slurm", "LaTeX")):
            report.outcome = "failed"
            report.longrepr = f"skipped under CI: {reason}"
    return report


@pytest.fixture(autouse=True)
def folders_stay() -> Iterator[None]:
    """A test that names a folder of data, as commands and the API do, names it for itself."""
    before = {name: os.environ.get(name) for name in ("POLYMODAL_DATA", "POLYMODAL_WEIGHTS")}
    yield
    for name, folder in before.items():
        if folder is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = folder


@pytest.fixture(autouse=True)
def plugins_leave() -> Iterator[None]:
    """What a plugin registers in a test is not there in the next."""
    registries = (corruptions, datasets, methods, targets)
    modules, loaded = set(sys.modules), [dict(registry._loaded) for registry in registries]
    yield
    plugins = [name for name in set(sys.modules) - modules if name.startswith("polymodal_plugin_")]
    for name in plugins:
        del sys.modules[name]
    for registry, before in zip(registries, loaded, strict=True):
        gone = [name for name, cls in registry._loaded.items() if name not in before and cls.__module__ in plugins]
        for name in gone:
            del registry._loaded[name]
