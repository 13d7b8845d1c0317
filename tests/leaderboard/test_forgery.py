"""Records that somebody has edited, and predictions that are another's: `validate` names them."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leaderboard.record import Record
from leaderboard.store import Store
from tests.leaderboard.conftest import Planted, make_record


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    for label, accuracy in (("concat", 0.8), ("gated", 0.7)):
        store.write(*make_record(label, Planted(accuracy), rows=60))
    assert {verdict.status for verdict in store.verify()} == {"ok"}
    return store


def cell_of(store: Store, label: str) -> Record:
    (record,) = [r for r in store.scan().records if r.cell.label == label]
    return record


def edit(store: Store, label: str, *path: Any, value: Any) -> str:
    """Change one fact of the file, and say what `validate` then says of it."""
    file = store.path(cell_of(store, label).cell.id)
    whole = part = json.loads(file.read_text())
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    file.write_text(json.dumps(whole))
    (problem,) = [verdict.problem for verdict in store.verify() if verdict.status == "invalid"]
    return problem


def test_an_edited_score_is_named(store: Store) -> None:
    problem = edit(store, "gated", "conditions", 0, "score", value=0.9999)
    assert "condition clean: the record says accuracy 0.9999, its predictions give 0." in problem
    assert "condition joint:1" in edit_other(store)


def edit_other(store: Store) -> str:
    """A condition that is not the clean one is looked at too."""
    record = cell_of(store, "concat")
    number = [c.id for c in record.conditions].index("joint:1")
    file = store.path(record.cell.id)
    whole = json.loads(file.read_text())
    whole["conditions"][number]["score"] += 0.01
    file.write_text(json.dumps(whole))
    return next(v.problem for v in store.verify() if v.path.name.startswith("concat"))


@pytest.mark.parametrize(
    ("fact", "value"),
    [("recipe", {"width": 9}), ("options", {"rank": 1}), ("seed", 7), ("higher_is_better", False), ("metric", "f1")],
)
def test_an_edited_description_is_another_cell(store: Store, fact: str, value: Any) -> None:
    assert "what it describes is" in edit(store, "gated", "cell", fact, value=value)


def test_an_edited_number_of_rows_is_named(store: Store) -> None:
    assert "the record says 61 rows, the predictions have 60" in edit(store, "gated", "rows", value=61)


def test_swapped_predictions_are_named(store: Store) -> None:
    ours, theirs = (store.path(cell_of(store, label).cell.id, ".npz") for label in ("gated", "concat"))
    shutil.copy(theirs, ours)
    (problem,) = [verdict.problem for verdict in store.verify() if verdict.status == "invalid"]
    assert problem == "predictions are not those the record was written with"
    record = cell_of(store, "gated")
    told = msgspec.structs.replace(record, predictions=cell_of(store, "concat").predictions)
    assert "its predictions give" in str(store.problem(told)), "with its hash edited as well"


def test_predictions_that_claim_to_be_huge_are_refused(store: Store, tmp_path: Path) -> None:
    import hashlib
    import io
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        header = b"\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, 'shape': (10000000000000,), }"
        file.writestr("target.npy", header.ljust(127) + b"\n" + bytes(64))
    record = cell_of(store, "gated")
    store.path(record.cell.id, ".npz").write_bytes(buffer.getvalue())
    told = msgspec.structs.replace(record, predictions=hashlib.sha256(buffer.getvalue()).hexdigest())
    assert "predictions cannot be read" in str(store.problem(told))
