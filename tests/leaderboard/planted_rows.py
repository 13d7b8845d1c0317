"""Synthetic rows with known components of variance, for the tests of comparisons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leaderboard.moderated import Panel, panel
from leaderboard.summary import Summary, summarise


@dataclass(frozen=True)
class World:
    """A dataset: what rows, seeds and both together do to a score.

    Attributes:
        seed: Standard deviation of the score over seeds, beyond what `both` gives.
        spread: Of the logarithm of `seed` over methods: methods are not equally stable.
        own: Standard deviation, over rows, of what is hard for one method and not for another.
        both: Standard deviation of what one row does under one seed.
    """

    rows: int = 300
    seed: float = 0.004
    spread: float = 0.0
    own: float = 0.05
    both: float = 0.16
    shared: float = 0.15

    def values(self, rng: np.random.Generator, methods: int, seeds: int, means: np.ndarray | None = None) -> np.ndarray:
        """`[methods, seeds, rows]`."""
        true = np.zeros(methods) if means is None else means
        size = (methods, seeds, self.rows)
        luck = self.seed * np.exp(self.spread * rng.standard_normal((methods, 1, 1)))
        hard = self.shared * rng.standard_normal(self.rows) + self.own * rng.standard_normal((methods, 1, self.rows))
        return (
            0.8
            + true[:, None, None]
            + luck * rng.standard_normal((methods, seeds, 1))
            + hard
            + self.both * rng.standard_normal(size)
        )

    def board(self, rng: np.random.Generator, methods: int, seeds: int, means: np.ndarray | None = None) -> Panel:
        return panel(summaries(self.values(rng, methods, seeds, means)))


# Components as measured on 60 seeds of concat (accuracy): digit_halves clean, av_digits robust; and unequal methods.
WORLDS = {
    "rows rule": World(),
    "methods differ by row": World(own=0.2),
    "seeds rule": World(rows=600, seed=0.04, both=0.18, own=0.05),
    "unequal seeds": World(seed=0.01, spread=0.7),
}


def summaries(values: np.ndarray) -> dict[str, Summary]:
    return {f"m{i:02d}": summarise(x) for i, x in enumerate(values)}
