"""A trained cell found by its id or the start of it, with its dataset, for those who use it rather than rank it."""

from __future__ import annotations

from benchmark.errors import UsageError
from benchmark.runner import load_method
from datamodules.base import DataModule
from datamodules.bases.user_views import UserViews
from datamodules.rows.incomplete import Incomplete
from leaderboard.record import Record
from leaderboard.store import Store
from methods.base import Method


def trained(results: str, cell: str) -> tuple[Record, Method, DataModule]:
    """The record, the method with its weights, ready to predict, and the dataset it was trained on.

    Raises:
        UsageError: If no cell, or several, are meant, or if the data is no longer what was trained on.
    """
    store = Store(results)
    ids = sorted(path.stem for path in store.folder.glob("*.json"))
    found = [r for name in ids if name.startswith(cell) and (r := store.done(name)) is not None]
    if len(found) != 1:
        several = f"{len(found)} cells that are done begin with {cell!r} in {store.folder}; give one of"
        none = f"no cell that is done begins with {cell!r} in {store.folder} (--results); there are"
        known = [r.cell.id for r in found] or ids
        some = ", ".join(known[:3]) or "none"
        raise UsageError(f"{several if found else none} {some}{' ..' * (len(known) > 3)}")
    method, data = load_method(found[0], store)
    if data.task.version != found[0].cell.dataset_version:
        raise UsageError(
            f"{cell} was trained on another version of {found[0].cell.dataset}: the file changed. Put the old one "
            "back, or train again"
        )
    return found[0], method, data


def trained_on_own_rows(results: str, cell: str) -> tuple[Method, UserViews]:
    """A method that was trained on a file of the user's own, and what reads such files.

    Raises:
        UsageError: If it was trained on anything else.
    """
    record, method, data = trained(results, cell)
    own = data.base if isinstance(data, Incomplete) else data
    if not isinstance(own, UserViews):
        raise UsageError(f"{cell} was trained on {record.cell.dataset}; new rows are read for csv_views and npz_views")
    return method, own
