"""`polymodal python`: a script of one's own, with our packages before any of the same name."""

from __future__ import annotations

import argparse
import importlib
import os
import runpy
import sys
from pathlib import Path

NAME = "python"
HELP = "Run a script, or a module, with Polymodal's packages before folders of yours that have the same names."
EXAMPLE = """examples:
  polymodal python study.py --my-option 3
  polymodal python -m pytest test_my_fusion.py

Polymodal's packages are called benchmark, datamodules, methods and leaderboard. In a project with a folder `methods` of
its own, plain `python study.py` would import that one.
"""
PACKAGES = ("datamodules", "methods", "leaderboard", "benchmark")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", dest="module", metavar="MODULE", help="run a module, as `python -m` does")
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="FILE ...", help="the script and its arguments")


def run(arguments: argparse.Namespace) -> int:
    command: list[str] = arguments.script
    if arguments.module is None and not command:
        raise ValueError("name a FILE to run, or -m MODULE")
    if arguments.module is None and not Path(command[0]).is_file():
        raise FileNotFoundError(f"no script {command[0]}")
    root = str(Path(__file__).resolve().parents[2])
    own = str(Path.cwd() if arguments.module else Path(command[0]).resolve().parent)
    sys.path[:] = [root, own, *(p for p in sys.path if p not in (root, own))]
    # What the script starts finds ours first, too.
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    for name in PACKAGES:  # now: a test runner may put the user's folder first, and what is imported stays
        importlib.import_module(name)
    if arguments.module is not None:
        sys.argv = [arguments.module, *command]
        runpy.run_module(arguments.module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")
    return 0


def shadows(folder: Path) -> list[Path]:
    """Folders and files there that Python would import instead of a package of ours."""
    root = Path(__file__).resolve().parents[2]
    if folder.resolve() == root:
        return []
    return [p for name in PACKAGES for p in (folder / name, folder / f"{name}.py") if p.exists()]
