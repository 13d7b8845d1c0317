"""`polymodal try` and `polymodal predict` for a notebook: a file of one's own, to an answer and to predictions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leaderboard.results import Results, load

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Answer:
    """The answer to somebody with data.

    Attributes:
        assumed: What was guessed, filled in or left out, a sentence each.
        sentences: Which fusion, what it adds, what a broken group costs, what could not be resolved.
        cell: The id of the trained cell that is advised, for `predict`; empty if none is.
        results: All that was run: `.board()`, `.frame()`, `.compare()`.
    """

    assumed: tuple[str, ...]
    sentences: tuple[str, ...]
    cell: str
    results: Results

    def __str__(self) -> str:
        return "\n".join([*self.assumed, "", *self.sentences])


def try_data(
    file: str | Path,
    target: str | None = None,
    *,
    groups: Mapping[str, Sequence[str]] | None = None,
    metric: str = "",
    seeds: int = 3,
    results: str | Path | None = None,
    workers: int | None = None,
    quiet: bool = False,
    **more: Any,
) -> Answer:
    """Your own data, from a file to an answer in minutes: `polymodal try FILE`.

    Args:
        file: A table (CSV, parquet), or a folder of images with captions.
        target: The column to predict.
        groups: Columns that belong together; None: guessed.
        metric: How rows are scored; empty: one that sees small classes.
        seeds: Runs of each method.
        results: Folder of the records; None: `results/try-STEM`.
        workers: See `run`.
        quiet: No progress display.
        more: Any other argument of `polymodal try`, by its name.

    Raises:
        ValueError: If nothing can be made of the file, or nothing could be run.
        KeyboardInterrupt: If it was stopped; what has ended has its record.
    """
    from benchmark.api import parsed
    from benchmark.commands.try_ import carry_out, guessed, prepared
    from benchmark.own_data.verdict import advised_cell, sentences

    columns = None if groups is None else [(name, list(own)) for name, own in groups.items()]
    given = {"target": target, "groups": columns, "metric": metric, "seeds": seeds, "workers": workers, "quiet": quiet}
    found = parsed("try", [str(file)], {**given, "results": results and str(results), **more})
    if not found.file.exists():
        raise FileNotFoundError(f"there is nothing at {file}")
    guess = guessed(found)
    trial = prepared(found, guess)
    outcome, evidence = carry_out(found, trial)
    if outcome.left:
        raise KeyboardInterrupt(f"stopped before every cell of {trial.results} was run: try again to go on")
    if not evidence.records:
        raise ValueError(f"every cell failed: `polymodal show --results {trial.results}` says why")
    cells = [record.cell.id for record in (*evidence.records, *evidence.failed)]
    said = tuple(sentences(evidence))
    return Answer((*guess.said, *trial.said), said, advised_cell(evidence), load(trial.results, cells=cells))


def predict(
    cell: str,
    file: str | Path,
    *,
    results: str | Path = "results",
    plugins: Sequence[str | Path] = (),
    data: str | Path | None = None,
) -> DataFrame:
    """What a trained cell says of the rows of a new file: `polymodal predict`.

    Args:
        cell: Its id, or the start of it.
        file: The new rows, in the layout of those trained on, without their target.
        results: Folder of the records.
        plugins: Files with methods of your own.
        data: Folder with your data.

    Raises:
        UsageError: If no cell, or several, are meant.
    """
    import pandas as pd

    from benchmark.arguments import use_data
    from benchmark.commands.predict import lines
    from benchmark.trained import trained_on_own_rows

    use_data(argparse.Namespace(plugin=[str(p) for p in plugins], data=data))
    method, own = trained_on_own_rows(str(results), cell)
    head, *rows = lines(method, own, own.new_rows(Path(file)))
    return pd.DataFrame(rows, columns=head)
