"""`polymodal validate`: every record of a results folder against the schema."""

from __future__ import annotations

import argparse
import json
import sys

from benchmark.arguments import add_folders, add_json, folders_of
from benchmark.errors import printable

NAME = "validate"
HELP = "Check every record of results folders: against the schema, and that its predictions give its scores."
EXAMPLE = """examples:
  polymodal validate
  polymodal validate results other/results --json

Exit code: 0 all valid, 1 otherwise.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folders(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from leaderboard.store import Store, Verdict

    verdicts: list[Verdict] = []
    for folder in folders_of(arguments):
        store = Store(folder)
        if not store.folder.is_dir():
            raise FileNotFoundError(f"no results folder {folder}")
        verdicts += store.verify()
    valid, failed = (sum(v.status == status for v in verdicts) for status in ("ok", "failed"))
    findings = [{"file": str(v.path), "problem": v.problem} for v in verdicts if v.status == "invalid"]
    if arguments.json:
        print(json.dumps({"valid": valid, "failed": failed, "invalid": findings}, indent=1))
    else:
        for finding in findings:
            print(printable(f"{finding['file']}: {finding['problem']}"), file=sys.stderr)
        print(f"{valid} valid, {failed} failed cells, {len(findings)} invalid")
    return 1 if findings else 0
