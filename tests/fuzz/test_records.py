"""Records: whatever a file holds, it is a record that can be shown and ranked, or it is named and refused."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmark.commands import show
from benchmark.commands.leaderboard import FORMATS, render
from leaderboard import renderings, tables
from leaderboard.board import build_all
from leaderboard.merge import BoardError, gather
from leaderboard.record import Condition, InvalidRecord, Record
from leaderboard.store import Store
from tests.fuzz.harness import answered, bounded, damaged, fuzz, mutated
from tests.leaderboard.conftest import Planted, conditions_of, make_record

pytestmark = pytest.mark.slow

FEW = [c for c in conditions_of(("image", "audio")) if c.kind in ("clean", "missing") or c.severity == 5]
BLANK = [Condition("clean"), *FEW[1:]]
WHOLE, ARRAYS = make_record("gated", Planted(0.8, weighs=True), rows=24, extra=BLANK)
TEXT = WHOLE.to_json()
PLAIN: dict[str, Any] = json.loads(TEXT)


def decoded(content: bytes) -> Record | None:
    try:
        with bounded():
            return Record.from_json(content)
    except InvalidRecord:
        return None


@fuzz
@given(content=mutated(PLAIN).map(lambda raw: json.dumps(raw).encode()) | damaged(TEXT.encode()) | st.binary())
def test_files(content: bytes) -> None:
    record = decoded(content)
    if record is not None:
        out = io.StringIO()
        answered(lambda: show._show(record, Console(file=out, width=100)))
        assert "\x1b" not in out.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two honest records, beside which a hostile one is put."""
    store = Store(tmp_path_factory.mktemp("board") / "results")
    store.prepare()
    for label in ("concat", "unimodal[image]"):
        store.write(*make_record(label, Planted(0.7), rows=24, extra=BLANK))
    return store.folder


@fuzz
@given(raw=mutated(PLAIN), format=st.sampled_from(FORMATS), view=st.sampled_from(["overview", "robust", "cost"]))
def test_boards(raw: Any, format: str, view: str, folder: Path) -> None:
    record = decoded(json.dumps(raw).encode())
    store = Store(folder)
    if record is None:
        return
    try:
        path = store.path(record.cell.id)
    except ValueError:
        return  # its name cannot be a file's
    try:
        written = store.write(record, ARRAYS)
        answered(lambda: store.problem(written))
        answered(lambda: boards(folder, format, view))
    finally:
        path.unlink(missing_ok=True)
        path.with_suffix(".npz").unlink(missing_ok=True)


def boards(folder: Path, format: str, view: str) -> None:
    try:
        found = build_all(gather([folder]))
    except BoardError:
        found = build_all(gather([folder], skip_invalid=True))
    if format == "terminal":
        for board in found:
            Console(file=io.StringIO(), width=120).print(renderings.terminal(tables.table(board, view), 120))
    else:
        render(found, format, view)


def test_the_fuzzer_reaches_a_board(folder: Path) -> None:
    """Of what is not altered, the whole way works: or all of the above would prove nothing."""
    store = Store(folder)
    written = store.write(WHOLE, ARRAYS)
    assert store.problem(written) is None
    for format in FORMATS:
        boards(folder, format, "overview")
    assert {r.cell.label for r in gather([folder]).records} == {"concat", "gated", "unimodal[image]"}
    store.path(written.cell.id).unlink()
    shutil.rmtree(folder / ".locks", ignore_errors=True)
    assert msgspec.structs.replace(written, predictions="") == WHOLE
