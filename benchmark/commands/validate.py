"""`polymodal validate`: every record of a results folder against the schema."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from benchmark.arguments import add_data, add_folders, add_json, folders_of, use_data
from benchmark.errors import printable

if TYPE_CHECKING:
    from leaderboard.store import Store, Verdict

NAME = "validate"
HELP = "Check every record of results folders: against the schema, and that its predictions give its scores."
EXAMPLE = """examples:
  polymodal validate
  polymodal validate results other/results --json
  polymodal validate --against-data    also: targets, rows and trivial scores are those of the datasets at hand

Exit code: 0 all valid, 1 otherwise.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folders(parser)
    add_json(parser)
    parser.add_argument("--against-data", action="store_true",
                        help="compare targets, rows and trivial scores with the datasets at hand")  # fmt: skip
    add_data(parser)


def run(arguments: argparse.Namespace) -> int:
    from leaderboard.store import Store

    verdicts: list[Verdict] = []
    for folder in folders_of(arguments):
        store = Store(folder)
        if not store.folder.is_dir():
            raise FileNotFoundError(f"no results folder {folder}")
        own = store.verify()
        if arguments.against_data:
            use_data(arguments)
            own, unknown = _against_data(store, own)
            for dataset, why in unknown.items():
                print(printable(f"! not compared with {dataset}, which is not at hand: {why}"), file=sys.stderr)
        verdicts += own
    valid, failed = (sum(v.status == status for v in verdicts) for status in ("ok", "failed"))
    findings = [{"file": str(v.path), "problem": v.problem} for v in verdicts if v.status == "invalid"]
    if arguments.json:
        print(json.dumps({"valid": valid, "failed": failed, "invalid": findings}, indent=1))
    else:
        for finding in findings:
            print(printable(f"{finding['file']}: {finding['problem']}"), file=sys.stderr)
        print(f"{valid} valid, {failed} failed cells, {len(findings)} invalid")
    return 1 if findings else 0


def _against_data(store: Store, verdicts: list[Verdict]) -> tuple[list[Verdict], dict[str, str]]:
    """The verdicts, what is not of the dataset at hand refused; and why a dataset is not at hand."""
    from benchmark.verification import against_data
    from leaderboard.store import Verdict

    found: list[Verdict] = []
    unknown: dict[str, str] = {}
    for verdict in verdicts:
        record = store.read(verdict.path.stem) if verdict.status == "ok" else None
        problems: tuple[str, ...] = ()
        if record is not None and record.cell.dataset not in unknown:
            try:
                problems = tuple(against_data(record, store))
            except (OSError, ValueError, KeyError, ImportError) as error:
                unknown[record.cell.dataset] = str(error).partition("\n")[0]
        found.append(Verdict(verdict.path, "invalid", "; ".join(problems)) if problems else verdict)
    return found, unknown
