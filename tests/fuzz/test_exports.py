"""Exports: a parquet file that is damaged, altered under a right seal or foreign is one message, or it can be shown.

The seal is only a checksum, which whoever alters a file can make again: so it is made again here, for most examples.
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboard import export
from leaderboard.board import build_all
from leaderboard.merge import gather
from leaderboard.publish import publish
from leaderboard.renderings import markdown
from leaderboard.tables import table
from tests.fuzz.harness import answered, damaged, fuzz, mutated, names, values
from tests.leaderboard.conftest import Planted, write_results

pytestmark = pytest.mark.slow
_JSON = ("cell", "conditions", "training", "provenance", "error", "more")
_NUMBERS = ("metrics", "calibration", "summary", "cost")


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports")
    methods = {"concat": Planted(0.7), "gated": Planted(0.8, weighs=True)}
    write_results(folder / "results", methods, ("digits",), seeds=2, rows=24)
    publish([folder / "results"], folder / "honest.parquet")
    return folder / "honest.parquet"


def sealed(content: bytes) -> bytes:
    """The bytes with the checksum that they should have, if they have one."""
    at = content.rfind(export._MARK)
    if at < 0:
        return content
    at += len(export._MARK)
    end = at + len(export._BLANK)
    digest = hashlib.sha256(content[:at] + export._BLANK + content[end:]).hexdigest().encode()
    return content[:at] + digest + content[end:]


def written(rows: list[dict[str, Any]], about: bytes, schema: pa.Schema = export.COLUMNS) -> bytes:
    """A file of these rows that says this of itself."""
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, schema, store_schema=False, write_statistics=False) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema))
        writer.add_key_value_metadata({export._ABOUT: about, "seal": (export._MARK + export._BLANK).decode()})
    return sealed(buffer.getvalue())


@st.composite
def altered(draw: st.DrawFn, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in which some values are others of the same column type, or JSON of other content."""
    rows = [dict(row) for row in rows]
    for column in draw(st.sets(st.sampled_from(export.COLUMNS.names), min_size=1, max_size=3)):
        row = draw(st.sampled_from(rows))
        row[column] = draw(_other(column, row[column]))
    return rows


def _other(column: str, value: Any) -> st.SearchStrategy[Any]:
    text = names.map(lambda name: name.encode("utf-8", "replace").decode())
    floats = st.floats() | st.sampled_from([0.0, 1.0, 1e308])
    kind = export.COLUMNS.field(column).type
    if column in _JSON and value is not None:
        plain = json.loads(value)
        return mutated(plain).map(json.dumps) | text | st.none() | values.map(json.dumps)
    if column == "lines" and value:
        line = st.sampled_from(["mean", "variance", "interaction", "scale"])
        return st.tuples(line, floats | st.none()).map(lambda new: [{**value[0], new[0]: new[1]}, *value[1:]]) | (
            st.binary(max_size=600).map(lambda rows: [{**value[0], "rows": rows}, *value[1:]])
        )
    if column in _NUMBERS:
        return st.dictionaries(text, floats | st.none(), max_size=3).map(lambda d: list(d.items())) | st.none()
    if pa.types.is_list(kind):
        return st.none() if column == "lines" else st.lists(floats | st.none(), max_size=9) | st.none()
    if pa.types.is_integer(kind):
        return st.integers(-(2**31), 2**31 - 1) | st.none()
    return (floats if pa.types.is_floating(kind) else text) | st.none()


def shown(path: Path) -> None:
    """What a board does with an export."""
    export.read(path)
    for board in build_all(gather([path])):
        markdown(table(board, "overview"))


@fuzz
@given(choices=st.data())
def test_rows(choices: st.DataObject, honest: Path) -> None:
    rows, about = _parts(honest)
    path = honest.with_name("altered.parquet")
    path.write_bytes(written(choices.draw(altered(rows)), about))
    answered(lambda: shown(path))


@fuzz
@given(choices=st.data())
def test_bytes(choices: st.DataObject, honest: Path) -> None:
    content = choices.draw(damaged(honest.read_bytes()) | st.binary(max_size=100))
    path = honest.with_name("damaged.parquet")
    path.write_bytes(sealed(content) if choices.draw(st.booleans()) else content)
    answered(lambda: shown(path))


@fuzz
@given(choices=st.data())
def test_what_it_says_of_itself(choices: st.DataObject, honest: Path) -> None:
    rows, about = _parts(honest)
    said = choices.draw(mutated(json.loads(about)).map(lambda raw: json.dumps(raw).encode()) | damaged(about))
    path = honest.with_name("said.parquet")
    path.write_bytes(written(rows, said))
    answered(lambda: shown(path))


def _parts(path: Path) -> tuple[list[dict[str, Any]], bytes]:
    file = pq.ParquetFile(path)
    return file.read().to_pylist(), file.metadata.metadata[export._ABOUT.encode()]


def test_the_fuzzer_reaches_a_board(honest: Path) -> None:
    rows, about = _parts(honest)
    path = honest.with_name("again.parquet")
    path.write_bytes(written(rows, about))
    shown(path)
    assert len(export.read(path).records) == 4
    path.write_bytes(sealed(honest.read_bytes()))
    assert path.read_bytes() == honest.read_bytes()
