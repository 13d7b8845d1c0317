"""`polymodal list`: what there is.

Lists are read from source and metadata, without importing a method, a dataset or torch; only what is named is imported.
"""

from __future__ import annotations

import argparse
import inspect
import json
from typing import TYPE_CHECKING, Any

from benchmark.arguments import add_json, add_plugins, use_data

if TYPE_CHECKING:
    from datamodules.registry import Registry

NAME = "list"
HELP = "List methods, datasets, corruptions or matrices, or say all about one of them: its text and its options."
EXAMPLE = """examples:
  polymodal list                          how many there are of each
  polymodal list methods                  a line each
  polymodal list methods low_rank         its text, and its options with types, ranges and defaults
  polymodal list datasets csv_views
  polymodal list methods --plugin my_fusion.py --json
"""
KINDS = ("methods", "datasets", "corruptions", "matrices")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=KINDS, help="what to list (default: how many there are of each)")
    parser.add_argument("name", nargs="?", help="one of them, to be told all about it")
    add_plugins(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    use_data(arguments)
    if arguments.what is None:
        counts = {kind: len(_rows(kind)) for kind in KINDS}
        print(json.dumps(counts, indent=1) if arguments.json else _overview(counts))
        return 0
    if arguments.name is not None:
        about = _about(arguments.what, arguments.name)
        print(json.dumps(about, indent=1) if arguments.json else _spell(about))
        return 0
    rows = _rows(arguments.what)
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return 0
    width = max((len(row["name"]) for row in rows), default=0)
    families = [row.get("family", "") for row in rows]
    for family in dict.fromkeys(sorted(families, key=lambda f: (not f, f))):
        if family:
            print(f"{family}:")
        for row in rows:
            if row.get("family", "") == family:
                print(f"{'  ' if family else ''}{row['name']:<{width}}  {row['summary']}".rstrip())
    return 0


def _overview(counts: dict[str, int]) -> str:
    lines = [f"{count:>4} {kind:<12} polymodal list {kind}" for kind, count in counts.items()]
    return "\n".join([*lines, "One of them, with its options: polymodal list methods NAME"])


def _rows(what: str) -> list[dict[str, str]]:
    if what == "matrices":
        from benchmark.matrix import shipped

        return [{"name": name, "summary": _head(path.read_text())} for name, path in shipped().items()]
    return [vars(entry) for entry in _registry(what).entries()]


def _registry(what: str) -> Registry:
    if what == "methods":
        from methods.registry import methods as registry
    elif what == "datasets":
        from datamodules.registry import datasets as registry
    else:
        from datamodules.corruptions.registry import corruptions as registry
    return registry


def _about(what: str, name: str) -> dict[str, Any]:
    """The text of one thing and its options.

    Raises:
        KeyError: With a suggestion, if there is no such thing.
    """
    if what == "matrices":
        from benchmark.matrix import shipped
        from datamodules.registry import did_you_mean

        if name not in shipped():
            raise KeyError(f"no matrix named {name!r}. {did_you_mean(name, tuple(shipped()))}")
        return {"name": name, "text": shipped()[name].read_text().strip(), "options": []}
    registry = _registry(what)
    cls = registry.get(name)
    about: dict[str, Any] = {"name": name, "text": inspect.cleandoc(cls.__doc__ or ""), "options": options_of(cls)}
    if what == "corruptions":
        from datamodules.corruptions.registry import facts

        about |= {"options": [], "note": f"For modalities of the kind {' or '.join(facts(name).kinds)}."}
    if what == "datasets":
        about["note"] = (
            "Any dataset also takes `absent` (rates at which modalities of training rows go) and, named like a "
            "modality, an encoder before it. Licence, splits and scores: polymodal data info " + name
        )
    return about


def options_of(cls: type) -> list[dict[str, str]]:
    from datamodules.options import hints, parameters

    found = []
    for key, option in parameters(cls).items():
        default = "must be given" if option.default is inspect.Parameter.empty else _short(option.default)
        words = _words(hints(cls)[key]) if key in hints(cls) else "no annotation: nothing can check it"
        space = getattr(cls, "search", {}).get(key)
        found.append({"name": key, "is": words, "default": default, "tuned over": _range(space) if space else ""})
    return found


def _words(hint: Any) -> str:
    from datamodules.options import describe

    return "a method, by name" if hasattr(hint, "from_option") else describe(hint)


def _range(space: object) -> str:
    """What `polymodal tune` may try, in words."""
    facts = vars(space)
    if "values" in facts:
        return ", ".join(map(str, facts["values"]))
    ends = " to ".join(f"{end:g}" for end in facts.values())
    return ends + (", log scale" if type(space).__name__.startswith("Log") else "")


def _short(default: Any) -> str:
    return getattr(default, "name", None) or repr(default)


def _spell(about: dict[str, Any]) -> str:
    lines = [about["name"], "", about["text"]]
    if about["options"]:
        columns = ("name", "is", "default")
        widths = {key: max(len(option[key]) for option in about["options"]) for key in columns}
        lines += ["", f"Options, in a matrix or by --set {about['name']}.KEY=VALUE:"]
        for option in about["options"]:
            name, words = option["name"], option["is"]
            tuned = f"  (tuned over {option['tuned over']})" if option["tuned over"] else ""
            lines.append(f"  {name:<{widths['name']}}  {words:<{widths['is']}}  default {option['default']}{tuned}")
    return "\n".join([*lines, *(["", about["note"]] if "note" in about else [])])


def _head(text: str) -> str:
    """The comment a matrix begins with."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(lines)
