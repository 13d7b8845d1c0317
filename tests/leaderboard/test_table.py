"""A board of any table: the statistics for results that other code made, without torch."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmark.cli import main
from leaderboard import Board
from leaderboard.csv_and_json import to_json
from leaderboard.merge import BoardError

ROOT = Path(__file__).resolve().parents[2]


def scores(outcomes: bool = True, seeds: int = 5, rows: int = 200) -> pd.DataFrame:
    """Three methods on two datasets; forest is better by a tenth, the others are equal."""
    rng = np.random.default_rng(0)
    found = []
    for dataset in ("iris", "wine"):
        hard = rng.random(rows)
        for method, quality in (("logreg", 0.8), ("forest", 0.9), ("knn", 0.8)):
            for seed in range(seeds):
                right = (hard + 0.1 * rng.standard_normal(rows) < quality).astype(float)
                row: dict[str, Any] = {"method": method, "dataset": dataset, "seed": seed, "score": right.mean()}
                found.append({**row, "outcomes": right} if outcomes else row)
    return pd.DataFrame(found)


@pytest.mark.parametrize("outcomes", [True, False])
def test_intervals_and_ties(outcomes: bool) -> None:
    board = Board.of(scores(outcomes), control="logreg", trivial=1 / 3)
    placed = board.standings().set_index("method")
    assert placed.loc["forest", "verdict"] == "win" and placed.loc["forest", "best"]
    assert placed.loc["knn", "verdict"] == "tie" and not placed.loc["knn", "best"]
    assert placed.loc["forest", "low"] < placed.loc["forest", "advantage"] < placed.loc["forest", "high"]
    assert placed.loc["forest", "advantage"] == pytest.approx(0.1 / (2 / 3), abs=0.05)
    assert any("over seeds only" in note for note in board.notes) != outcomes
    assert "forest" in board.markdown() and "forest" in board.page()


def test_rows_are_in_the_interval() -> None:
    """200 rows are more of the uncertainty than five seeds: with them a score's interval is wider."""
    widths = []
    for outcomes in (True, False):
        frame = Board.of(scores(outcomes), control="logreg").frame()
        own = frame[(frame["method"] == "forest") & (frame["measure"] == "clean")]
        widths.append((own["high"] - own["low"]).mean())
    assert widths[0] > 2 * widths[1]


def test_conditions_make_the_pillars() -> None:
    clean = scores(outcomes=False)
    every = [clean.assign(condition="clean")]
    for severity in range(1, 6):
        for name in ("single:image:noise", "joint"):
            every.append(clean.assign(score=clean["score"] - 0.05 * severity, condition=f"{name}:{severity}"))
    every.append(clean.assign(score=clean["score"] - 0.3, condition="missing:image"))
    board = Board.of(pd.concat(every), control="logreg", trivial=0.3)
    assert set(board.standings()["pillar"]) == {"clean", "robust", "missing"}
    assert board.datasets[0].curves == (("image", "noise"),)
    assert board.plot_robustness("wine").axes


def test_errors_are_mirrored() -> None:
    frame = scores(outcomes=False)
    frame["score"] = 1 - frame["score"]
    board = Board.of(frame, control="logreg", metric="error", higher_is_better=False, trivial=2 / 3)
    assert board.order("clean")[0].method == "forest"
    with pytest.raises(BoardError, match="the trivial score must be above 0"):
        Board.of(frame, higher_is_better=False)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: f.drop(columns="seed"), "missing: seed. It has: method, dataset, score"),
        (lambda f: pd.concat([f, f[:1]]), "logreg iris 0 clean is there twice"),
        (lambda f: f.assign(score=np.nan), "`score` must be a finite number, got nan"),
        (lambda f: f.assign(seed=-1), "`seed` must be a whole number >= 0"),
        (lambda f: f.assign(seed=[10**400] * len(f)), "`seed` must be a finite number"),
        (lambda f: f.assign(method=3), "`method` must be a name, got 3"),
        (lambda f: f.assign(condition="fog"), "has no clean score"),
        (lambda f: pd.concat([f, f.assign(condition="fog:3")]), "no condition 'fog:3'. A condition is one of clean"),
        (lambda f: f[:0], "has no rows"),
        (lambda f: f.assign(outcomes=[[0.0, 1.0]] * len(f)), "the mean of `outcomes` is 0.5"),
    ],
)
def test_a_table_that_is_none_is_one_error(spoil: Any, message: str) -> None:
    with pytest.raises(BoardError, match=message.replace(".", r"\.").replace("(", r"\(")):
        Board.of(spoil(scores(outcomes=False)))


def test_an_unknown_control_is_named() -> None:
    with pytest.raises(BoardError, match=r"no method named 'svm' to compare with. Methods of the table: logreg"):
        Board.of(scores(outcomes=False), control="svm")


def test_a_csv_file_is_a_source_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scores.csv"
    scores(outcomes=False).to_csv(path, index=False)
    assert main(["leaderboard", str(path), "--format", "json"]) == 0
    (board,) = json.loads(capsys.readouterr().out)
    assert board["control"] == "logreg" and {row["label"] for row in board["rows"]} >= {"logreg", "forest", "knn"}
    assert main(["leaderboard", str(path), "--output", str(tmp_path / "page")]) == 0
    assert (tmp_path / "page" / "leaderboard.html").is_file()
    path.write_text("a,b\n1,2\n")
    capsys.readouterr()
    assert main(["leaderboard", str(path)]) == 2
    assert "must have the columns method, dataset, seed, score" in capsys.readouterr().err


WITHOUT_TORCH = """
import sys


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "lightning", "torchmetrics", "torchvision"):
            raise ModuleNotFoundError(f"{name} is not installed", name=name)


sys.meta_path.insert(0, Blocked())
import pandas as pd
from leaderboard import Board, load

frame = pd.read_csv("scores.csv")
board = Board.of(frame, control="logreg")
print(board)
board.page("page.html")
board._repr_html_(), board.frame(), board.standings()
load("scores.csv").board()
load("reference").board()
from benchmark.cli import main

assert main(["leaderboard", "scores.csv", "--output", "files"]) == 0
try:
    import torch
except ModuleNotFoundError:
    print("there is no torch")
"""


def test_no_torch_is_needed(tmp_path: Path) -> None:
    scores(outcomes=False).to_csv(tmp_path / "scores.csv", index=False)
    command = [sys.executable, "-c", WITHOUT_TORCH]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin", "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "forest" in done.stdout and (tmp_path / "page.html").is_file()
    assert (tmp_path / "files" / "leaderboard.html").is_file() and "there is no torch" in done.stdout


@pytest.mark.slow
def test_a_machine_without_torch_makes_the_board(tmp_path: Path) -> None:
    """A fresh environment that sees our other packages by their folders, but no torch."""
    scores(outcomes=False).to_csv(tmp_path / "scores.csv", index=False)
    venv.create(tmp_path / "fresh", with_pip=False, symlinks=True)
    (packages,) = (tmp_path / "fresh" / "lib").glob("python*/site-packages")
    import numpy

    here = Path(numpy.__file__).parent.parent
    wanted = ("numpy", "pandas", "scipy", "msgspec", "filelock", "pyarrow", "rich", "dateutil", "pytz", "tzdata", "six",
              "markdown_it", "mdurl", "pygments", "matplotlib")  # fmt: skip
    for entry in here.iterdir():
        stem = entry.name.partition("-")[0].partition(".")[0].lower()
        if stem in wanted:
            (packages / entry.name).symlink_to(entry)
    assert not (packages / "torch").exists()
    code = WITHOUT_TORCH[WITHOUT_TORCH.index("import pandas") :]
    command = [str(tmp_path / "fresh" / "bin" / "python"), "-c", code]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin", "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "forest" in done.stdout
    assert (tmp_path / "files" / "leaderboard.html").is_file() and "there is no torch" in done.stdout


def test_half_a_character_is_written_as_json_too() -> None:
    board = dataclasses.replace(Board.of(scores(False), control="logreg"), notes=("a folder named \ud800",))
    text = to_json([board])
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"
    assert json.loads(text)[0]["notes"] == ["a folder named \ud800"]
