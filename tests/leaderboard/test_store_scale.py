"""Large folders: the work per record is fixed, predictions are few members of a zip, and damage is still found."""

import hashlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from leaderboard import rows
from leaderboard import store as store_
from leaderboard.record import Record
from leaderboard.store import Store
from tests.leaderboard.conftest import Planted, make_record
from tests.records import changed, measured

MANY = 500


class Opened:
    """Counts the files of a folder that this process opens."""

    def __init__(self) -> None:
        self.folder, self.files = "", 0
        sys.addaudithook(self.hear)  # for ever: there is no removing one

    def hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and self.folder and str(arguments[0]).startswith(f"{self.folder}/"):
            self.files += 1

    def during(self, folder: Path) -> Iterator[int]:
        """A running count, from zero."""
        self.folder, self.files = str(folder), 0
        while True:
            yield self.files


@pytest.fixture(scope="module")
def opened() -> Opened:
    return Opened()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("large")
    store = Store(folder)
    record, predictions = make_record("concat", Planted(0.8, 0.02), rows=30)
    record = store.write(record, predictions)
    content = store.path(record.cell.id, ".npz").read_bytes()
    store.path(record.cell.id).unlink()
    for i in range(MANY):
        other = changed(record, seed=i, cost={"train_seconds": float(i)})  # or it is a copy
        store.path(other.cell.id, ".npz").write_bytes(content)
        store.path(other.cell.id).write_text(other.to_json())
    return store


def test_every_file_is_opened_once(large: Store, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_, "_MANY", MANY + 1)  # other processes open where we cannot count
    count = opened.during(large.folder)
    assert next(count) == 0
    records = large.scan().records
    assert len(records) == MANY and next(count) == MANY

    count = opened.during(large.folder)
    assert next(count) == 0
    assert {verdict.status for verdict in large.verify()} == {"ok"}
    assert next(count) == 2 * MANY, "a record and its predictions"

    count = opened.during(large.folder)
    assert next(count) == 0
    assert all(large.done(record.cell.id) for record in records)
    assert next(count) == 2 * MANY


def test_several_processes_say_the_same(large: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = large.verify()
    monkeypatch.setattr(store_, "_MANY", 10)
    assert large.verify() == alone and len(alone) == MANY


def test_predictions_are_packed_and_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    record, predictions = make_record("concat", Planted(0.8, 0.02), rows=30)
    store.write(record, predictions)
    back = store.predictions(record.cell.id)
    assert back.keys() == predictions.keys()
    assert all(np.array_equal(back[name], predictions[name]) for name in back)
    read: list[str] = []
    original = zipfile.ZipFile.open

    def note(self: zipfile.ZipFile, name: object, *rest: object, **more: object) -> object:
        read.append(str(name))
        return original(self, name, *rest, **more)  # pyright: ignore[reportArgumentType, reportCallIssue]

    monkeypatch.setattr(zipfile.ZipFile, "open", note)
    found = rows.read(store, record.cell.id, record.cell.metric, [c.id for c in record.conditions])
    assert found is not None and found[1].shape == (len(record.conditions), 30)
    assert len(record.conditions) > 20 and len(read) <= 5, "the members do not grow with the conditions"


def _written(folder: Path, change: dict[str, np.ndarray]) -> tuple[Store, Record]:
    store = Store(folder)
    record, predictions = make_record("concat", Planted(0.8, 0.02), rows=30)
    return store, store.write(record, {**predictions, **change})


def test_what_is_wrong_with_predictions_is_said(tmp_path: Path) -> None:
    store, record = _written(tmp_path, {})
    assert store.problem(record) is None
    more = changed(record, conditions=(*record.conditions, measured("missing", 0.1, absent=("x", "y"))))
    store.path(more.cell.id, ".npz").write_bytes(store.path(record.cell.id, ".npz").read_bytes())
    assert store.problem(more) == "no predictions for condition missing:x+y"
    path = store.path(record.cell.id, ".npz")
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    assert "not those the record was written with" in str(store.problem(record))
    told = changed(record, predictions=hashlib.sha256(content[:-30]).hexdigest())
    assert "cannot be read" in str(store.problem(told)), "a file that was never whole"
    path.unlink()
    assert "No such file" in str(store.problem(record))
    assert "no `target`" in str(_problem(tmp_path / "a", "target", None))
    assert _problem(tmp_path / "b", "pred:clean", np.arange(3)) == "condition clean: 3 predictions for 30 rows"


def _problem(folder: Path, name: str, value: np.ndarray | None) -> str | None:
    folder.mkdir()
    store = Store(folder)
    record, predictions = make_record("concat", Planted(0.8, 0.02), rows=30)
    other = {k: v for k, v in predictions.items() if k != name} | ({} if value is None else {name: value})
    return store.problem(store.write(record, other))
