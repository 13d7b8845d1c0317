"""`polymodal validate`: every record of a results folder against the schema."""

from __future__ import annotations

import argparse
import json
import sys

NAME = "validate"
HELP = "Check every record of results folders against the schema, and that its predictions are there."
EXAMPLE = """examples:
  polymodal validate
  polymodal validate results other/results --json

Exit code: 0 all valid, 1 otherwise.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", nargs="*", default=["results"], metavar="DIR", help="folders (default: results)")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    from leaderboard.store import Store

    findings: list[dict[str, str]] = []
    valid = failed = 0
    for folder in arguments.results:
        store = Store(folder)
        if not store.folder.is_dir():
            raise FileNotFoundError(f"no results folder {folder}")
        reading = store.scan()
        findings += [{"file": str(path), "problem": problem} for path, problem in reading.invalid]
        for record in reading.records:
            if record.status == "failed":
                failed += 1
                continue
            problem = _predictions_problem(store, record.cell, [c.id for c in record.conditions])
            if problem:
                findings.append({"file": str(store.path(record.cell, ".npz")), "problem": problem})
            else:
                valid += 1
    if arguments.json:
        print(json.dumps({"valid": valid, "failed": failed, "invalid": findings}, indent=1))
    else:
        for finding in findings:
            print(f"{finding['file']}: {finding['problem']}", file=sys.stderr)
        print(f"{valid} valid, {failed} failed cells, {len(findings)} invalid")
    return 1 if findings else 0


def _predictions_problem(store: object, cell: str, conditions: list[str]) -> str | None:
    import zipfile

    from leaderboard.store import Store

    assert isinstance(store, Store)
    try:
        arrays = store.predictions(cell)
    except (OSError, ValueError, zipfile.BadZipFile, KeyError) as error:
        return f"predictions cannot be read: {error}"
    if "target" not in arrays:
        return "predictions have no `target`"
    for condition in conditions:
        if f"pred:{condition}" not in arrays:
            return f"no predictions for condition {condition}"
        found, rows = len(arrays[f"pred:{condition}"]), len(arrays["target"])
        if found != rows:
            return f"condition {condition}: {found} predictions for {rows} rows"
    return None
