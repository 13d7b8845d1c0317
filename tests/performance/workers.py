"""Two workers against one, on the same cells: at least 1.85 times the cells per second."""

import sys
import tempfile
import time

from benchmark.executors.local import Settings, execute
from benchmark.matrix import parse
from benchmark.plan import make_plan

BOUND = 1.85
MATRIX = {
    "seeds": 16,
    "methods": ["concat"],
    "baselines": False,
    "datasets": [{"name": "interactions_xor", "rows": 8000}],
    "recipe": {"width": 128, "epochs": 8, "patience": 8},
}


def rate(workers: int) -> float:
    """Cells per second once the workers run: importing torch is paid once per worker, whatever the matrix."""
    cells = make_plan(parse(MATRIX, "performance")).cells
    with tempfile.TemporaryDirectory() as folder:
        times = []
        for _ in execute(cells, Settings(folder, workers=workers, checkpoint=False)):
            times.append(time.perf_counter())
    return (len(times) - workers) / (times[-1] - times[workers - 1])


def main() -> int:
    one, two = rate(1), rate(2)
    verdict = "ok" if two / one >= BOUND else "MISSED"
    print(f"two workers: {two / one:.2f}x one worker ({one:.2f} and {two:.2f} cells/s; bound {BOUND}) {verdict}")
    return 0 if two / one >= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
