"""A Slurm job array that runs the cells of a plan, some per task."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

_SCRIPT = """#!/bin/bash
#SBATCH --job-name=polymodal
#SBATCH --array=0-{last}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={devices}
##SBATCH --gpus-per-task={devices}
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@{notice}
#SBATCH --requeue
#SBATCH --output=polymodal-%A_%a.out

# {cells} cells, {per_task} per task. Written by `polymodal plan --format slurm-array`; submit it with `sbatch`.
# On a GPU partition, take one # off the line with --gpus-per-task. A task that is cut off leaves no half record:
# submit the same script again, and only what is missing runs. Slurm sends SIGTERM {notice} s before the end (to this
# process: `exec` below), and running cells get {grace} s of them to end.
set -euo pipefail
cd {folder}
export OMP_NUM_THREADS=1
first=$(( SLURM_ARRAY_TASK_ID * {per_task} ))
exec {command} --cells "$first:$(( first + {per_task} ))" --only-missing --workers 1 --grace {grace} --quiet
"""
_NOTICE = 120  # seconds
_MARGIN = 20  # of them for ending, after the grace


def script(arguments: argparse.Namespace, cells: int, per_task: int, devices: int) -> str:
    """The complete batch script for a command line.

    Args:
        arguments: What was given to `plan`; the same selection is given to `run`.
        cells: Cells of the plan.
        per_task: Cells of one task of the array.
        devices: Devices of one cell.

    Raises:
        ValueError: If there is nothing to run.
    """
    if not cells:
        raise ValueError("the plan has no cells, so there is no job to write")
    return _SCRIPT.format(
        last=-(-cells // per_task) - 1,
        cells=cells,
        per_task=per_task,
        devices=devices,
        notice=_NOTICE,
        grace=_NOTICE - _MARGIN,
        folder=shlex.quote(str(Path.cwd())),
        command=shlex.join([*_program(), "run", *_selection(arguments)]),
    )


def _program() -> list[str]:
    """This installation, not one that happens to be first on the path of a compute node."""
    installed = Path(sys.executable).with_name("polymodal")
    return [str(installed)] if installed.is_file() else [sys.executable, "-m", "benchmark.cli"]


def _selection(arguments: argparse.Namespace) -> list[str]:
    """The arguments that choose cells, as `run` takes them; files by their full path."""
    matrix = [arguments.matrix] if arguments.matrix else []
    if matrix and Path(matrix[0]).is_file():
        matrix = [_full(matrix[0])]
    given = {
        "--methods": ",".join(arguments.methods or ()),
        "--datasets": ",".join(arguments.datasets or ()),
        "--seeds": arguments.seeds,
        "--conditions": arguments.conditions,
        "--devices": arguments.devices,
        "--data": arguments.data and _full(arguments.data),
        "--weights": arguments.weights and _full(arguments.weights),
        "--results": _full(arguments.results),
    }
    # One word each, so that a value may begin with a dash.
    options = [f"{name}={value}" for name, value in given.items() if value]
    options += [f"--set={setting}" for setting in arguments.settings]
    options += [f"--plugin={_full(plugin)}" for plugin in arguments.plugin]
    options += ["--no-baselines"] * arguments.no_baselines
    return matrix + options


def _full(path: str) -> str:
    return str(Path(path).absolute())
