"""The Ray executor: the same records as on one machine, workers that die, cells that kill them, stopping."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ray._private.node import Node
from ray.cluster_utils import Cluster

from benchmark.executors.ray import code_digest
from tests.benchmark.conftest import ENVIRONMENT, ROOT, by_method, numbers, until, waiting

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.slow
def test_the_same_records_as_the_local_executor(polymodal: Call, tmp_path: Path) -> None:
    part = ("--methods", "concat,late,low_rank", "--datasets", "interactions_xor,digit_halves", "--seeds", 1)
    for executor in ("local", "ray"):
        where = ("--executor", executor, "--workers", 1, "--results", f"results_{executor}", "--quiet")
        done = polymodal("run", "quick", *part, *where)
        assert done.returncode == 0, done.stderr
        assert "10 cells: 10 run" in done.stdout, "with two unimodal baselines on each dataset"
    found = numbers(tmp_path / "results_ray")
    assert len(found) == 10
    assert found == numbers(tmp_path / "results_local")


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_a_poisoned_cell_fails_after_its_tries(
    running: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = running("--executor", "ray", "--methods", "waits,dies,steady", "--workers", 1, "--tries", 2)
    until(lambda: waiting(tmp_path), process)
    (victim,) = waiting(tmp_path)
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(waiting(tmp_path)) == 2, process)
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=1500)
    assert process.returncode == 1, err
    assert "3 cells: 2 run, 0 cached, 1 failed, 0 left" in out
    records = by_method(tmp_path / "results")
    assert {name: r.status for name, r in records.items()} == {"waits": "ok", "dies": "failed", "steady": "ok"}
    assert records["dies"].error and "died in the middle of this cell, 2 times" in records["dies"].error.message
    assert len(set((tmp_path / "deaths").read_text().split())) == 2, "two tries, two processes"


@pytest.mark.slow
def test_the_cell_of_a_lost_node_runs_on_another(running: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    """A head without CPUs and two nodes with one each; all processes of the node that runs the cell are killed."""
    small = {"object_store_memory": 100 * 2**20}
    # Addresses of this machine alone, none of them 127.0.0.1, which Ray takes for the machine's outward address.
    head = {"node_ip_address": "127.0.0.2", "num_cpus": 0, "include_dashboard": False, **small}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        added = [cluster.add_node(node_ip_address=f"127.0.0.{i}", num_cpus=1, **small) for i in (3, 4)]
        nodes = {_raylet(node): node for node in added}
        process = running("--executor", "ray", "--ray-address", cluster.address, "--methods", "waits,steady")
        until(lambda: waiting(tmp_path), process)
        (worker,) = waiting(tmp_path)
        assert os.getpriority(os.PRIO_PROCESS, worker) == os.getpriority(os.PRIO_PROCESS, 0), "cells are the work"
        cluster.remove_node(nodes.pop(_parent(worker)), allow_graceful=False)
        until(lambda: len(waiting(tmp_path)) == 2, process)
        (second,) = (w for w in waiting(tmp_path) if w != worker)
        assert _parent(second) in nodes
        until(lambda: _state(worker) in ("gone", "Z"), process)  # it follows its node
        (tmp_path / "go").touch()
        out, err = process.communicate(timeout=900)
    finally:
        cluster.shutdown()
    assert process.returncode == 0, err
    assert "2 cells: 2 run, 0 cached, 0 failed, 0 left" in out
    assert {name: r.status for name, r in by_method(tmp_path / "results").items()} == {"waits": "ok", "steady": "ok"}


@pytest.mark.slow
def test_a_hung_cell_is_ended_and_sigterm_cuts_off_the_other(
    running: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = running(
        "--executor", "ray", "--methods", "hangs,waits,steady", "--workers", 1, "--cell-timeout", 45, "--grace", 0.5
    )
    until(lambda: waiting(tmp_path), process)
    process.terminate()
    out, _ = process.communicate(timeout=900)
    assert process.returncode == 128 + signal.SIGTERM
    assert "3 cells: 0 run, 0 cached, 1 failed, 2 left" in out
    (record,) = by_method(tmp_path / "results").values()
    assert record.error and record.error.message == "timed out after 45 s (--cell-timeout)"
    assert not any(Path(f"/proc/{worker}").exists() for worker in waiting(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "hide", "message"),
    [
        ("", True, "pip install 'polymodal[ray]'"),
        ("--workers 0", False, "--workers 0 runs in this process, so not on a Ray cluster"),
    ],
)
def test_what_is_missing_is_said_first(tmp_path: Path, arguments: str, hide: bool, message: str) -> None:
    code = f"import sys; sys.modules.update({{'ray': None}} if {hide} else {{}}); from benchmark.cli import main; "
    code += f"sys.exit(main('run --executor ray {arguments}'.split()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_other_code_is_noticed(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text("x = 1\n")
    before = code_digest([str(plugin)])
    assert before == code_digest([str(plugin)]) != code_digest([])
    plugin.write_text("x = 2\n")
    assert code_digest([str(plugin)]) != before
    assert (ROOT / "benchmark" / "executors" / "ray.py").is_file()


def _raylet(node: Node) -> int:
    return node.all_processes["raylet"][0].process.pid


def _parent(process: int) -> int:
    return int(_status(process, "PPid"))


def _state(process: int) -> str:
    try:
        return _status(process, "State")
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


def _status(process: int, field: str) -> str:
    """Of a living or dead process; a state is one letter."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{field}:"))
