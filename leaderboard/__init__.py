"""From records to a leaderboard: statistics, tables, plots and the page. Imports nothing of ours and no torch.

`from leaderboard import load, Board`: `load("results").board()` is the board of a results folder, `Board.of(frame)`
that of a table of scores that any other code made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leaderboard.board import Board
    from leaderboard.results import Results, load

__all__ = ["Board", "Results", "load"]


def __getattr__(name: str) -> Any:
    # Late, because listing methods imports this package and must not wait for scipy.
    if name == "Board":
        from leaderboard.board import Board

        return Board
    if name in ("Results", "load"):
        from leaderboard import results

        return getattr(results, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
