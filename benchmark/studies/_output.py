"""Where a study leaves what it found: a folder of its own, figures and numbers in it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from datamodules.sources.files import write_whole


def add_output(parser: argparse.ArgumentParser, study: str) -> None:
    """Declare `--out`."""
    folder = Path("results/studies") / study
    parser.add_argument("--out", type=Path, default=folder, metavar="DIR",
                        help=f"folder of figures and numbers (default: {folder})")  # fmt: skip


def write_numbers(path: Path, found: Any) -> str:
    """Write what was found, dataclasses as tables, into a folder that is made; the JSON that was written."""
    text = json.dumps(found, indent=1, default=asdict)
    write_whole(path, f"{text}\n".encode())
    return text
