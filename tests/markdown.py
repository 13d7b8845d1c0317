"""Blocks of code in the project's texts, and the scripts that write some of them."""

import importlib
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


class Blocks:
    """The fenced blocks of a file: language (may be empty) and text."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.blocks: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```", self.text, flags=re.S | re.M)

    def lines(self, *languages: str) -> list[str]:
        """Commands, without comments; one that goes on over several lines is one."""
        joined = [block.replace("\\\n", "") for kind, block in self.blocks if kind in languages]
        found = [line.split(" #")[0].strip() for block in joined for line in block.splitlines()]
        return [line for line in found if line]


def commands(page: Blocks) -> list[list[str]]:
    """What a page asks to type after `polymodal`; numbers that a shell would compute are any numbers."""
    lines = [line for line in page.lines("sh", "bash", "") if line.startswith("polymodal ")]
    return [shlex.split(re.sub(r"\$\w+", "0", re.sub(r"\$\(\(.*?\)\)", "8", line)))[1:] for line in lines]


def make_page(name: str) -> ModuleType:
    """A script of docs/, imported as `make docs` runs it: with its neighbours at hand."""
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(DOCS))
