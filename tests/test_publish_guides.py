"""The guides of publishing, submitting and Python tell the truth: their code runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GUIDES = {name: (ROOT / "docs" / "guides" / f"{name}.md").read_text() for name in ("python", "reference", "submit")}


def blocks(guide: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDES[guide], flags=re.S)


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin", "HOME": str(Path.home()), "OMP_NUM_THREADS": "1"}
    code = code.replace("/tmp/polymodal-guide", str(folder / "results"))
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_table_of_the_guide_is_a_board(tmp_path: Path) -> None:
    for code in (blocks("python", "python")[2], *blocks("reference", "python")):
        done = run(code, tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_notebook_of_the_guide_runs(tmp_path: Path) -> None:
    found = blocks("python", "python")
    assert len(found) == 3
    for code in found[:2]:
        done = run(code, tmp_path)
        assert done.returncode == 0, done.stderr
