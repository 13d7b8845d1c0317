"""A page a method: what it does, its equations, where it differs, its options, its place on the published board."""

import inspect
import re
from pathlib import Path

from published import NONE, Boards, row_of, standing_table, track_of, where

from benchmark.commands.list import options_of
from methods.registry import methods

MATHEMATICS = Path(__file__).parent / "mathematics"
HEAD = """# Methods

{count} methods, each in one file of `methods/`. Every page says what a method does, its equations, where it differs
from its source and why, its options with their ranges, and where it stands on the published board.
"""
NO_SOURCE = "Source: no single paper; a baseline or a standard construction."


def pages(boards: Boards) -> dict[str, str]:
    """An index by family, and a page each."""
    shipped = [entry for entry in methods.entries() if entry.origin.startswith("methods.")]
    families: dict[str, list[str]] = {}
    for entry in shipped:
        line = f"| [`{entry.name}`]({entry.name}.md) | {escaped(entry.summary)} |"
        families.setdefault(entry.family, []).append(line)
    index = HEAD.format(count=len(shipped))
    for family, lines in sorted(families.items()):
        index += f"\n## {family.capitalize()}\n\n| method | what it does |\n|---|---|\n" + "\n".join(lines) + "\n"
    return {"methods/index.md": index, **{f"methods/{e.name}.md": page(e.name, e.family, boards) for e in shipped}}


def page(name: str, family: str, boards: Boards) -> str:
    """All about one method."""
    text, given = docstring(methods.get(name))
    rows = row_of(boards, name)
    parts = [f"# `{name}`", f"*{family.capitalize()}, in* `methods/{name}.py`", text]
    if not re.search(r"\b(19|20)\d\d\b", text):
        parts.append(NO_SOURCE)
    equations = section(name)
    if equations:
        title, stem, body = equations
        anchor = f"[{title}](../mathematics/{stem}.md)"
        parts += ["## Equations", body, f"More, with the errors we found in the sources: {anchor}."]
    parts += ["## Options", option_table(methods.get(name), given)]
    found = [track_of(boards, name), standing_table(rows), where(rows)] if rows else [NONE]
    parts += ["## On the published board", *found]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def docstring(cls: type) -> tuple[str, dict[str, str]]:
    """The text of a class without its arguments, and what it, or a class it extends, says of each argument."""
    said: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        below = inspect.cleandoc(owner.__doc__ or "").partition("\nArgs:")[2]
        found = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", below.partition("\n\n")[0], flags=re.M)
        said |= {name: " ".join(words.split()) for name, words in found}
    return inspect.cleandoc(cls.__doc__ or "").partition("\nArgs:")[0].strip(), said


def option_table(cls: type, given: dict[str, str]) -> str:
    """Names, and in one cell what an option is and does: five columns are too many for a phone."""
    options = options_of(cls)
    if not options:
        return "None of its own."
    lines = ["| option | |", "|---|---|"]
    for option in options:
        words = [f"*{option['is']}*, default `{option['default']}`.", given.get(option["name"], "")]
        words += [f"`tune` tries {option['tuned over']}."] if option["tuned over"] else []
        lines.append(f"| `{option['name']}` | {escaped(' '.join(filter(None, words)))} |")
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
