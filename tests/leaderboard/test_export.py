"""Exports: the board of the file is the board of the records, and a file that is not what was written is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmark.cli import main
from leaderboard import export, outcomes
from leaderboard.board import build_all
from leaderboard.comparison import compare
from leaderboard.export import InvalidExport, read
from leaderboard.merge import BoardError, gather
from leaderboard.publish import publish
from leaderboard.record import Failure, Record, Tuning
from leaderboard.store import Store
from leaderboard.summary import summarise
from tests.fuzz.test_exports import _parts, written
from tests.leaderboard.conftest import STANDARD, Planted, make_record, write_results
from tests.records import changed

FEW = {name: STANDARD[name] for name in ("unimodal[image]", "unimodal[audio]", "concat", "gated", "augmented")}

BY_ROW = ("clean", "robust")


@pytest.fixture
def results(build: Callable[..., Store]) -> Path:
    store = build(FEW, datasets=("digits", "shapes"), seeds=2, rows=700)
    # One of everything a folder may hold: a failure, a hole with its reason, a tuned cell.
    failed, _ = make_record("tensor", Planted(), "digits")
    store.write(msgspec.structs.replace(failed, status="failed", conditions=(), error=Failure("ValueError", "why")))
    (store.folder / "not_applicable.jsonl").write_text('{"label":"gated","dataset":"shapes2","reason":"no shape"}\n')
    for record in store.scan().records:  # what fills an absent modality, both ways
        if record.cell.label == "gated":
            conditions = tuple(
                msgspec.structs.replace(c, fills={"zero": c.score, "mean": c.score - 0.1}) if c.kind == "missing" else c
                for c in record.conditions
            )
            filled = msgspec.structs.replace(record, conditions=conditions, fill="zero")
            store.write(filled, store.predictions(record.cell.id))
    tuned, predictions = make_record("concat", Planted(0.85), "digits")
    store.write(changed(tuned, tuning=Tuning("d" * 64, 3, (0.8, None, 0.7, 0.9))), predictions)
    return store.folder


@pytest.fixture
def file(results: Path, tmp_path: Path) -> Path:
    publish([results], tmp_path / "results.parquet", commands=["polymodal run"], readme=True)
    return tmp_path / "results.parquet"


def as_printed(capsys: pytest.CaptureFixture[str], source: Path, *arguments: str) -> str:
    assert main(["leaderboard", str(source), *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("format", ["terminal", "markdown", "csv", "latex", "json", "html"])
def test_the_board_of_an_export_is_that_of_the_records(
    results: Path, file: Path, format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert as_printed(capsys, file, "--format", format) == as_printed(capsys, results, "--format", format)


def test_tuned_results_are_in_the_same_file(results: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = [as_printed(capsys, source, "--format", "csv", "--setting", "tuned") for source in (file, results)]
    assert shown[0] == shown[1] and "concat" in shown[0] and "gated" not in shown[0]


def test_a_setting_that_lacks_a_dataset_that_was_asked_for_is_left_out_with_a_word(
    results: Path, tmp_path: Path
) -> None:
    both = publish([results], tmp_path / "both.parquet", datasets=["digits", "shapes"])
    assert any(note.startswith("nothing tuned was exported: ") for note in both.notes)
    one = publish([results], tmp_path / "one.parquet", datasets=["digits"])
    assert not any("was exported" in note for note in one.notes)


def test_comparisons_by_row_survive_and_the_others_say_so(results: Path, file: Path) -> None:
    ours, theirs = (compare(gather([source]), "gated", "concat") for source in (results, file))
    by_row = [pair for pair in zip(ours.differences, theirs.differences, strict=True) if pair[0].kind in BY_ROW]
    assert len(by_row) == 4
    for a, b in by_row:
        # p values are adjusted for the other lines, of which an export knows less.
        assert (a.difference, a.low, a.high) == pytest.approx((b.difference, b.low, b.high), rel=1e-12)
    assert not any("over seeds only" in note for note in ours.notes)
    assert any("an export keeps rows for what a board ranks by" in note for note in theirs.notes)
    assert ours.rows and not theirs.rows


def test_what_is_kept_of_a_record(results: Path, file: Path) -> None:
    whole = {r.cell.id: r for r in Store(results).scan().records}
    kept = {r.cell.id: r for r in read(file).records}
    assert kept.keys() == whole.keys()
    for name, record in kept.items():
        full = whole[name]
        assert record.cell == full.cell and record.status == full.status and record.error == full.error
        assert [c.score for c in record.conditions] == [c.score for c in full.conditions]
        assert [c.weights for c in record.conditions] == [c.weights for c in full.conditions]
        assert (record.cost, record.trivial, record.provenance) == (full.cost, full.trivial, full.provenance)
        assert [s.best_epoch for s in record.training] == [s.best_epoch for s in full.training]
        assert [c.fills for c in record.conditions] == [c.fills for c in full.conditions]
    assert any(c.fills for record in kept.values() for c in record.conditions)


def test_the_readme_says_where_the_file_comes_from(file: Path) -> None:
    text = (file.parent / "README.md").read_text()
    assert hashlib.sha256(file.read_bytes()).hexdigest() in text
    assert "polymodal run\n" in text and "| digits | 1 |" in text


def test_a_table_reads_it_as_any_parquet(file: Path) -> None:
    table = pq.read_table(file, columns=["label", "dataset", "seed", "scores"]).to_pylist()
    assert {row["label"] for row in table} >= {"concat", "gated"}
    assert all(0 <= score <= 1 for row in table for score in row["scores"])


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99, 0.9999])
def test_a_truncated_file_is_refused(file: Path, share: float) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InvalidExport, match=r"truncated|no parquet"):
        read(file)


def test_every_altered_byte_is_noticed(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for at in np.random.default_rng(0).integers(4, len(content) - 4, 200):
        content[at] ^= 1
        file.write_bytes(content)
        with pytest.raises(InvalidExport):
            read(file)
        content[at] ^= 1


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.parquet"
    path.write_text("{}")
    with pytest.raises(InvalidExport, match="no parquet file"):
        read(path)
    pq.write_table(pa.table({"a": [1, 2]}), path)
    with pytest.raises(InvalidExport, match="no export of Polymodal"):
        read(path)


def resealed(content: bytes, old: bytes, new: bytes) -> bytes:
    """The file with other bytes and a right checksum: what somebody writes who knows how."""
    assert old in content and len(old) == len(new)
    content = content.replace(old, new)
    at = content.rfind(export._MARK) + len(export._MARK)
    blank = content[:at] + export._BLANK + content[at + 64 :]
    return content[:at] + hashlib.sha256(blank).hexdigest().encode() + content[at + 64 :]


def test_another_version_is_named(file: Path) -> None:
    file.write_bytes(resealed(file.read_bytes(), b'"format":1', b'"format":9'))
    with pytest.raises(InvalidExport, match=r"is of format 9 .* this version reads format 1"):
        read(file)


def test_a_file_that_claims_to_be_huge_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_EXPANSION", 0.01)
    with pytest.raises(InvalidExport, match="claims to hold"):
        read(file)
    monkeypatch.setattr(export, "_LARGEST", 100)
    with pytest.raises(InvalidExport, match="no export has more than 100"):
        read(file)


def test_a_cell_that_is_not_the_one_it_names_is_refused(file: Path, tmp_path: Path) -> None:
    opened = pq.read_table(file)
    ids = opened.column("id").to_pylist()
    ids[0], ids[1] = ids[1], ids[0]
    swapped = opened.set_column(0, "id", pa.array(ids)).cast(export.COLUMNS)
    about = export.About(export.FORMAT, export.RECORD, {}, [], {})
    (tmp_path / "swapped.parquet").write_bytes(export._sealed(swapped, about))
    with pytest.raises(InvalidExport, match=r"names a cell .*, what it describes is"):
        read(tmp_path / "swapped.parquet")


def test_the_command_says_one_sentence(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(file.read_bytes()[:-1])
    assert main(["leaderboard", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "is truncated" in error


def test_rounded_once_is_rounded_for_ever() -> None:
    rng = np.random.default_rng(0)
    for rows in (1, 2, 300, 499, 500, 501, 4000):
        for values in (rng.random((5, rows)), rng.random((2, rows)) < 0.97, rng.standard_normal((1, rows)) * 1e-9):
            once = outcomes.from_rows(values, None)
            twice = outcomes.rounded(once)
            assert (once.rows == twice.rows).all() and len(once.rows) == min(rows, 500)
            exact = summarise(np.asarray(values, dtype=float))
            assert once.mean == exact.mean
            if rows <= 500:
                assert np.allclose(once.rows, exact.rows, atol=np.abs(exact.rows).max() / 200)


def test_groups_put_together_keep_the_variance() -> None:
    rng = np.random.default_rng(1)
    values = rng.random((3, 4000)) < 0.8
    exact, kept = summarise(values.astype(float)), outcomes.from_rows(values, None)
    assert (kept.rows**2).sum() == pytest.approx((exact.rows**2).sum(), rel=0.15)


# Beside published results.


def own_records(folder: Path, **facts: object) -> Path:
    """Results of one's own: `mine` on both datasets."""
    store = Store(folder)
    store.prepare()
    for dataset in ("digits", "shapes"):
        for seed in range(2):
            record, predictions = make_record("mine", Planted(0.88), dataset, seed, rows=700)
            store.write(changed(record, **facts), predictions)
    return folder


def test_ones_own_method_meets_the_published(results: Path, file: Path, tmp_path: Path) -> None:
    mine = own_records(tmp_path / "mine")
    board = build_all(gather([mine], beside=[file]))[0]
    assert {"mine", "concat", "gated"} <= {row.label for row in board.rows}
    together = build_all(gather([mine, results]))[0]
    pick = [next(row for row in b.rows if row.label == "mine").standings["clean"] for b in (board, together)]
    assert pick[0].advantage == pick[1].advantage
    alone = build_all(gather([file]))[0]
    # The prior is frozen: whoever else is there moves nobody's interval.
    for label in ("gated",):
        a, b = (next(row for row in x.rows if row.label == label).standings["clean"] for x in (alone, board))
        assert (a.advantage, a.low, a.high) == (b.advantage, b.low, b.high)
    found = compare(gather([mine], beside=[file]), "mine", "concat")
    assert {d.kind for d in found.differences} >= {"clean", "robust", "curve"}


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"protocol": "another"}, "the protocol .* differs: 'another', published ''"),
        ({"dataset_version": "2"}, "the dataset's version differs: '2', published '1'"),
        ({"dataset_options": {"rows": 9}}, "the dataset's options differs: {'rows': 9}, published {}"),
        ({"recipe": {"width": 64, "epochs": 99, "lr": 0.001}}, "the recipe differs: epochs 99, published 10"),
    ],
)
def test_what_was_measured_otherwise_is_not_mixed(
    file: Path, tmp_path: Path, facts: dict[str, object], sentence: str
) -> None:
    mine = own_records(tmp_path / "mine", **facts)
    with pytest.raises(BoardError, match=f"4 records of yours \\(mine on digits, shapes\\) are set aside: {sentence}"):
        gather([mine], beside=[file])


def test_corruptions_of_another_version_are_not_mixed(results: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "published")
    store.prepare()
    for record in Store(results).scan().records:
        if record.status == "ok":
            store.write(changed(record, corruptions={"gaussian": "1/a"}), Store(results).predictions(record.cell.id))
    publish([store.folder], tmp_path / "published.parquet")
    mine = own_records(tmp_path / "mine", corruptions={"gaussian": "2/b"})
    with pytest.raises(BoardError, match="the corruptions differ: gaussian"):
        gather([mine], beside=[tmp_path / "published.parquet"])


def test_a_published_name_is_not_to_be_taken(file: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "mine")
    store.prepare()
    record, predictions = make_record("gated", Planted(0.99), "digits", rows=700)
    store.write(changed(record, source="of my own"), predictions)
    with pytest.raises(BoardError, match="gated of your results is not the published gated: its code is another"):
        gather([store.folder], beside=[file])


def test_other_seeds_of_a_published_method_do_not_mix_with_it(file: Path, tmp_path: Path) -> None:
    mine = own_records(tmp_path / "mine")
    Store(mine).write(*make_record("concat", STANDARD["concat"], "digits", 7, rows=700))
    evidence = gather([mine], beside=[file])
    assert {r.cell.seed for r in evidence.records if r.cell.label == "concat"} == {0, 1}
    assert any("published with other seeds" in note for note in evidence.notes)


def test_cells_of_ones_own_that_are_published_count_once(results: Path, file: Path) -> None:
    evidence = gather([results], beside=[file])
    assert len(evidence.records) == len(gather([file]).records)


def test_json_is_plain(file: Path) -> None:
    about = pq.ParquetFile(file).metadata.metadata[b"polymodal"]
    assert json.loads(about)["made"]["commands"] == ["polymodal run"]


def test_records_round_trip(file: Path) -> None:
    for record in read(file).records:
        assert Record.from_json(record.to_json()).cell == record.cell


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("more", '""'),
        ("provenance", "[1]"),
        ("summary", [("\x1b[2J", 1.0)]),
        ("cost", [("parameters", None)]),
        ("lines", "interaction"),
    ],
)
def test_rows_that_were_altered_under_a_right_seal_are_refused(tmp_path: Path, column: str, value: Any) -> None:
    """A seal can be made again; what is in the file is then held to what a record is."""
    write_results(tmp_path / "results", {"concat": Planted()}, ("digits",), seeds=2, rows=40)
    publish([tmp_path / "results"], tmp_path / "x.parquet")
    rows, about = _parts(tmp_path / "x.parquet")
    first = next(row for row in rows if row["lines"])
    first[column] = [{**line, value: None} for line in first["lines"]] if column == "lines" else value
    (tmp_path / "x.parquet").write_bytes(written(rows, about))
    with pytest.raises(InvalidExport):
        read(tmp_path / "x.parquet")
