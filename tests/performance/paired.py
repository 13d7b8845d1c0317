"""Pairing: two ways of doing a thing run by turns, and how long they take is compared round by round.

On a shared machine the neighbours disturb both alike, and the median of the ratios forgets the round they did not.
"""

import statistics
import time
from collections.abc import Callable


def ratio(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> tuple[float, float]:
    """The median of ours / theirs, after a round to warm up, and the seconds that theirs took at best.

    Processor time: wall time would measure the neighbours.
    """
    ratios, best = [], float("inf")
    for i in range(rounds + 1):
        # By turns first and second: what the first leaves in the caches is the other's half of the time.
        seconds = {work: _seconds(work) for work in ((ours, theirs) if i % 2 else (theirs, ours))}
        if i:
            ratios.append(seconds[ours] / seconds[theirs])
            best = min(best, seconds[theirs])
    return statistics.median(ratios), best


def verdict(held: bool) -> str:
    """The word at the end of a line."""
    return "ok" if held else "MISSED"


def _seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started
