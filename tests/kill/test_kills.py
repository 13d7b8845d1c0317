"""A few kills of `make kill`, and that a lost record would be noticed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmark.conftest import ENVIRONMENT, ROOT
from tests.kill import campaigns

pytestmark = pytest.mark.slow


def test_kills_at_random_moments_change_nothing() -> None:
    """In a process of its own, which forks: the test's has threads."""
    command = [sys.executable, str(ROOT / "tests" / "kill" / "campaigns.py"), "12", "7"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every record equals the undisturbed run's" in done.stdout


def test_what_a_kill_must_not_leave_is_noticed(tmp_path: Path) -> None:
    from tests.leaderboard.conftest import Planted, write_results

    store = write_results(tmp_path / "results", {"concat": Planted()}, ("digits",), seeds=2, rows=40)
    whole = campaigns.outcome(tmp_path)
    first, second = sorted(store.folder.glob("*.json"))
    (store.folder / ".half+x.tmp").write_text("")
    with pytest.raises(campaigns.Broken, match="half files"):
        campaigns.outcome(tmp_path)
    (store.folder / ".half+x.tmp").unlink()
    shutil.copy(first.with_suffix(".npz"), second.with_suffix(".npz"))
    with pytest.raises(campaigns.Broken, match="invalid"):
        campaigns.outcome(tmp_path)
    second.unlink()
    assert campaigns.outcome(tmp_path) != whole
