"""`polymodal verify`: whether a submission is what it says."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmark.arguments import add_json, at_least

NAME = "verify"
HELP = "Check a submission cell by cell: scores from predictions, data, protocol, completeness. Runs its plugin's code."
EXAMPLE = """examples:
  polymodal verify my-fusion
  polymodal verify my-fusion --rerun 3 --seed 7      also trains three cells again and compares

Exit code: 0 accepted, 1 refused.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("folder", type=Path, help="of `polymodal submit`")
    parser.add_argument("--matrix", default="reference", help="what it must be complete for (default: reference)")
    parser.add_argument("--rerun", type=at_least(0), default=0, metavar="K", help="cells to train again")
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="N", help="which ones is drawn with this seed")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Check and say."""
    from benchmark.verification import verify
    from leaderboard.export import read
    from leaderboard.reference import REFERENCE

    published = read(REFERENCE).records if REFERENCE.is_file() else ()
    found = verify(args.folder, args.matrix, args.rerun, args.seed, published)
    if args.json:
        cells = [{"cell": v.cell, "problems": list(v.problems), "rerun": v.cell in found.rerun} for v in found.cells]
        said = {"accepted": found.accepted, "cells": cells, "problems": list(found.folder_problems)}
        print(json.dumps(said, indent=1))
        return int(not found.accepted)
    for verdict in found.cells:
        again = ", trained again" if verdict.cell in found.rerun else ""
        print(f"{verdict.cell}: {'; '.join(verdict.problems) if verdict.problems else 'ok'}{again}")
    for problem in found.folder_problems:
        print(f"! {problem}")
    refused = sum(bool(v.problems) for v in found.cells)
    word = "accepted" if found.accepted else "REFUSED"
    print(f"{word}: {len(found.cells)} cells, {refused} refused, {len(found.folder_problems)} other problems")
    return int(not found.accepted)
