"""What `--format latex` writes is compiled, and fits the page of a paper."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from leaderboard import renderings, tables
from leaderboard.board import build_all
from leaderboard.measures import SLICES
from leaderboard.merge import gather
from leaderboard.reference import REFERENCE
from tests.leaderboard.conftest import STANDARD, Planted, write_results

PAGES = ("{article}", "[a4paper,11pt]{article}", "[twocolumn]{article}", "[a4paper,11pt,twocolumn]{article}")
SLACK = 10.0  # points that nobody sees


@pytest.fixture(scope="module", name="boards")
def boards_fixture(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the published results, which have many rows, and of many datasets and odd names."""
    names = {f"a_rather_long_name_of_a_method[rank={i},kind=100%]": Planted(0.7 + 0.01 * i) for i in range(4)}
    datasets = ("digits", "interactions_xor", "shapes[a & b]", "one_more_dataset", "and_another[file_name.csv]")
    store = write_results(tmp_path_factory.mktemp("latex"), {**STANDARD, **names}, datasets, seeds=2, rows=60)
    boards = [board for folder in (REFERENCE, store.folder) for board in build_all(gather([folder]))]
    written = [renderings.latex(tables.table(board, view)) for board in boards for view in SLICES]
    # Of two boards, so that labels come twice.
    return "\n\\clearpage\n".join(re.sub(r"\\label\{.*?\}", "", text) for text in written)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAGES)
def test_it_fits_the_page(kind: str, boards: str, tmp_path: Path) -> None:
    engine = shutil.which("pdflatex")
    if engine is None:
        pytest.skip("needs LaTeX")
    text = rf"\documentclass{kind}\usepackage{{booktabs,graphicx}}\begin{{document}}{boards}\end{{document}}"
    (tmp_path / "paper.tex").write_text(text, encoding="utf-8")
    command = [engine, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    log = (tmp_path / "paper.log").read_text(errors="replace")
    assert "Output written" in log
    wide = [float(by) for by in re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide", log)]
    assert max(wide, default=0.0) <= SLACK, wide
    assert "Float too large" not in log


def test_the_smaller_size_is_for_long_tables_only(tmp_path: Path) -> None:
    store = write_results(tmp_path, {"concat": STANDARD["concat"]}, ("digits",), seeds=2, rows=40)
    short = tables.table(build_all(gather([store.folder]))[0])
    assert r"\footnotesize" in renderings.latex(short)
    assert r"\scriptsize" in renderings.latex(replace(short, rows=short.rows * 21))
