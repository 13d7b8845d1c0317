"""Matrices: TOML of wrong types and values, and text that is no TOML, end in a plan or in one message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from benchmark.matrix import Matrix, parse, read, with_arguments
from benchmark.plan import Plan, make_plan
from tests.fuzz.harness import answered, damaged, fuzz, mutated, names, numbers, values

pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {
    "seeds": 2,
    "conditions": ["gaussian_noise", "missing"],
    "methods": ["concat", {"name": "low_rank", "rank": 2}],
    "datasets": [{"name": "interactions_xor", "rows": 64, "mu": [1.0, 1.0]}],
    "recipe": {"width": 8, "epochs": 1, "batch_size": 16, "lr": 0.01, "weight_decay": 0.0, "patience": 1},
    "recipes": {"interactions_xor": {"epochs": 2}},
    "trainer": {"precision": "32-true", "devices": 1},
    "baselines": False,
    "exclude": ["late"],
    "missing_data": "fail",
}
AS_TABLES: dict[str, Any] = {
    **SMALL,
    "methods": {"concat": {}, "skewed_mean": {"base": {"name": "concat"}, "sigma": 0.1, "kappa": 1.0}},
    "datasets": {"interactions_modulation": {"rows": 64}},
    "seeds": [0, 7],
    "conditions": "standard",
}


def planned(matrix: Matrix) -> Plan | None:
    """The plan, if it is a small one: a large one is slow for a good reason."""
    return make_plan(matrix) if len(matrix.seeds) <= 50 and len(matrix.methods) + len(matrix.datasets) < 10 else None


@fuzz
@given(raw=mutated(SMALL) | mutated(AS_TABLES))
def test_tables(raw: Any) -> None:
    if isinstance(raw, dict):
        answered(lambda: planned(parse(raw, "fuzz.toml")))


@fuzz
@given(content=damaged(tomli_w.dumps(SMALL).encode()) | st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_text(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = _scratch(tmp_path_factory) / "matrix.toml"
    path.write_bytes(content)
    answered(lambda: read(str(path)))


def test_thousands_of_brackets_and_digits(tmp_path: Path) -> None:
    path = tmp_path / "matrix.toml"
    for text in ("seeds = " + "[" * 5000 + "]" * 5000, f"seeds = {'9' * 5000}", f"seeds = 0x{'f' * 9000}"):
        path.write_text(text)
        assert answered(lambda: parse({}, "") and read(str(path))) is None


_KEYS = st.sampled_from(["rows", "mu", "rank", "lr", "width", "devices", "precision", "base", "sigma", "k", "hidden"])
_OWNERS = st.sampled_from(["recipe", "trainer", "concat", "low_rank", "interactions_xor", "nobody"]) | names


@fuzz
@given(
    settings=st.lists(
        st.tuples(_OWNERS, _KEYS | names, values.map(repr) | names | numbers.map(str)).map(
            lambda parts: f"{parts[0]}.{parts[1]}={parts[2]}"
        )
        | st.text(max_size=30),
        min_size=1,
        max_size=3,
    )
)
def test_settings(settings: list[str]) -> None:
    matrix = parse(SMALL, "fuzz.toml")
    answered(lambda: planned(with_arguments(matrix, settings=settings)))


def _scratch(factory: pytest.TempPathFactory) -> Path:
    folder = factory.getbasetemp() / "fuzz"
    folder.mkdir(exist_ok=True)
    return folder
