"""The user's own tables and arrays: a file that is damaged or odd is one message, and what loads is finite."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark.build import resolve_dataset
from datamodules.base import DataModule
from tests.fuzz.harness import answered, damaged, fuzz, mutated, names

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ROWS = 30

CELLS = st.sampled_from(
    [
        "",
        "1",
        "-2.5",
        "nan",
        "inf",
        "-inf",
        "1e308",
        "1e400",
        "9" * 400,
        "0x1f",
        "cat",
        '"',
        "'",
        "=1+1",
        "\x1b[2J",
        "é",
    ]
) | st.text(max_size=6)
CSV = {
    "file": "table.csv",
    "modalities": {"a": ["a1", "a2"], "b": ["b1..b2"]},
    "target": "kind",
    "task": "multiclass",
    "split": [0.6, 0.2, 0.2],
    "group": "",
    "gaps": "error",
    "header": True,
    "separator": ",",
}
NPZ = {
    "file": "arrays.npz",
    "modalities": ["x", "y"],
    "target": "target",
    "task": "multiclass",
    "split": [0.6, 0.2, 0.2],
}


def lines() -> list[list[str]]:
    rng = np.random.default_rng(0)
    body = [[*(f"{x:.3f}" for x in rng.normal(size=4)), "cat" if i % 2 else "dog", str(i)] for i in range(ROWS)]
    return [["a1", "a2", "b1", "b2", "kind", "weight"], *body]


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """A table in which some cells are odd, or whose bytes are damaged."""
    cells = lines()
    for _ in range(draw(st.integers(0, 3))):
        row, column = draw(st.integers(0, ROWS)), draw(st.integers(0, 5))
        cells[row][column] = draw(CELLS)
    content = "\n".join(",".join(row) for row in cells).encode("utf-8", "surrogatepass")
    return draw(damaged(content)) if draw(st.booleans()) else content


def archive(**change: Any) -> bytes:
    rng, buffer = np.random.default_rng(0), io.BytesIO()
    arrays = {"x": rng.normal(size=(ROWS, 4)), "y": rng.normal(size=(ROWS, 3, 2)), "target": np.arange(ROWS) % 3}
    np.savez(buffer, **{**arrays, **change})
    return buffer.getvalue()


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """An archive in which one array is odd, or whose bytes are damaged."""
    if draw(st.booleans()):
        return draw(damaged(archive()))
    shape = draw(
        st.sampled_from([(), (0,), (ROWS,), (ROWS - 1, 4), (ROWS, 0), (ROWS, 4), (ROWS, 1, 1, 1), (ROWS, 2, 2)])
    )
    value = np.zeros(shape, dtype=draw(st.sampled_from(["f8", "f2", "i8", "u1", "?", "U3", "M8[s]", "c16", "V4"])))
    if value.dtype.kind == "f" and value.size:
        value.reshape(-1)[draw(st.integers(0, value.size - 1))] = draw(st.floats() | st.just(1e308))
    return archive(**{draw(st.sampled_from(["x", "y", "target", "z"])): value})


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLYMODAL_DATA", str(folder))
        patch.setenv("POLYMODAL_CACHE", str(folder / "cache"))
        yield folder


def loaded(name: str, options: Any) -> DataModule:
    """The dataset, with everything that is ever asked of it."""
    module, _ = resolve_dataset(name, options, "fuzz.toml")
    assert module.task.modalities
    for split in ("train", "val", "test"):
        for batch in module.ordered(split):
            for name, x in batch.inputs.items():
                assert not x.is_floating_point() or bool(x.isfinite().all()), f"{name} is not finite"
            assert not batch.target.is_floating_point() or bool(batch.target.isfinite().all())
    return module


@fuzz
@given(content=tables(), suffix=st.sampled_from([".csv"] * 9 + [".zip", ".xz", ".gz"]))
def test_tables(content: bytes, suffix: str, data: Path) -> None:
    (data / f"table{suffix}").write_bytes(content)
    answered(lambda: loaded("csv_views", {**CSV, "file": f"table{suffix}"}))


@fuzz
@given(options=mutated(CSV))
def test_options_of_tables(options: Any, data: Path) -> None:
    (data / "table.csv").write_text("\n".join(",".join(row) for row in lines()))
    if isinstance(options, dict) and all(isinstance(key, str) for key in options):
        answered(lambda: loaded("csv_views", options))


@fuzz
@given(content=archives(), task=st.sampled_from(["multiclass", "regression"]))
def test_arrays(content: bytes, task: str, data: Path) -> None:
    (data / "arrays.npz").write_bytes(content)
    answered(lambda: loaded("npz_views", {**NPZ, "task": task}))


@fuzz
@given(options=mutated(NPZ))
def test_options_of_arrays(options: Any, data: Path) -> None:
    (data / "arrays.npz").write_bytes(archive())
    if isinstance(options, dict):
        answered(lambda: loaded("npz_views", options))


@fuzz
@given(name=names)
def test_names_of_files(name: str) -> None:
    answered(lambda: loaded("csv_views", {**CSV, "file": name}))
    answered(lambda: loaded("npz_views", {**NPZ, "file": name}))


def test_the_fuzzer_reaches_the_rows(data: Path) -> None:
    (data / "table.csv").write_text("\n".join(",".join(row) for row in lines()))
    (data / "arrays.npz").write_bytes(archive())
    assert loaded("csv_views", CSV).task.names == ("a", "b")
    assert loaded("npz_views", NPZ).task.names == ("x", "y")
