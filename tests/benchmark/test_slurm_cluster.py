"""The job array on a real Slurm: killed, stopped and submitted again, with the exit codes that are documented."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leaderboard.store import Store
from tests.benchmark.conftest import ENVIRONMENT, FAULTY, waiting, write_matrix
from tests.benchmark.slurm_cluster import Cluster, NoSlurm, cluster

pytestmark = pytest.mark.slow


@pytest.fixture
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        with cluster(tmp_path_factory.mktemp("slurm")) as up:
            yield up
    except NoSlurm as reason:
        pytest.skip(str(reason))


def until(condition: Callable[[], object], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.1)


def test_killed_stopped_and_submitted_again(slurm: Cluster, polymodal: Callable[..., object], tmp_path: Path) -> None:
    """Two tasks of two cells: `steady` ends, `waits` is killed, then stopped, then let go."""
    write_matrix(tmp_path / "matrix.toml", ["waits", "steady"], seeds=2, epochs=1)
    polymodal(
        "plan", "matrix.toml", "--plugin", FAULTY, "--format", "slurm-array", "--per-task", 2, "--output", "job.sh"
    )
    slurm.environment |= {"PYTHONPATH": ENVIRONMENT["PYTHONPATH"], "POLYMODAL_TEST_FOLDER": str(tmp_path)}
    script = tmp_path / "job.sh"

    first = slurm.submit(script)
    until(lambda: waiting(tmp_path))
    assert slurm.ended(first, 1) == ("COMPLETED", "0:0")
    slurm.call("scancel", "--full", "--signal=KILL", f"{first}_0")
    state, code = slurm.ended(first, 0)
    assert (state, code) != ("COMPLETED", "0:0")
    assert _methods(tmp_path) == ["steady", "steady"], "a cell that is cut off leaves no record"
    (worker,) = waiting(tmp_path)
    until(lambda: not Path(f"/proc/{worker}").exists(), seconds=30)

    second = slurm.submit(script)
    until(lambda: len(waiting(tmp_path)) == 2)
    slurm.call("scancel", "--batch", "--signal=TERM", f"{second}_0")
    until(lambda: "stopping" in _said(tmp_path, second))
    (tmp_path / "go").touch()
    assert slurm.ended(second, 0) == ("FAILED", "143:0"), "128 + SIGTERM: stopped with a cell left"
    assert slurm.ended(second, 1) == ("COMPLETED", "0:0")
    assert _methods(tmp_path) == ["steady", "steady", "waits"]

    third = slurm.submit(script)
    assert [slurm.ended(third, task) for task in (0, 1)] == [("COMPLETED", "0:0")] * 2
    assert _methods(tmp_path) == ["steady", "steady", "waits", "waits"]
    assert {verdict.status for verdict in Store(tmp_path / "results").verify()} == {"ok"}


def _methods(folder: Path) -> list[str]:
    return sorted(record.cell.method for record in Store(folder / "results").scan().records)


def _said(folder: Path, job: str) -> str:
    path = folder / f"polymodal-{job}_0.out"
    return path.read_text() if path.exists() else ""


def test_nobody_fails_where_there_is_no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr("tests.benchmark.slurm_cluster._PROGRAMS", ("sbatch_of_nobody",))
    with pytest.raises(NoSlurm, match="Slurm is not installed: no sbatch_of_nobody"), cluster(tmp_path):
        pass
