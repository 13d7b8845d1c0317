"""What a dataset owes to everybody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import torch

from benchmark.conformance.case import RECIPE
from benchmark.conformance.report import Result, require, run_check
from datamodules.base import DataModule
from methods.registry import methods


def check_dataset(name: str, make: Callable[[], DataModule]) -> list[Result]:
    """Every check of the dataset that `make` makes: its class, or what fills in options."""
    datamodule = make()
    results = [run_check(check, name, lambda f=function: f(datamodule)) for check, function in DATASET_CHECKS.items()]
    return [*results, run_check("same", name, lambda: _check_same(datamodule, make()))]


def _check_facts(datamodule: DataModule) -> None:
    for fact in ("version", "licence", "citation", "source"):
        require(bool(getattr(datamodule, fact)), f"state the `{fact}`: a user must know before trusting the numbers")


def _check_splits(datamodule: DataModule) -> None:
    task = datamodule.task
    require(
        set(datamodule.splits) == {"train", "val", "test"},
        f"splits must be train, val, test, got {list(datamodule.splits)}",
    )
    for name, split in datamodule.splits.items():
        rows = len(split.target)
        require(rows > 0, f"split {name!r} is empty")
        for m in task.modalities:
            x = split.inputs[m.name]
            require(
                tuple(x.shape) == (rows, *m.shape),
                f"{name}/{m.name}: declared {(rows, *m.shape)}, got {tuple(x.shape)}",
            )
            sample = x[torch.arange(min(rows, 2000))]
            if m.kind == "text":
                require(
                    not sample.is_floating_point(), f"{name}/{m.name}: token ids must be integers, got {sample.dtype}"
                )
                require(
                    int(sample.min()) >= 0 and int(sample.max()) < m.vocabulary, f"{name}/{m.name}: ids out of range"
                )
            else:
                require(sample.dtype == torch.float32, f"{name}/{m.name}: must be float32, got {sample.dtype}")
                require(bool(sample.isfinite().all()), f"{name}/{m.name}: has values that are not finite")
            if m.kind == "image" and m.range is not None:
                low, high = m.range
                require(bool((sample >= low - 1e-4).all() and (sample <= high + 1e-4).all()),
                         f"{name}/{m.name}: values leave the declared range {m.range}")  # fmt: skip
        if split.present is not None:
            require(bool(split.present.any(dim=1).all()), f"{name}: a row has no modality present")


def _check_target(datamodule: DataModule) -> None:
    faults = datamodule.task.goal.faults({name: split.target for name, split in datamodule.splits.items()})
    require(not (first := next(faults, "")), first)


def _check_disjoint(datamodule: DataModule) -> None:
    """No row, and no source of rows, in two splits."""
    seen: dict[Any, set[int]] = {name: set(_row_hashes(datamodule, name)) for name in datamodule.splits}
    for a, b in combinations(seen, 2):
        shared = len(seen[a] & seen[b])
        require(shared == 0, f"{shared} row(s) are in both {a} and {b}")
        groups = [datamodule.splits[s].group for s in (a, b)]
        if groups[0] is not None and groups[1] is not None:
            both = set(groups[0].tolist()) & set(groups[1].tolist())
            require(not both, f"sources {sorted(both)[:5]} have rows in both {a} and {b}")


def _row_hashes(datamodule: DataModule, split: Any) -> Iterator[int]:
    for batch in datamodule.ordered(split):
        parts = [x.flatten(1).contiguous().numpy() for x in batch.inputs.values()]
        yield from (hash(tuple(p[i].tobytes() for p in parts)) for i in range(len(batch.row)))


def _check_same(datamodule: DataModule, again: DataModule) -> None:
    print_ = datamodule.fingerprint()
    require(print_ == again.fingerprint(), "two loads give different rows: fix every seed by the version")
    recorded = datamodule.sha256
    require(
        not recorded or recorded == print_,
        f"the rows changed (sha256 {print_}, recorded {recorded}): bump `version` and record the new hash",
    )


def _check_trains(datamodule: DataModule) -> None:
    for cls in (methods.get("concat"), methods.get("unimodal")):
        if cls.applies_to(datamodule.task, {}) is None:
            method = cls(datamodule.task, RECIPE)
            batch = datamodule.train_dataloader().take(torch.arange(min(64, len(datamodule.splits["train"].target))))
            out = method(batch.inputs, batch.present)
            require(bool(out.logits.isfinite().all()), f"{cls.__name__} gives logits that are not finite")


DATASET_CHECKS: dict[str, Callable[[DataModule], str | None]] = {
    "facts": _check_facts,
    "splits": _check_splits,
    "target": _check_target,
    "disjoint": _check_disjoint,
    "trains": _check_trains,
}
