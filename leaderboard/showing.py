"""A board in a terminal, a notebook, a table of pandas or a file: what `Board` can do besides being made."""

# pandas ships no stubs.
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame
    from rich.console import Console, ConsoleOptions, RenderResult

    from leaderboard.board import Board


class Shown:
    """How a board is looked at."""

    @property
    def _board(self) -> Board:
        return cast("Board", self)  # nothing else is

    @classmethod
    def of(
        cls,
        frame: DataFrame,
        control: str | None = None,
        metric: str = "score",
        higher_is_better: bool = True,
        trivial: float | Mapping[str, float] | None = None,
    ) -> Self:
        """The board of results that other code made.

        Args:
            frame: Columns `method`, `dataset`, `seed`, `score`; optionally `condition` and `outcomes`.
            control: The method all others are compared with; None: `concat` if it is there, else the first.
            metric: Name of the score.
            higher_is_better: Whether a larger score is.
            trivial: What a predictor scores that never looks at its inputs, for all datasets or by dataset; None: 0.

        Raises:
            BoardError: If the table cannot be compared.
        """
        from leaderboard.board import build
        from leaderboard.table import evidence_of

        board: Any = build(evidence_of(frame, control, metric, higher_is_better, trivial), "plain")
        return board

    def frame(self) -> DataFrame:
        """A row per method, dataset and measure: mean, interval, whether it may be the best, seeds."""
        import pandas as pd

        columns = ("method", "dataset", "measure", "mean", "low", "high", "best", "seeds", "status")
        found: list[tuple[Any, ...]] = []
        for row in self._board.rows:
            for dataset, entry in row.entries.items():
                if entry.status != "ok":
                    found.append((row.label, dataset, "clean", None, None, None, False, 0, entry.status))
                for name, own in entry.measures.items():
                    best = name in entry.best
                    seeds = len(own.values)
                    found.append((row.label, dataset, name, own.mean, own.low, own.high, best, seeds, entry.status))
        return pd.DataFrame(found, columns=list(columns))

    def standings(self) -> DataFrame:
        """A row per method and pillar: place, advantage over the control and its interval, wins, ties, losses."""
        import pandas as pd

        columns = ("pillar", "place", "method", "advantage", "low", "high", "verdict", "best", "wins", "ties", "losses")
        found = [
            (pillar, *(getattr(s, name) for name in columns[1:]))
            for pillar in self._board.resolves
            for s in self._board.order(pillar)
        ]
        return pd.DataFrame(found, columns=list(columns))

    def markdown(self, view: str = "overview") -> str:
        """The table of a slice."""
        from leaderboard.renderings import markdown
        from leaderboard.tables import table

        return markdown(table(self._board, view))

    def page(self, path: str | Path | None = None) -> str:
        """The page, one file without requests; also written to `path`."""
        from leaderboard.page import page

        text = page([self._board])
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def plot_robustness(self, dataset: str | None = None) -> Figure:
        """Score against severity, one panel per modality that is corrupted.

        Args:
            dataset: Which; None: the first that was tested under corruption.

        Raises:
            ValueError: If the board has no such dataset, or nothing was corrupted there.
        """
        from leaderboard.plots import severity_curves

        able = {d.name: d for d in self._board.datasets if d.curves}
        name = dataset or next(iter(able), None)
        if name is None or name not in able:
            known = ", ".join(able) or "none"
            raise ValueError(f"no severity curves on {dataset or 'any dataset'}. Datasets that have some: {known}")
        figure = severity_curves(self._board, able[name])
        assert figure is not None  # every dataset with curves has a record with them
        return figure

    def _repr_html_(self) -> str:
        """A table for a notebook; `page` has the rest."""
        from leaderboard.tables import table

        shown = table(self._board)
        head = "".join(f"<th>{escape(name)}</th>" for name in shown.headers)
        body = "".join(f"<tr>{''.join(_html(cell.text, cell.best) for cell in row)}</tr>" for row in shown.rows)
        answer = "".join(f"<p>{escape(sentence)}</p>" for sentence in shown.answer)
        notes = "".join(f"<li>{escape(note)}</li>" for note in (*shown.legend, *shown.notes))
        table_ = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div>{answer}{table_}<details><summary>Legend and notes</summary><ul>{notes}</ul></details></div>"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from leaderboard.renderings import terminal
        from leaderboard.tables import table

        yield terminal(table(self._board), options.max_width)

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=160, highlight=False, force_terminal=False)
        with console.capture() as captured:
            console.print(self)
        return captured.get()


def _html(text: str, best: bool) -> str:
    return f"<td><b>{escape(text)}</b></td>" if best else f"<td>{escape(text)}</td>"
