"""A dataset named on the command line, with the options of a matrix and of `--set`: own data, in every command."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmark.errors import UsageError
from benchmark.matrix import Choice, Matrix, read, with_arguments

if TYPE_CHECKING:
    from datamodules.base import DataModule


def add_dataset_options(parser: argparse.ArgumentParser, matrix: bool = True) -> None:
    """What reads a dataset of the user's own: a matrix that names it, or its options one by one."""
    if matrix:
        parser.add_argument("--matrix", metavar="FILE", help="a matrix whose options of this dataset are taken")
    parser.add_argument("--set", action="append", default=[], metavar="NAME.KEY=VALUE", dest="settings",
                        help="an option of the dataset; repeatable")  # fmt: skip


def chosen_options(name: str, matrix: str | None, settings: Sequence[str]) -> Mapping[str, Any]:
    """The options of the dataset `name`, as a matrix and `--set` give them.

    Raises:
        UsageError: If the matrix names it several times, so that nothing says which is meant.
    """
    given = read(matrix) if matrix else Matrix(source="--set", methods=(), datasets=())
    own = tuple(choice for choice in given.datasets if choice.name == name)
    if len(own) > 1:
        raise UsageError(f"{given.source} has {len(own)} entries of {name}: keep the one that is meant")
    picked = Matrix(source=given.source, methods=(), datasets=own or (Choice(name, where=given.source),))
    return with_arguments(picked, settings=settings).datasets[0].options


def chosen_dataset(name: str, matrix: str | None, settings: Sequence[str]) -> DataModule:
    """The dataset `name` with the options of a matrix and of `--set`; what is wrong with them is an error now.

    Raises:
        UsageError: Naming the dataset and the option.
        KeyError: If there is no such dataset.
    """
    from benchmark.build import resolve_dataset
    from datamodules.registry import datasets

    datasets.get(name)
    try:
        found = resolve_dataset(name, chosen_options(name, matrix, settings), matrix or "--set")[0]
        found.task  # noqa: B018 - described now
    except UsageError:
        raise
    except (ValueError, OSError) as error:
        raise UsageError(f"{name}: {error}") from error
    return found
