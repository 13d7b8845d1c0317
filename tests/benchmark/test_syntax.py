"""Digests of code are of the same text in every Python."""

import ast
import sys
from pathlib import Path

import pytest

from benchmark.syntax import written

ROOT = Path(__file__).resolve().parents[2]
REFERENCES = ROOT / "tests/references"


def test_every_python_writes_what_3_11_wrote() -> None:
    code = (REFERENCES / "syntax_code.txt").read_text(encoding="utf-8")
    assert written(ast.parse(code)) == (REFERENCES / "syntax_written.txt").read_text(encoding="utf-8").rstrip("\n")


@pytest.mark.parametrize("package", ["benchmark", "datamodules", "leaderboard", "methods"])
def test_our_code_is_written_as_3_11_dumps_it(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert len(files) > 30
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    if sys.version_info < (3, 12):
        assert [written(tree) for tree in trees] == [ast.dump(tree) for tree in trees]
