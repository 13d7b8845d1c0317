"""Leagues: shapes of task, each with a ranking of its own of the methods that are complete on it.

A method that needs tokens, or images of one size, can never be complete on a board of everything; here it is ranked
where it lives. A dataset may be in several leagues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from leaderboard.moderated import Panel
from leaderboard.ranking import Ranking, rank
from leaderboard.record import Cell


@dataclass(frozen=True)
class League:
    """A shape of task on a board.

    Attributes:
        datasets: Those of the board that have it.
        rankings: Pillar -> the methods that are complete on them.
    """

    name: str
    about: str
    datasets: tuple[str, ...]
    rankings: Mapping[str, Ranking]


def _kinds(cell: Cell) -> list[str]:
    return [said.partition(" ")[0] for said in cell.inputs]


def _vectors(cell: Cell) -> bool:
    return set(_kinds(cell)) == {"vector"} and cell.bayes is None


def _tokens(cell: Cell) -> bool:
    return bool(set(_kinds(cell)) & {"image", "sequence", "text"})


def _same_images(cell: Cell) -> bool:
    return set(_kinds(cell)) == {"image"} and len(set(cell.inputs)) == 1


LEAGUES: dict[str, tuple[str, Callable[[Cell], bool]]] = {
    "vectors": ("every modality is a vector", _vectors),
    "tokens": ("a modality has several tokens: an image, a sequence or a text", _tokens),
    "same-shaped images": ("every modality is an image of the same size", _same_images),
    "retrieval": ("what is ranked is rows, not classes", lambda cell: cell.target in ("retrieval", "pairs")),
    "interactions": ("the best possible score is known", lambda cell: cell.bayes is not None),
}
"""Name -> what its datasets have in common, and whether a dataset does."""


def leagues(
    cells: Mapping[str, Cell], panels: Mapping[str, Mapping[str, Panel]], names: Sequence[str], control: str
) -> tuple[League, ...]:
    """The leagues of a board, in the order of `LEAGUES`; one that is the whole board is none.

    Args:
        cells: Dataset -> any of its cells.
        panels: Pillar -> dataset -> the methods that are compared there.
        names: The methods to place.
        control: The method all are compared with.
    """
    found: list[League] = []
    for name, (about, belongs) in LEAGUES.items():
        datasets = tuple(d for d, cell in sorted(cells.items()) if belongs(cell))
        if datasets and len(datasets) < len(cells):
            found.append(League(name, about, datasets, _rankings(datasets, panels, names, control)))
    return tuple(found)


def _rankings(
    datasets: Sequence[str], panels: Mapping[str, Mapping[str, Panel]], names: Sequence[str], control: str
) -> dict[str, Ranking]:
    found: dict[str, Ranking] = {}
    for pillar, by_dataset in panels.items():
        own = {d: by_dataset[d] for d in datasets if d in by_dataset and control in by_dataset[d].methods}
        complete = [m for m in names if own and all(m in p.methods for p in own.values())]
        found[pillar] = rank(own, complete, control)
    return found
