"""Edited records and predictions that are another's: `validate` names them, and no board shows them."""

import hashlib
import io
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmark.cli import main
from leaderboard import bounded_npz
from leaderboard.bounded_npz import InvalidPredictions
from leaderboard.merge import BoardError, gather
from leaderboard.record import Record
from leaderboard.store import Locked, Store
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
    [
        ("recipe", {"width": 9}),
        ("options", {"rank": 1}),
        ("method", "late"),
        ("seed", 7),
        ("higher_is_better", False),
        ("metric", "f1"),
    ],
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
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        header = b"\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, 'shape': (10000000000000,), }"
        file.writestr("target.npy", header.ljust(127) + b"\n" + bytes(64))
    record = cell_of(store, "gated")
    store.path(record.cell.id, ".npz").write_bytes(buffer.getvalue())
    told = msgspec.structs.replace(record, predictions=hashlib.sha256(buffer.getvalue()).hexdigest())
    assert "predictions cannot be read" in str(store.problem(told))


def test_predictions_of_ten_thousand_members_are_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for number in range(10_001):
            file.writestr(f"{number}.npy", b"")
    with pytest.raises(InvalidPredictions, match="10001 members"):
        bounded_npz.read(buffer.getvalue())


def test_an_edited_trivial_score_is_named(store: Store) -> None:
    assert "trivial accuracy 0.1: no class, said of every row, has it" in edit(store, "gated", "trivial", value=0.1)


def test_a_score_above_the_known_optimum_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    honest, predictions = make_record("concat", Planted(0.97), dataset="interactions_xor", rows=400)
    assert store.problem(store.write(honest, predictions)) is None, "two points of luck above .95"
    store.write(*make_record("gated", Planted(1.0, spread=0.0), dataset="interactions_xor", rows=4000))
    (problem,) = [verdict.problem for verdict in store.verify() if verdict.status == "invalid"]
    assert "accuracy 1.0000 on 4000 rows: the best possible is 0.9500" in problem


def test_a_record_copied_as_another_seed_is_named(store: Store) -> None:
    record = cell_of(store, "gated")
    copy = msgspec.structs.replace(record, cell=record.cell.with_seed(7))
    shutil.copy(store.path(record.cell.id, ".npz"), store.path(copy.cell.id, ".npz"))
    store.path(copy.cell.id).write_text(copy.to_json())
    refused = {v.path.stem: v.problem for v in store.verify() if v.status == "invalid"}
    assert set(refused) == {record.cell.id, copy.cell.id}, "nothing says which of them is the copy"
    assert f"the times of {record.cell.id}: a copy" in refused[copy.cell.id]


def test_predictions_replaced_by_the_targets_are_named(store: Store) -> None:
    record = cell_of(store, "gated")
    arrays = store.predictions(record.cell.id)
    perfect = {name: arrays["target"] if name.startswith("pred:") else a for name, a in arrays.items()}
    store.write(record, perfect)  # which even takes its new hash
    (problem,) = [verdict.problem for verdict in store.verify() if verdict.status == "invalid"]
    assert "its predictions give 1" in problem


def test_a_board_refuses_what_validate_refuses(store: Store) -> None:
    problem = edit(store, "gated", "conditions", 0, "score", value=0.9999)
    with pytest.raises(BoardError) as refused:
        gather([store.folder])
    assert problem in str(refused.value)
    shown = gather([store.folder], skip_invalid=True)
    assert {record.cell.label for record in shown.records} == {"concat"}
    assert any(problem in note for note in shown.notes)


def test_run_repairs_what_a_board_refuses(store: Store) -> None:
    concat, gated = (cell_of(store, label) for label in ("concat", "gated"))
    assert store.settled([concat.cell.id, gated.cell.id]) == {concat.cell.id, gated.cell.id}
    edit(store, "gated", "conditions", 0, "score", value=0.9999)
    assert store.settled([concat.cell.id, gated.cell.id]) == {concat.cell.id} and store.done(gated.cell.id) is None
    content = store.path(concat.cell.id, ".npz").read_bytes()
    for other in (bytes([*content[:200], content[200] ^ 1, *content[201:]]), content[:-9], b"",
                  store.path(gated.cell.id, ".npz").read_bytes()):  # fmt: skip
        store.path(concat.cell.id, ".npz").write_bytes(other)
        assert not store.settled([concat.cell.id]), "a flipped bit, half a file, another's"
    store.path(concat.cell.id, ".npz").write_bytes(content)
    assert store.settled([concat.cell.id])
    store.path(concat.cell.id).write_text(gated.to_json())  # a foreign record under its name
    assert not store.settled([concat.cell.id])


def test_odd_files_are_named_and_stop_nobody(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    whole = cell_of(store, "gated").to_json()
    (store.folder / "a b.json").write_text(whole)
    (store.folder / "folder.json").mkdir()
    os.mkfifo(store.folder / "pipe.json")
    (store.folder / os.fsdecode(b"bad\xffname.json")).write_text(whole)
    (store.folder / "bytes.json").write_bytes(whole.encode().replace(b"gated", b"\xffated"))
    (store.folder / "deep.json").write_text('{"a":' * 3000 + "1" + "}" * 3000)
    escape = whole.replace('"label": "gated"', '"label": "\\u001b[2J"')
    (store.folder / "escape.json").write_text(escape)
    refused = {v.path.name: v.problem for v in store.verify() if v.status == "invalid"}
    assert len(refused) == 7
    assert "what it describes is" in refused["a b.json"]
    assert "not a file" in refused["pipe.json"] and "not a file" in refused["folder.json"]
    assert "not JSON" in refused["bytes.json"] and "not JSON" in refused["deep.json"]
    assert "$.cell.label" in refused["escape.json"] and "\x1b" not in refused["escape.json"]
    assert len(gather([store.folder], skip_invalid=True).records) == 2
    assert main(["validate", str(store.folder)]) == 1
    capsys.readouterr()
    assert main(["show", "bytes", "--results", str(store.folder)]) == 2
    assert f"{store.folder / 'bytes.json'}: not JSON" in capsys.readouterr().err


def test_half_files_of_killed_writers_are_swept(store: Store) -> None:
    gated = cell_of(store, "gated").cell.id
    for name in (f".{gated}+a1b2.tmp", f".{cell_of(store, 'concat').cell.id}+c3.tmp", ".writable+d4.tmp"):
        (store.folder / name).write_text("half")
    with store.lock(gated):  # somebody writes it just now
        store.prepare()
        assert [path.name for path in store.folder.glob(".*.tmp")] == [f".{gated}+a1b2.tmp"]
        with pytest.raises(Locked, match=rf"process {os.getpid()} on "), store.lock(gated):
            pass
    store.prepare()
    assert not list(store.folder.glob(".*.tmp"))
