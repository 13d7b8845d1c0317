"""A page a method: what it does, its equations, where it differs, its options, its place on the published board."""

import inspect
import re
from pathlib import Path

from published import NONE, row_of, standing_table, where

from benchmark.commands.list import options_of
from leaderboard.board import Board
from methods.registry import methods

MATHEMATICS = Path(__file__).parent / "mathematics"
HEAD = """# Methods

{count} methods, each in one file of `methods/`. Every page says what a method does, its equations, where it differs
from its source and why, its options with their ranges, and where it stands on the published board.
"""


def pages(board: Board | None) -> dict[str, str]:
    """An index by family, and a page each."""
    shipped = [entry for entry in methods.entries() if entry.origin.startswith("methods.")]
    families: dict[str, list[str]] = {}
    for entry in shipped:
        line = f"| [`{entry.name}`]({entry.name}.md) | {escaped(entry.summary)} |"
        families.setdefault(entry.family, []).append(line)
    index = HEAD.format(count=len(shipped))
    for family, lines in sorted(families.items()):
        index += f"\n## {family.capitalize()}\n\n| method | what it does |\n|---|---|\n" + "\n".join(lines) + "\n"
    return {"methods/index.md": index, **{f"methods/{e.name}.md": page(e.name, e.family, board) for e in shipped}}


def page(name: str, family: str, board: Board | None) -> str:
    """All about one method."""
    text, given = docstring(methods.get(name))
    rows = row_of(board, name)
    parts = [f"# `{name}`", f"*{family.capitalize()}, in* `methods/{name}.py`", text]
    equations = section(name)
    if equations:
        title, stem, body = equations
        anchor = f"[{title}](../mathematics/{stem}.md)"
        parts += ["## Equations", body, f"More, with the errors we found in the sources: {anchor}."]
    parts += ["## Options", option_table(methods.get(name), given)]
    parts += ["## On the published board", standing_table(rows) + "\n" + where(rows) if rows else NONE]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def docstring(cls: type) -> tuple[str, dict[str, str]]:
    """The text of a class without its arguments, and what it says of each argument."""
    text, _, below = inspect.cleandoc(cls.__doc__ or "").partition("\nArgs:")
    found = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", below.partition("\n\n")[0], flags=re.M)
    return text.strip(), {name: " ".join(words.split()) for name, words in found}


def option_table(cls: type, given: dict[str, str]) -> str:
    """Names, types, ranges, defaults, and what `polymodal tune` may try."""
    options = options_of(cls)
    if not options:
        return "None of its own."
    lines = ["| option | is | default | `tune` tries | |", "|---|---|---|---|---|"]
    for option in options:
        cells = (f"`{option['name']}`", option["is"], f"`{option['default']}`", option["tuned over"])
        lines.append("| " + " | ".join(map(escaped, (*cells, given.get(option["name"], "")))) + " |")
    return "\n".join(lines)


def section(name: str) -> tuple[str, str, str] | None:
    """Title and stem of the page of mathematics that has a section on the method, and that section."""
    for path in sorted(MATHEMATICS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        for heading, body in re.findall(r"^## (.*)\n((?:(?!^## ).*\n?)*)", text, flags=re.M):
            if f"`{name}`" in heading:
                return text.partition("\n")[0].removeprefix("# "), path.stem, body.strip()
    return None


def escaped(text: str) -> str:
    """Text for the cell of a table."""
    return text.replace("|", "\\|")
