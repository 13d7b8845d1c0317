"""Whether code that was changed gives the numbers it gave: to be shown before `same_numbers.toml` gets a line.

Train the same cells with both, on one machine, and compare every number that was measured and every prediction:

    git worktree add ../before REVISION
    (cd ../before && PYTHONPATH=. python -m benchmark.cli run reference --seeds 1 --set recipe.epochs=3 --results b)
    polymodal run reference --seeds 1 --set recipe.epochs=3 --results a && python -m tests.same_numbers ../before/b a
"""

from __future__ import annotations

import sys

import numpy as np

from leaderboard.record import Record
from leaderboard.store import Store


def differ(a: Record, b: Record) -> bool:
    """Whether two records of a cell say different things of it; how long it took is no number of it."""
    stages = [[(s.name, s.steps, s.best_epoch, s.score, s.history) for s in record.training] for record in (a, b)]
    return (a.status, a.trivial, a.summary, a.conditions) != (b.status, b.trivial, b.summary, b.conditions) or (
        stages[0] != stages[1]
    )


def other_predictions(cell: str, one: Store, two: Store) -> bool:
    """Whether any array beside the records is not the same, bit for bit."""
    a, b = one.predictions(cell), two.predictions(cell)
    return a.keys() != b.keys() or any(a[name].tobytes() != b[name].tobytes() for name in a if a[name].dtype != np.str_)


def main(before: str, after: str) -> int:
    one, two = Store(before), Store(after)
    old = {record.cell.id: record for record in one.scan().records if record.status == "ok"}
    new = {record.cell.id: record for record in two.scan().records if record.status == "ok"}
    both = sorted(old.keys() & new.keys())
    other = [cell for cell in both if differ(old[cell], new[cell]) or other_predictions(cell, one, two)]
    for cell in other:
        print(f"other numbers: {cell}")
    methods = {old[cell].cell.label for cell in both}
    alone = len(old.keys() ^ new.keys())
    print(f"{len(both)} cells of {len(methods)} methods in both, {alone} in one only, {len(other)} with other numbers")
    return int(bool(other) or bool(alone) or not both)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
