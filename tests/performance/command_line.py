"""What a person waits for at the command line: `--help`, lists, the plan of `core`, the board of `quick`, all cold.

The board is of planted records, as many as `quick` makes.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.leaderboard.conftest import Planted, write_results

ENTRIES, DATASETS, SEEDS, ROWS = 47, 3, 2, 1000
WAITS = {("--help",): (0.5, 7), ("list", "methods"): (0.5, 7), ("plan", "core", "--json"): (5.0, 3)}
BOARD = 6.0


def seconds(arguments: tuple[str, ...], times: int) -> float:
    """The median of several starts."""
    program = Path(sys.executable).with_name("polymodal")
    took: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        subprocess.run([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        took.append(time.perf_counter() - started)
    return statistics.median(took)


def missed(name: str, took: float, bound: float) -> bool:
    print(f"polymodal {name}: {took:.2f} s (bound {bound}) {'ok' if took <= bound else 'MISSED'}", flush=True)
    return took > bound


def main() -> int:
    status = False
    for arguments, (bound, times) in WAITS.items():
        status |= missed(" ".join(arguments), seconds(arguments, times), bound)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        methods = {f"method_{i}": Planted(0.6 + 0.005 * i, 0.02, weighs=i % 3 == 0) for i in range(ENTRIES - 1)}
        methods["concat"] = Planted(0.7)
        write_results(folder, methods, [f"set_{d}" for d in range(DATASETS)], SEEDS, ROWS)
        took = seconds(("leaderboard", str(folder), "--output", str(folder / "board")), 3)
        status |= missed(f"leaderboard of {ENTRIES * DATASETS * SEEDS} cells", took, BOARD)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
