"""Two workers against one, on the same cells: at least 1.85 times the cells per second.

Beside it what the machine allows: the same ratio of processes that share nothing, each with a bare training loop. Cores
that share caches or a core's units, or neighbours, keep it below 2, and no pool can do better.
"""

import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier

import torch

from benchmark.executors import local
from benchmark.executors.local import Settings, execute
from benchmark.executors.pool import Message, Worker
from benchmark.matrix import parse
from benchmark.plan import make_plan
from datamodules import datasets
from methods import Recipe, methods
from tests.performance.paired import verdict
from tests.performance.training import bare_loop

BOUND = 1.85
ROUNDS = 3
CELLS = 16
ROWS = 8000
RECIPE = Recipe(width=128, epochs=8, patience=8)
MATRIX = {
    "seeds": CELLS,
    "methods": ["concat"],
    "baselines": False,
    "datasets": [{"name": "interactions_xor", "rows": ROWS}],
    "recipe": {"width": RECIPE.width, "epochs": RECIPE.epochs, "patience": RECIPE.patience},
}


class Watched(local._Processes):
    """Adds up how long the pool did something else than listen: all that a worker with nothing to do can wait for."""

    busy = 0.0
    left = float("inf")

    def listen(self, workers: Sequence[Worker], seconds: float) -> list[tuple[Worker, Message]]:
        Watched.busy += max(0.0, time.perf_counter() - Watched.left)
        heard = super().listen(workers, seconds)
        Watched.left = time.perf_counter()
        return heard


def ours(workers: int) -> float:
    """Cells per second once the workers run: importing torch is paid once per worker, whatever the matrix."""
    cells = make_plan(parse(MATRIX, "performance")).cells
    with tempfile.TemporaryDirectory() as folder:
        times = []
        for _ in execute(cells, Settings(folder, workers=workers, checkpoint=False)):
            times.append(time.perf_counter())
            if len(times) == workers:
                Watched.busy = 0.0
    return (len(times) - workers) / (times[-1] - times[workers - 1])


def bare(processes: int) -> float:
    """The same training per second without anything of ours around it, once the processes run."""
    context = multiprocessing.get_context("spawn")
    start, end = (context.Barrier(processes + 1, timeout=600) for _ in range(2))  # none waits for ever for a lost one
    started = [
        context.Process(target=_loops, args=(CELLS // processes, start, end), daemon=True) for _ in range(processes)
    ]
    for process in started:
        process.start()
    start.wait()
    began = time.perf_counter()
    end.wait()
    took = time.perf_counter() - began
    for process in started:
        process.join()
    return CELLS / took


def _loops(number: int, start: Barrier, end: Barrier) -> None:
    torch.set_num_threads(1)
    datamodule = datasets.get("interactions_xor")(rows=ROWS)
    for i in range(number + 1):
        bare_loop(methods.get("concat")(datamodule.task, RECIPE), datamodule, RECIPE)
        if i == 0:  # which warms up
            start.wait()
    end.wait()


def main() -> int:
    local._Processes = Watched
    pools, machine, waits = [], [], []
    for i in range(ROUNDS):
        # By turns first and second: neighbours come and go.
        turns = [(work, number) for work in (ours, bare) for number in (1, 2)][:: -1 if i % 2 else 1]
        rates = {(work, number): work(number) for work, number in turns}
        pools.append(rates[ours, 2] / rates[ours, 1])
        machine.append(rates[bare, 2] / rates[bare, 1])
        waits.append(1e3 * Watched.busy / CELLS)
    found, allowed = statistics.median(pools), statistics.median(machine)
    print(f"two workers: {found:.2f}x one (rounds {_shown(pools)}; bound {BOUND}) {verdict(found >= BOUND)}")
    print(f"two bare processes: {allowed:.2f}x one (rounds {_shown(machine)}): what this machine allows")
    print(f"the pool was busy for {statistics.median(waits):.1f} ms a cell, which is the most a worker can wait for it")
    return 0 if found >= BOUND else 1


def _shown(ratios: Sequence[float]) -> str:
    return ", ".join(f"{ratio:.2f}" for ratio in ratios)


if __name__ == "__main__":
    sys.exit(main())
