"""Records and the store: round trips, suspicion, atomicity."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leaderboard.record import Condition, InvalidRecord, Record
from leaderboard.store import Store

finite = st.floats(-1e6, 1e6)
names = st.text("abcdef_", min_size=1, max_size=8)
conditions = st.builds(
    Condition,
    kind=st.just("single"),
    score=finite,
    modality=names,
    corruption=names,
    severity=st.integers(1, 5),
    metrics=st.dictionaries(names, finite, max_size=3),
    weights=st.none() | st.lists(finite, min_size=2, max_size=2).map(tuple),
)


def record(cell: str = "concat-d-0-abc", extra: tuple[Condition, ...] = (), **change: object) -> Record:
    fields = {
        "cell": cell, "status": "ok", "method": "concat", "label": "concat", "family": "baseline", "track": "plain",
        "options": {"hidden": 3}, "dataset": "d", "dataset_version": "1", "dataset_options": {}, "seed": 0,
        "modalities": ("a", "b"), "target": "multiclass", "metric": "accuracy", "higher_is_better": True, "recipe": {},
        "conditions": (Condition("clean", 0.5), *extra),
    }  # fmt: skip
    return Record(**{**fields, **change})  # pyright: ignore[reportArgumentType]


@settings(max_examples=50, deadline=None)
@given(st.lists(conditions, max_size=4, unique_by=lambda c: c.id))
def test_round_trip(extra: list[Condition]) -> None:
    original = record(extra=tuple(extra))
    assert Record.from_json(original.to_json()) == original


def test_non_finite_numbers_become_null() -> None:
    text = record(summary={"nan": float("nan")}).to_json()
    assert '"nan": null' in text and Record.from_json(text).summary == {"nan": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        (record().to_json()[:-40], "not JSON"),
        ("[]", "not a Polymodal record"),
        ('{"a": 1}', "no `schema` field"),
        (record().to_json().replace('"schema": 1', '"schema": 99'), "schema 99, this version reads 1"),
        (record().to_json().replace('"seed"', '"sedes"'), "unknown fields"),
        (record(conditions=()).to_json(), "first condition must be `clean`"),
        (record(extra=(Condition("clean", 0.1),)).to_json(), "not unique"),
        (record(conditions=(Condition("clean", float("nan")),)).to_json(), r"Expected `float`, got `null` .*score"),
        (record(status="failed").to_json(), "must carry its error"),
        (record(status="maybe").to_json(), r"Invalid enum value 'maybe' - at `\$.status`"),
    ],
)
def test_what_cannot_be_trusted_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRecord, match=message):
        Record.from_json(text)


def test_store_round_trip_and_scan(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(record(), {"target": np.arange(3), "pred:clean": np.array([0, 1, 1])})
    assert store.done("concat-d-0-abc") == record()
    assert store.predictions("concat-d-0-abc")["pred:clean"].tolist() == [0, 1, 1]
    (tmp_path / "half.json").write_text(record().to_json()[:100])
    (tmp_path / "other.json").write_text(record().to_json())
    reading = store.scan()
    assert [r.cell for r in reading.records] == ["concat-d-0-abc"]
    assert {p.name: why.split(":")[0].split(" (")[0] for p, why in reading.invalid} == {
        "half.json": "not JSON",
        "other.json": "file name says other, record says concat-d-0-abc",
    }


def test_a_record_without_predictions_runs_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(record())
    assert store.done("concat-d-0-abc") is None
    store.path("concat-d-0-abc", ".npz").write_bytes(b"PK half a zip")
    assert store.done("concat-d-0-abc") is None


def test_failed_records_run_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(record(status="failed", error={"message": "x"}, conditions=()), {"target": np.arange(2)})
    assert store.read("concat-d-0-abc") is not None and store.done("concat-d-0-abc") is None


def test_a_write_that_fails_leaves_the_old_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.write(record(), {"target": np.arange(2)})

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.write(record(seed=7), {"target": np.arange(5)})
    assert store.done("concat-d-0-abc") == record()
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
    with pytest.raises(ValueError, match="allow_pickle"):
        Store(tmp_path).predictions("evil")
