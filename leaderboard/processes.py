"""The processes that read predictions when there are many of them."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from functools import cache


def cores() -> int:
    """How many processes are worth having."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)


@cache
def pool() -> ProcessPoolExecutor:
    """One for all that a command asks; it ends with the program."""
    return ProcessPoolExecutor(cores(), multiprocessing.get_context("spawn"))
