"""The advantage over the control: by how much a method is ahead of it on the datasets it applies to.

It depends on the method and the control alone: no other method can move it, or change the order of the rest. Only its
interval may move with the others, through the prior of the variance over seeds, unless that is frozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from leaderboard.effect import Effect, Verdict, average
from leaderboard.moderated import Panel


@dataclass(frozen=True)
class Advantage:
    """A method against the control.

    Attributes:
        effect: Mean over datasets of the difference in chance-normalised score; a statement about these datasets.
        by_dataset: The differences it is the mean of.
        of: Number of datasets the control has.
        wins: Datasets where the method is better, each judged alone at the 5 % level; `ties` and `losses` likewise.
    """

    method: str
    effect: Effect
    by_dataset: Mapping[str, Effect]
    of: int
    wins: int
    ties: int
    losses: int

    @property
    def on(self) -> int:
        """Number of datasets compared on."""
        return len(self.by_dataset)


def advantages(panels: Mapping[str, Panel], control: str) -> tuple[Advantage, ...]:
    """Every method that shares a dataset with the control, best first; the control itself has 0 everywhere.

    Args:
        panels: By dataset, in chance-normalised units (`moderated.unit`).
        control: The method all are compared with.

    Raises:
        ValueError: If the control has no results.
    """
    shared = {dataset: panel for dataset, panel in panels.items() if control in panel.methods}
    if not shared:
        raise ValueError(f"the control {control!r} has no results on {', '.join(sorted(panels)) or 'any dataset'}")
    methods = dict.fromkeys(name for panel in shared.values() for name in panel.methods)
    found = [_advantage(name, shared, control) for name in methods]
    return tuple(sorted(found, key=lambda a: (-a.effect.value, a.method)))


def _advantage(method: str, panels: Mapping[str, Panel], control: str) -> Advantage:
    own = {d: p.difference(method, control) for d, p in sorted(panels.items()) if method in p.methods}
    verdicts: list[Verdict] = [effect.verdict() for effect in own.values()]
    wins, ties, losses = (verdicts.count(v) for v in ("win", "tie", "loss"))
    return Advantage(method, average(list(own.values())), own, len(panels), wins, ties, losses)
