"""Records and the store: round trips, suspicion, atomicity."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leaderboard.record import Failure, Fitted, InvalidRecord, Measured, Record, finite
from leaderboard.store import Store
from tests.records import changed, make_record, measured

numbers = st.floats(-1e6, 1e6)
names = st.text("abcdef_", min_size=1, max_size=8)
conditions = st.builds(
    Measured,
    kind=st.just("single"),
    score=numbers,
    modality=names,
    corruption=names,
    severity=st.integers(1, 5),
    metrics=st.dictionaries(names, numbers, max_size=3),
    weights=st.none() | st.lists(numbers, min_size=2, max_size=2).map(tuple),
)


def record(extra: tuple[Measured, ...] = (), **change: object) -> Record:
    return make_record(**{"options": {"hidden": 3}, "conditions": (measured("clean", 0.5), *extra), **change})


ID = record().cell.id


@settings(max_examples=50, deadline=None)
@given(st.lists(conditions, max_size=4, unique_by=lambda c: c.id))
def test_round_trip(extra: list[Measured]) -> None:
    original = record(extra=tuple(extra))
    assert Record.from_json(original.to_json()) == original


def test_what_is_not_finite_was_not_measured() -> None:
    assert finite({"nan": float("nan"), "inf": float("inf"), "one": 1}) == {"one": 1.0}
    fitted = Fitted("train", 1.0, history=({"val/loss": float("nan")},))
    assert Record.from_json(record(training=(fitted,)).to_json()).training[0].history == ({"val/loss": None},)


@pytest.mark.parametrize("fact", sorted(set(record().cell.__struct_fields__) - {"trainer", "conditions"}))
def test_every_fact_of_a_cell_identifies_it(fact: str) -> None:
    value = getattr(record().cell, fact)
    other = {str: "other", int: 7, bool: False, dict: {"other": 1}, tuple: ("c", "d"), type(None): 0.9}[type(value)]
    assert changed(record(), **{fact: "augmented" if fact == "track" else other}).cell.id != ID


def test_devices_do_not_identify_a_cell_but_precision_does() -> None:
    assert changed(record(), trainer={"precision": "32-true", "devices": 4}).cell.id == ID
    assert changed(record(), trainer={"precision": "64-true"}).cell.id != ID


def predicted() -> tuple[Record, dict[str, np.ndarray]]:
    """A record of ten rows, and predictions that give its scores."""
    target, whole = np.arange(10) % 2, record(rows=10)
    right = {c.id: np.arange(10) < round(10 * c.score) for c in whole.conditions}
    again = tuple(msgspec.structs.replace(c, score=float(right[c.id].mean())) for c in whole.conditions)
    said = {f"pred:{name}": np.where(hit, target, 1 - target) for name, hit in right.items()}
    return changed(whole, conditions=again, trivial=0.5), {"target": target, "row": np.arange(10), **said}


def unplanned() -> Record:
    """A record with a condition that its cell does not have."""
    more = measured("joint", 0.1, severity=1)
    return msgspec.structs.replace(record(), conditions=(*record().conditions, more))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        (record().to_json()[:-40], "not JSON"),
        ("[]", "not a Polymodal record"),
        ('{"a": 1}', "no `schema` field"),
        ('{"schema": 1, "cell": "concat-d-0-abc"}', "schema 1, this version reads 2: run the cell again"),
        (record().to_json().replace('"seed"', '"sedes"'), "unknown field `sedes`"),
        (b"\xff" + record().to_json().encode(), "not JSON"),
        ('{"schema": 2, "provenance": ' + "[" * 5000 + "]" * 5000 + "}", "not JSON"),
        (record(conditions=()).to_json(), "first condition must be `clean`"),
        (record(extra=(measured("clean", 0.1),)).to_json(), "not unique"),
        (unplanned().to_json(), "not those of the cell"),
        (record(conditions=(measured("clean", float("nan")),)).to_json(), r"Expected `float`, got `null` .*score"),
        (record(status="failed").to_json(), "must carry its error"),
        (record(status="maybe").to_json(), r"Invalid enum value 'maybe' - at `\$.status`"),
    ],
)
def test_what_cannot_be_trusted_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(InvalidRecord, match=message):
        Record.from_json(text)


@pytest.mark.parametrize("character", ["\x00", "\n", "\x1b", "\x7f", "\x9b", "\u2028", "\u202e", "\u2066", "\u2069"])
@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize(
    "place",
    [
        ("cell", "label"),
        ("cell", "modalities", 0),
        ("cell", "options", None),
        ("cell", "conditions", -1, "modality"),
        ("conditions", -1, "corruption"),
        ("conditions", 0, "metrics", None),
        ("provenance", None),
        ("summary", None),
        ("training", 0, "name"),
        ("error", "type"),
    ],
    ids=str,
)
def test_no_name_has_an_escape_sequence(place: tuple[Any, ...], escaped: bool, character: str) -> None:
    """Wherever it is, and however it is written down; None is a new key."""
    whole = record(training=(Fitted("train", 1.0),), error=Failure("ValueError", "why\nand how"))
    raw = json.loads(whole.to_json())
    assert Record.from_json(json.dumps(raw)).error == whole.error  # its message may have lines
    part = raw
    for step in place[:-1]:
        part = part.setdefault(step, {}) if isinstance(part, dict) else part[step]
    part["a" + character if place[-1] is None else place[-1]] = 1.0 if place[-1] is None else f"a{character}b"
    with pytest.raises(InvalidRecord, match=r"not a line of text|not JSON"):
        Record.from_json(json.dumps(raw, ensure_ascii=escaped).encode())


def test_store_round_trip_and_scan(tmp_path: Path) -> None:
    store = Store(tmp_path)
    whole, predictions = predicted()
    written = store.write(whole, predictions)
    assert store.done(ID) == written
    assert store.predictions(ID)["pred:clean"].tolist() == predictions["pred:clean"].tolist()
    (tmp_path / "half.json").write_text(record().to_json()[:100])
    (tmp_path / "other.json").write_text(record().to_json())
    reading = store.scan()
    assert [r.cell.id for r in reading.records] == [ID]
    assert {p.name: why.split(":")[0].split(" (")[0] for p, why in reading.invalid} == {
        "half.json": "not JSON",
        "other.json": f"file name says other, what it describes is {ID}",
    }


def test_a_record_without_predictions_runs_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(record())
    assert store.done(ID) is None
    store.write(*predicted())
    assert store.done(ID) is not None
    whole = store.path(ID, ".npz").read_bytes()
    for damaged in (b"PK half a zip", whole[:-1], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]):
        store.path(ID, ".npz").write_bytes(damaged)
        assert store.done(ID) is None


def test_failed_records_run_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(
        changed(record(), status="failed", error=Failure("ValueError", "x"), conditions=()), {"target": np.arange(2)}
    )
    assert store.read(ID) is not None and store.done(ID) is None


def test_a_write_that_fails_leaves_the_old_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    written = store.write(*predicted())

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.write(record(rows=7), {"target": np.arange(5)})
    assert store.done(ID) == written
    assert not list(tmp_path.glob(".*.tmp")), "no debris"


@pytest.mark.parametrize("cell", ["../up", "a/b", "", ".hidden", "a b"])
def test_cell_ids_cannot_leave_the_folder(tmp_path: Path, cell: str) -> None:
    with pytest.raises(ValueError, match="not a cell id"):
        Store(tmp_path).path(cell)


def test_a_folder_that_cannot_be_written_is_an_error_before_training(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(OSError, match="cannot write to the results folder"):
        Store(blocked / "results").prepare()


def test_pickles_are_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "evil.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="not an array of plain numbers"):
        Store(tmp_path).predictions("evil")
