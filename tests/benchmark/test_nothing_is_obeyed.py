"""Escape sequences and markup in files, columns, classes, errors and names: every command shows them, none obeys."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.cli import main
from benchmark.errors import printable
from leaderboard.record import Failure
from leaderboard.store import Store
from tests.leaderboard.conftest import Planted, write_results
from tests.records import changed

Said = Callable[..., str]
HOSTILE = "\x1b[2J\u202e[/b][red]evil"
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    """What a command prints, which must obey nothing and have the word in it; and its exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "cache"))

    def run(*arguments: object, code: int = 0) -> str:
        capsys.readouterr()
        assert main([str(a) for a in arguments]) == code
        out, err = capsys.readouterr()
        assert not _OBEYED.search(out + err), (arguments, out + err)
        assert "evil" in out + err, arguments
        assert "Traceback" not in err
        return out + err

    return run


@pytest.fixture
def results(tmp_path: Path) -> Store:
    """Honest records, one that failed with a hostile message, and a file with a hostile name."""
    methods = {"concat": Planted(0.7), "gated": Planted(0.8)}
    store = write_results(tmp_path / "results", methods, ("digits",), seeds=2, rows=40)
    failed = changed(store.scan().records[0], status="failed", conditions=(), seed=7, predictions="")
    store.write(changed(failed, error=Failure("ValueError", HOSTILE, HOSTILE)))
    (store.folder / f"{HOSTILE.replace('/', '')}.json").write_text("{}")
    return store


def test_results(said: Said, results: Store) -> None:
    assert "\\x1b[2J" in said("validate", code=1)
    assert "not a Polymodal record" in said("leaderboard", code=2)
    for format in ("terminal", "markdown"):
        said("leaderboard", "--skip-invalid", "--format", format)
    said("export", "--output", "mine.parquet", "--skip-invalid")
    said("show", code=2)
    (failed,) = [r.cell.id for r in results.scan().records if r.status == "failed"]
    said("show", failed)
    said("doctor", "--results", results.folder / HOSTILE)


def test_a_table_of_scores(said: Said) -> None:
    Path("scores.csv").write_text(f"method,dataset,seed,score\nconcat,d,0,0.5\n{HOSTILE},d,0,0.5\n")
    assert "`method` must be a name, got" in said("leaderboard", "scores.csv", code=2)


def rows(column: str = "b_y", label: str = "cat") -> str:
    lines = [f"{i % 7},{i % 5},{i % 11},{label if i % 2 else 'dog'}" for i in range(80)]
    return "\n".join([f"a_x,a_z,{column},kind", *lines])


@pytest.mark.parametrize("where", ["column", "label"])
def test_a_table_of_the_users(said: Said, where: str) -> None:
    Path("mine.csv").write_text(rows(**{where: f"b_{HOSTILE}"}))
    second = {"column": f"b_{HOSTILE}", "label": "b_y"}[where]
    said("try", "mine.csv", "--target", "kind", "--groups", "a=a_x,a_z", f"b={second}", "--look")


def test_the_name_of_a_file(said: Said) -> None:
    name = HOSTILE.replace("/", "")
    Path(f"{name}.csv").write_text(rows())
    Path("mine.toml").write_text(
        'methods = ["concat"]\n[datasets.csv_views]\n'
        f'file = "{printable(name).replace("x1b", "u001b")}.csv"\ntarget = "kind"\n'
        'modalities = {a = ["a_x"], b = ["b_y"]}\n'
    )
    assert "is not a line of text - at `$.cell.dataset`" in said("plan", "mine.toml", code=2)
    said("data", "info", "csv_views", "--matrix", "mine.toml", "--no-sheet")


def test_what_a_plugin_says(said: Said) -> None:
    Path("mine.py").write_text(
        "from methods import Method, register\n\n\n"
        '@register("raises_evil")\nclass Mine(Method):\n    """Doc."""\n\n'
        "    @classmethod\n    def applies_to(cls, task, options):\n"
        f"        if task.name == 'interactions_xor':\n            return {HOSTILE!a}\n"
        f"        raise RuntimeError({HOSTILE!a})\n"
    )
    command = ("--plugin", "mine.py", "--methods", "raises_evil,concat", "--no-baselines", "--conditions", "none",
               "--datasets", "interactions_xor,interactions_mux")  # fmt: skip
    assert "failed to plan: raises_evil on interactions_mux" in said("plan", *command, code=1)


def test_messages_are_cut() -> None:
    assert len(printable("x" * 10**6)) < 5000 and printable("x" * 10**6).endswith("... (1,000,000 characters)")
