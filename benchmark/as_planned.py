"""Whether code and data are those of the plan, asked by every process that trains: an edit since makes another cell."""

from __future__ import annotations

from benchmark.conditions import versions
from benchmark.identity import as_imported, method_digest, protocol_digest, wrapped_by
from benchmark.options import resolve
from datamodules.base import DataModule
from leaderboard.record import Cell
from methods.registry import methods


class CodeChanged(RuntimeError):
    """The code at hand is not the code that was planned: its numbers would be stored under another's id."""


def check_code(cell: Cell, datamodule: DataModule) -> None:
    """Raise CodeChanged unless code and data are those of the plan."""
    cls = methods.get(cell.method)
    options = resolve(cell.method, cls, cell.options, cell.method)
    now = {
        "the method": (method_digest(cls, options), cell.source),
        "the protocol or the dataset's code": (protocol_digest(datamodule), cell.protocol),
        "the data": (datamodule.task.version, cell.dataset_version),
        "a corruption": (versions(cell.conditions, datamodule.raw), cell.corruptions),
    }
    changed = [what for what, (here, planned) in now.items() if here != planned]
    if not as_imported(cls, *wrapped_by(options), type(datamodule)):
        changed.append("a file that this process has imported")
    if changed:
        raise CodeChanged(f"{' and '.join(changed)} changed after the plan was made: run the command again")
