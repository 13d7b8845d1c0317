"""`polymodal --help` and `polymodal list methods`: at most half a second, the median of seven."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

BOUND = 0.5


def seconds(*arguments: str) -> float:
    program = Path(sys.executable).with_name("polymodal")
    times = []
    for _ in range(7):
        started = time.perf_counter()
        subprocess.run([program, *arguments], stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> int:
    status = 0
    for arguments in (("--help",), ("list", "methods")):
        took = seconds(*arguments)
        print(f"polymodal {' '.join(arguments)}: {took:.2f} s (bound {BOUND}) {'ok' if took <= BOUND else 'MISSED'}")
        status |= took > BOUND
    return status


if __name__ == "__main__":
    sys.exit(main())
