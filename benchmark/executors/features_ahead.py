"""Features a run needs, computed before its first cell: with all cores or the GPU, and a bar that says how long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from benchmark.build import build_dataset
from benchmark.conditions import befalling
from datamodules.encoders import feature_cache
from datamodules.encoders.feature_cache import TableSpec
from datamodules.encoders.features import Features
from datamodules.spec import Task
from leaderboard.record import Cell


@dataclass(frozen=True)
class Made:
    """How many tables a run needs, how many of them had to be made, and the size of the cache."""

    tables: int
    made: int
    bytes: int

    def __str__(self) -> str:
        size, limit = self.bytes / 1e9, feature_cache.bound() / 1e9
        return f"features: {self.tables} tables, {self.made} computed now; cache {size:.3g} of {limit:.3g} GB"


def make_ahead(cells: Iterable[Cell]) -> Made | None:
    """Compute what is missing of the features of all cells; None if none uses any."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(f"{cell.dataset}/{cell.dataset_options}", []).append(cell)
    tables: list[TableSpec] = []
    for group in groups.values():
        datamodule = build_dataset(group[0].dataset, group[0].dataset_options)
        if isinstance(datamodule, Features):
            tables += datamodule.tables(_corruptions(datamodule.raw, group))
    if not tables:
        return None
    missing = [spec for spec in tables if not feature_cache.exists(spec)]
    _make(missing)
    return Made(len(tables), len(missing), sum(k.bytes for k in feature_cache.kept()))


def _make(missing: list[TableSpec]) -> None:
    """Compute tables one after the other, with one bar for all."""
    done = 0
    with feature_cache.bar() as progress:
        task = progress.add_task("features", total=sum(spec.items for spec in missing))
        for number, spec in enumerate(missing, start=1):
            progress.update(task, description=f"{number}/{len(missing)} {spec.title}")
            feature_cache.table(spec, lambda items: progress.update(task, advance=items))
            done += spec.items
            progress.update(task, completed=done)  # another process may have made it
    torch.cuda.empty_cache()  # the memory is the workers'


def _corruptions(raw: Task, cells: list[Cell]) -> dict[str, tuple[tuple[str, int], ...]]:
    """Modality -> the corruptions and severities its test rows meet in some cell."""
    met: dict[str, dict[tuple[str, int], None]] = {m.name: {} for m in raw.modalities}
    for condition in (c for cell in cells for c in cell.conditions if c.kind in ("single", "joint")):
        for m in raw.modalities:
            if (corruption := befalling(condition, m, raw.name)) is not None:
                met[m.name][corruption, condition.severity] = None
    return {name: tuple(pairs) for name, pairs in met.items()}
