"""`polymodal doctor`: is this machine ready?"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmark.arguments import add_json, add_results
from benchmark.errors import printable

NAME = "doctor"
HELP = "Check the environment: versions, devices, data, the results folder."
EXAMPLE = """examples:
  polymodal doctor
  polymodal doctor --json
"""
_PACKAGES = ("polymodal", "torch", "lightning", "torchmetrics", "torchvision", "numpy", "scipy", "pandas", "ray")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_results(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    checks: dict[str, Callable[[], str]] = {
        "python": _python,
        "packages": _packages,
        "devices": _devices,
        "registries": _registries,
        "plugins": _plugins,
        "data": _data,
        "results": lambda: _results(arguments.results),
    }
    report = []
    for name, check in checks.items():
        try:
            report.append({"check": name, "ok": True, "detail": check()})
        except Exception as error:  # noqa: BLE001 - a doctor reports what is wrong, whatever it is
            report.append({"check": name, "ok": False, "detail": f"{type(error).__name__}: {error}"})
    if arguments.json:
        print(json.dumps(report, indent=1))
    else:
        for line in report:
            print(printable(f"{'ok  ' if line['ok'] else 'FAIL'}  {line['check']:<11} {line['detail']}"))
    return 0 if all(line["ok"] for line in report) else 1


def _python() -> str:
    return f"{platform.python_version()} on {platform.platform()}"


def _packages() -> str:
    versions = []
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            if name != "ray":  # an extra
                raise
    return ", ".join(versions)


def _devices() -> str:
    import torch

    from benchmark.executors.pool import cores

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    gpu = ", ".join(gpus) or ("MPS" if torch.backends.mps.is_available() else "no GPU")
    return f"{cores()} cores, {gpu}"


def _registries() -> str:
    from datamodules.corruptions.registry import corruptions
    from datamodules.registry import datasets
    from methods.registry import methods

    return f"{len(methods.names())} methods, {len(datasets.names())} datasets, {len(corruptions.names())} corruptions"


def _plugins() -> str:
    """Imports what installed packages register: only then is it known whether it works."""
    from datamodules.registry import datasets
    from methods.registry import methods

    faults = (*methods.faults(), *datasets.faults())
    if faults:
        raise ImportError("; ".join(faults) + ". Update or uninstall what is broken: runs go on without it")
    installed = [*methods.installed(), *datasets.installed()]
    return f"installed packages register {', '.join(installed)}" if installed else "no installed package registers any"


def _data() -> str:
    folder = os.environ.get("POLYMODAL_DATA")
    if not folder:
        return "POLYMODAL_DATA is not set: datasets from your own folders are not available"
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"POLYMODAL_DATA={folder} is not a folder")
    return f"POLYMODAL_DATA={folder}: {', '.join(sorted(p.name for p in Path(folder).iterdir()))}"


def _results(folder: str) -> str:
    from leaderboard.store import Store

    store = Store(folder)
    existed = store.folder.exists()
    store.prepare()
    free = shutil.disk_usage(store.folder).free / 2**30
    if not existed:
        shutil.rmtree(store.folder / ".locks", ignore_errors=True)
        store.folder.rmdir()
        return f"{folder} can be created, {free:.0f} GB free"
    reading = store.scan()
    return f"{folder}: {len(reading.records)} records, {len(reading.invalid)} invalid, {free:.0f} GB free"
