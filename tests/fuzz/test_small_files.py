"""Tables of scores, choices of `tune`, and reasons kept beside records: each is a board or one message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from benchmark.tune import Chosen, Tuned, read, write
from leaderboard import not_applicable
from leaderboard.board import build_all
from leaderboard.merge import gather
from leaderboard.renderings import markdown
from leaderboard.tables import table
from tests.fuzz.harness import answered, damaged, fuzz, mutated, names

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
HEAD = "method,dataset,seed,score,condition,trivial,metric,higher_is_better"
LINES = [
    f"{method},d,{seed},{0.5 + seed / 100 + len(method) / 100},{condition},0.25,accuracy,True".split(",")
    for method in ("concat", "late")
    for seed in (0, 1)
    for condition in ("clean", "joint:1", "missing:a")
]
CELLS = st.sampled_from(
    ["", "0", "-1", "0.5", "nan", "inf", "1e30", "1e400", "9" * 400, "joint:x", "missing:", "single:a:b:99", "clean",
     "joint:" + "9" * 5000, "missing_rate:nan", "missing_rate:a:1e999", '"', "=1+1", "\x1b[2J", "False", "[1, 2]"]
) | names.map(lambda name: name.encode("utf-8", "replace").decode().replace("\n", " "))  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("small")


@st.composite
def scores(draw: st.DrawFn) -> bytes:
    lines = [list(line) for line in LINES]
    for _ in range(draw(st.integers(0, 3))):
        lines[draw(st.integers(0, len(lines) - 1))][draw(st.integers(0, 7))] = draw(CELLS)
    content = "\n".join([HEAD, *(",".join(line) for line in lines)]).encode()
    return draw(damaged(content)) if draw(st.booleans()) else content


def board(path: Path) -> int:
    boards = build_all(gather([path]))
    for one in boards:
        markdown(table(one, "overview"))
    return len(boards)


@fuzz
@given(content=scores())
def test_tables_of_scores(content: bytes, folder: Path) -> None:
    (folder / "scores.csv").write_bytes(content)
    answered(lambda: board(folder / "scores.csv"))


TUNED = Tuned(2, 1, (Chosen("late", "d", 1, (0.5, 0.6), {"lr": 0.1}, {"combine": "mean"}),))


@fuzz
@given(choices=st.data())
def test_choices(choices: st.DataObject, folder: Path) -> None:
    whole = tomli_w.dumps({"digest": TUNED.digest, **msgspec.to_builtins(TUNED)}).encode()
    (folder / "tuned.toml").write_bytes(choices.draw(damaged(whole) | mutated_toml() | st.binary(max_size=60)))
    answered(lambda: read(folder / "tuned.toml"))


def mutated_toml() -> st.SearchStrategy[bytes]:
    plain: dict[str, Any] = {"digest": TUNED.digest, **msgspec.to_builtins(TUNED)}
    return mutated(plain).map(_toml)


def _toml(raw: Any) -> bytes:
    try:
        return tomli_w.dumps(raw).encode("utf-8", "replace")
    except (TypeError, AttributeError, ValueError, RecursionError):  # what TOML cannot say
        return b""


@fuzz
@given(choices=st.data())
def test_reasons(choices: st.DataObject, folder: Path) -> None:
    path = folder / not_applicable.FILE
    path.write_bytes(b"")
    not_applicable.remember(folder, {("late", "d"): "why", ("cca", "d"): "why not"})
    path.write_bytes(choices.draw(damaged(path.read_bytes()) | st.binary(max_size=60)))
    answered(lambda: not_applicable.read(folder))


def test_the_fuzzer_reaches_a_board(folder: Path) -> None:
    (folder / "scores.csv").write_text("\n".join([HEAD, *(",".join(line) for line in LINES)]))
    assert board(folder / "scores.csv") == 1
    write(TUNED, folder / "tuned.toml")
    assert read(folder / "tuned.toml") == TUNED
