"""Write docs/reference/cli.md from the parser itself: `python docs/make_cli.py`. A test fails when it is stale."""

import argparse
from importlib import import_module
from pathlib import Path

from benchmark.cli import parser
from benchmark.commands.study import studies

PAGE = Path(__file__).with_name("reference") / "cli.md"
HEAD = """# Commands

Every command and every option, made by `python docs/make_cli.py` out of the parser that reads them.
`polymodal COMMAND --help` says the same.
`eval "$(polymodal completion bash)"` lets the shell complete them (`zsh` and `fish` too).

| command | what it does |
|---|---|
"""


def page() -> str:
    """A table of the commands, then a section each."""
    commands = _below(parser())
    lines = [f"| [`{name}`](#{name}) | {_cell(text)} |" for name, text, _ in commands]
    return HEAD + "\n".join([*lines, "", *(section(*command) for command in commands)])


def section(title: str, text: str, sub: argparse.ArgumentParser, level: int = 2) -> str:
    """Options and examples of a command, then of what it is divided into."""
    parts = [f"{'#' * level} {title}", "", text, ""]
    parts += [_option(a) for a in sub._actions if not isinstance(a, argparse._HelpAction | argparse._SubParsersAction)]
    if sub.epilog:
        parts += ["", "```text", sub.epilog.strip(), "```"]
    found = _studies() if title == "study" else _below(sub)
    below = [section(f"{title} {name}", text, s, level + 1) for name, text, s in found]
    return "\n".join([*parts, "", *below])


def _below(top: argparse.ArgumentParser) -> list[tuple[str, str, argparse.ArgumentParser]]:
    """The commands of a parser: name, what it does, its own parser."""
    found = []
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: str(choice.help or "") for choice in action._choices_actions}
            found += [(name, helps.get(name, ""), sub) for name, sub in action.choices.items()]
    return found


def _studies() -> list[tuple[str, str, argparse.ArgumentParser]]:
    """The studies, whose options the command reads only once one is chosen."""
    found = []
    for name, text in studies().items():
        sub = argparse.ArgumentParser()
        import_module(f"benchmark.studies.{name}").add_arguments(sub)
        found.append((name, text, sub))
    return found


def _option(action: argparse.Action) -> str:
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    value = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        shown = f"`{value}`" + (" (may be left out)" if action.nargs in ("?", "*") else "")
    else:
        shown = ", ".join(f"`{name}{f' {value}' if action.nargs != 0 else ''}`" for name in action.option_strings)
    words = (action.help or "").replace("%%", "%")
    return f"- {shown}: {words}" if words else f"- {shown}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
