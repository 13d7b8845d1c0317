"""Write docs/methods.md from the classes themselves: `python docs/make_methods.py`. A test fails when it is stale."""

import inspect
from pathlib import Path

from datamodules.options import describe, hints, parameters
from methods.registry import methods

PAGE = Path(__file__).with_name("methods.md")
HEAD = """# Methods

One section a method: what it does, where it comes from, where we differ, its own options. Made by
`python docs/make_methods.py` out of the classes themselves.
"""


def page() -> str:
    """The page, families together."""
    families: dict[str, list[str]] = {}
    for entry in methods.entries():
        if entry.origin.startswith("methods."):
            families.setdefault(entry.family, []).append(entry.name)
    parts = [HEAD]
    for family, names in sorted(families.items()):
        parts += [f"## {family.capitalize()}\n", *map(section, names)]
    return "\n".join(parts)


def section(name: str) -> str:
    """The text of a class, and its options."""
    cls = methods.get(name)
    text = inspect.cleandoc(cls.__doc__ or "").partition("\nArgs:")[0].strip()
    options = [
        f"`{key}` ({describe(hints(cls)[key])}, default {getattr(option.default, 'name', repr(option.default))})"
        for key, option in parameters(cls).items()
    ]
    return f"### `{name}`\n\n{text}\n" + (f"\nOptions: {'; '.join(options)}.\n" if options else "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
