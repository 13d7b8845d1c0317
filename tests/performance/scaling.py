"""How the cost of a cell grows with rows, modalities, conditions and epochs, and what the runner itself costs per cell.

Prints the tables of docs/scale.md: CPU seconds of one core, and the line fitted through them. Nothing here can fail but
the fit: a cost that is far from linear would make the sums of docs/scale.md wrong. Run by `make performance`; with
`--ray` it also measures how many empty cells per second go through the local executor and through Ray.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import torch

from benchmark.executors import local
from benchmark.executors.pool import Settings
from benchmark.matrix import parse
from benchmark.plan import make_plan
from benchmark.runner import run_cell, write_failure
from leaderboard.record import Cell
from leaderboard.store import Store

ROWS, MODALITIES, EPOCHS = 4000, 2, 5
FAR = 0.25  # relative error of the fit at the largest point
EMPTY = 300


def cell(folder: Path, rows: int, modalities: int, conditions: str, epochs: int = EPOCHS) -> Cell:
    """`concat` on vectors of 32 features; two thirds of the rows train, a fifth test."""
    rng = np.random.default_rng(0)
    names = [f"m{i}" for i in range(modalities)]
    path = folder / f"{rows}-{modalities}.npz"
    if not path.exists():
        target = rng.integers(0, 10, rows)
        centres = rng.standard_normal((10, 32))
        arrays = {name: (centres[target] + rng.standard_normal((rows, 32))).astype(np.float32) for name in names}
        np.savez(path, allow_pickle=False, target=target, **arrays)
    matrix = {
        "methods": ["concat"],
        "baselines": False,
        "conditions": conditions,
        "datasets": [{"name": "npz_views", "file": str(path), "modalities": names}],
        "recipe": {"epochs": epochs, "patience": epochs, "batch_size": 128},
    }
    return make_plan(parse(matrix, "scaling")).cells[0]


def seconds(one: Cell) -> tuple[float, float]:
    """CPU seconds and seconds of the sweep alone, the best of two."""
    found = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as results:
            started = time.process_time()
            record = run_cell(one, Store(results), checkpoint=False)
            found.append((time.process_time() - started, record.cost.get("sweep_seconds", 0.0)))
            if record.error:
                raise RuntimeError(record.error.traceback)
    return min(found)


def grid(folder: Path) -> Iterator[tuple[str, list[tuple[float, Cell]]]]:
    yield "rows", [(n, cell(folder, n, MODALITIES, "standard")) for n in (2000, 4000, 8000, 16000)]
    yield "epochs", [(n, cell(folder, ROWS, MODALITIES, "none", n)) for n in (2, 5, 10, 20)]
    yield "modalities", [(m, cell(folder, ROWS, m, "none")) for m in (2, 3, 4, 6)]
    swept = [cell(folder, ROWS, MODALITIES, name) for name in ("none", "standard", "full")]
    yield "conditions", [(len(one.conditions), one) for one in swept]


def report(name: str, points: list[tuple[float, Cell]]) -> bool:
    x = np.array([value for value, _ in points])
    y = np.array([seconds(one)[0] for _, one in points])
    slope, intercept = np.polyfit(x, y, 1)
    error = abs(slope * x[-1] + intercept - y[-1]) / y[-1]
    measured = ", ".join(f"{value:g}: {took:.2f} s" for value, took in zip(x, y, strict=True))
    print(f"{name}: {measured}; fit {intercept:.2f} s + {slope:.3g} s each, {100 * error:.0f} % off at the largest")
    return bool(error > FAR)


class EmptyCells:
    """Cells whose only work is their record: what is left is the executor and the store."""

    def __init__(self, folder: Path) -> None:
        one = cell(folder, 2000, 2, "none")
        # Of other code than there is: refused at once, and recorded.
        self.cells = [msgspec.structs.replace(one, seed=i, source="other") for i in range(EMPTY)]

    def rate(self, execute: object, folder: Path) -> float:
        """Cells per second after the first."""
        Store(folder).prepare()
        times = [time.perf_counter() for _ in execute(self.cells, Settings(str(folder), workers=1))]  # pyright: ignore
        return (len(times) - 1) / (times[-1] - times[0])


def main() -> int:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seconds(cell(folder, 2000, 2, "none", 1))  # the first cell of a process pays for imports
        missed = [report(*points) for points in grid(folder)]
        if "--ray" in sys.argv:
            from benchmark.executors import ray

            empty = EmptyCells(folder)
            for title, executor in (("local", local), ("ray", ray)):
                rate = empty.rate(executor.execute, folder / title)
                print(f"{title}: {rate:.0f} empty cells/s through one worker (each fails at once and is recorded)")
            store = Store(folder / "alone")
            store.prepare()
            started = time.perf_counter()
            for one in empty.cells:
                write_failure(one, store, RuntimeError("empty"))
            print(f"store alone: {EMPTY / (time.perf_counter() - started):.0f} records/s")
    return int(any(missed))


if __name__ == "__main__":
    sys.exit(main())
