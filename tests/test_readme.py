"""The README tells the truth: its commands parse, its code runs, its board is the published one."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmark.cli import parser
from tests.markdown import ROOT, Blocks, commands, make_page

README = Blocks(ROOT / "README.md")


def test_commands_parse() -> None:
    found = commands(README)
    assert len(found) >= 6
    for command in found:
        parser().parse_args(command)


def test_make_targets_exist() -> None:
    targets = {line.split()[1] for line in README.lines("sh") if line.startswith("make ")}
    assert {"leaderboard", "test"} <= targets
    makefile = (ROOT / "Makefile").read_text()
    for target in targets | set(re.findall(r"`make ([\w-]+)`", README.text)):
        assert re.search(rf"^{target}:", makefile, flags=re.M), target


def test_installing_says_what_it_takes_and_how_to_go_on() -> None:
    said = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "Installed" in line)
    assert "activate" in said and "du -sh .venv" in said and "$(BIN)/polymodal" in said
    start = (ROOT / "docs" / "index.md").read_text()
    assert "GB of disk" in start and ". .venv/bin/activate" in start and "`.venv/bin/polymodal`" in start


def test_it_is_about_a_screen() -> None:
    assert len(README.text.splitlines()) < 110, "what is long belongs on the site"


def test_the_headline_is_that_of_the_published_board() -> None:
    assert README.text == make_page("make").readme(), "stale: make docs"


def test_links_and_pictures_exist() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README.text)
    assert len(targets) >= 15
    for target in targets:
        assert "://" in target or (ROOT / target).exists(), target


def test_one_fusion_alone() -> None:
    (block,) = [block for kind, block in README.blocks if kind == "python" and "functional" in block]
    values: dict[str, object] = {}
    exec(block, values)  # the block is ours
    assert tuple(getattr(values["fused"], "shape", ())) == (8, 16)


def plugin(folder: Path) -> Path:
    (block,) = [block for kind, block in README.blocks if kind == "python" and "@register" in block]
    code = [line for line in block.splitlines() if line.strip()]
    assert len(code) < 30, "a plugin takes under 30 lines"
    path = folder / "precision_weighted.py"
    path.write_text(block)
    return path


def run(folder: Path, *arguments: str) -> str:
    environment = {**__import__("os").environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def polymodal(folder: Path, *arguments: str) -> str:
    return run(folder, "-m", "benchmark.cli", *arguments)


def test_the_plugin_passes_its_check(tmp_path: Path) -> None:
    path = plugin(tmp_path)
    assert "0 fail" in polymodal(tmp_path, "check", "precision_weighted", "--plugin", str(path))


@pytest.mark.slow
def test_the_plugin_reaches_a_board_that_exists(tmp_path: Path) -> None:
    """The commands below the method, word by word, where results of the default matrix are there already."""
    plugin(tmp_path)
    polymodal(tmp_path, "run", "--methods", "concat,late", "--datasets", "interactions_xor,digit_halves", "--quiet")
    (block,) = [block for kind, block in README.blocks if kind == "sh" and "check precision_weighted" in block]
    said = [polymodal(tmp_path, *shlex.split(line)[1:]) for line in block.splitlines()]
    assert any("2 run, 6 cached, 0 failed" in text for text in said), said
    assert "precision_weighted" in said[-1]
    assert "precision_weighted" in polymodal(tmp_path, "leaderboard", "--format", "csv")


@pytest.mark.slow
def test_five_lines_give_a_board(tmp_path: Path) -> None:
    (block,) = [block for kind, block in README.blocks if kind == "python" and "import run" in block]
    said = run(tmp_path, "-c", block)
    assert "gated" in said
    assert "digit_halves" in said
