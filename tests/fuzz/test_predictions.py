"""Predictions: zips that are damaged, encrypted, exotic or bombs, and arrays that are not what the record says."""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboard import rows
from leaderboard.bounded_npz import InvalidPredictions
from leaderboard.record import Record
from leaderboard.store import Store
from tests.fuzz.harness import answered, bounded, damaged, fuzz
from tests.leaderboard.conftest import Planted, make_record

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Duplicate name")]
RECORD, ARRAYS = make_record("gated", Planted(0.8), rows=24)
METRICS = ("accuracy", "macro_f1", "f1", "mse", "r2", "correlation", "auroc", "recall_at_5", "vqa_accuracy", "unknown")


def packed(arrays: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


VALID = packed(ARRAYS)
_DTYPES = st.sampled_from(["<i8", ">i8", "<f8", "<f2", "|b1", "<U3", "|O", "<m8[s]", "<c16", "|V8", "<i8, <f4", "i3"])
_SHAPES = st.lists(st.sampled_from([0, 1, 2, 24, 25, 2**40, -1]), max_size=4).map(tuple)
_NAMES = st.sampled_from(["target", "row", "group", "conditions", "pred", "pred:clean", "prob:clean", "../../x", ""])


@st.composite
def member(draw: st.DrawFn) -> tuple[str, bytes]:
    """An array file with any header: shapes of petabytes, objects, dictionaries that are none."""
    head = f"{{'descr': {draw(_DTYPES)!r}, 'fortran_order': {draw(st.booleans())}, 'shape': {draw(_SHAPES)}, }}"
    head = draw(st.sampled_from([head, head.replace("'", '"'), "{" * 500, "[1]" * 99, ""])).ljust(118) + "\n"
    version = draw(st.sampled_from([b"\x01\x00", b"\x02\x00", b"\x09\x09"]))
    body = draw(st.binary(max_size=200) | st.just(bytes(192)))
    return draw(_NAMES) + ".npy", b"\x93NUMPY" + version + struct.pack("<H", len(head)) + head.encode() + body


@st.composite
def archive(draw: st.DrawFn) -> bytes:
    """A zip of our arrays, some replaced, whose directory lies about encryption, compression or sizes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in draw(st.lists(member(), max_size=3)):
            file.writestr(name, content, draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])))
        kept = draw(st.sets(st.sampled_from(sorted(ARRAYS)), max_size=4))
        for name in kept:
            one = io.BytesIO()
            np.lib.format.write_array(one, ARRAYS[name])
            file.writestr(f"{name}.npy", one.getvalue())
    content = bytearray(buffer.getvalue())
    at = content.find(b"PK\x01\x02")
    if at >= 0 and draw(st.booleans()):
        offset, size = draw(st.sampled_from([(8, 2), (10, 2), (20, 4), (24, 4), (16, 4), (42, 4)]))
        content[at + offset : at + offset + size] = draw(st.binary(min_size=size, max_size=size))
    return bytes(content)


@st.composite
def arrays(draw: st.DrawFn) -> bytes:
    """A whole file in which an array is another: of other numbers, shapes or types."""
    name = draw(st.sampled_from(["target", "row", "group", "pred:clean", "pred:joint:5"]))
    numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 30)
    shape = draw(st.sampled_from([(24,), (0,), (23,), (24, 1), (24, 2), (24, 2, 2), ()]))
    value = np.full(shape, draw(numbers)).astype(draw(st.sampled_from(["i8", "u1", "f4", "f8", "?", "U4"])))
    if value.dtype.kind == "f" and value.size and draw(st.booleans()):
        value.reshape(-1)[0] = draw(st.floats())
    return packed({**ARRAYS, name: value})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("predictions")


@fuzz
@given(content=damaged(VALID) | archive() | arrays() | st.binary(), metric=st.sampled_from(METRICS))
def test_files(content: bytes, metric: str, folder: Path) -> None:
    store = Store(folder)
    cell = msgspec.structs.replace(RECORD.cell, metric=metric)
    record: Record = msgspec.structs.replace(RECORD, cell=cell, predictions=hashlib.sha256(content).hexdigest())
    store.path(record.cell.id, ".npz").write_bytes(content)
    with bounded():
        problem = store.problem(record)
        try:
            store.predictions(record.cell.id)
        except InvalidPredictions:
            assert problem is not None or content == VALID
    if problem is None:
        answered(lambda: rows.contributions(store, record, {"clean": 1.0}))


def test_a_bomb_is_refused_before_it_is_unpacked(folder: Path) -> None:
    store, buffer = Store(folder), io.BytesIO()
    with (
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file,
        file.open("target.npy", "w", force_zip64=True) as out,
    ):
        for _ in range(400):
            out.write(bytes(2**20))
    content = buffer.getvalue()
    record = msgspec.structs.replace(RECORD, predictions=hashlib.sha256(content).hexdigest())
    store.path(record.cell.id, ".npz").write_bytes(content)
    with bounded():
        assert "claim to hold 419430400" in str(store.problem(record))
