"""`polymodal list`: what there is. Reads source and metadata; imports no method, no dataset and no torch."""

from __future__ import annotations

import argparse
import json

from benchmark.arguments import add_json, add_plugins, use_data

NAME = "list"
HELP = "List methods, datasets, corruptions or matrices."
EXAMPLE = """examples:
  polymodal list methods
  polymodal list datasets --json
  polymodal list methods --plugin my_fusion.py
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("methods", "datasets", "corruptions", "matrices"))
    add_plugins(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    use_data(arguments)
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


def _rows(what: str) -> list[dict[str, str]]:
    if what == "matrices":
        from benchmark.matrix import shipped

        return [{"name": name, "summary": _first_comment(path.read_text())} for name, path in shipped().items()]
    if what == "methods":
        from methods.registry import methods as registry
    elif what == "datasets":
        from datamodules.registry import datasets as registry
    else:
        from datamodules.corruptions.registry import corruptions as registry
    return [vars(entry) for entry in registry.entries()]


def _first_comment(text: str) -> str:
    first = text.partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""
