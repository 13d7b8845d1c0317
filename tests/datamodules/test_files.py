"""Files that several processes share: whole or not at all, and no lock outlives its holder."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datamodules.sources.files import locked, write_rows, write_whole

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import sys, time
from pathlib import Path
from datamodules.sources.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "new" / "table.npy"
    write_whole(file, b"first")
    assert file.read_bytes() == b"first"

    def fails(path: Path) -> None:
        assert path.parent == file.parent and path.suffix == ".npy"  # os.replace within one folder; np.save as asked
        path.write_bytes(b"half")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_whole(file, fails)
    assert file.read_bytes() == b"first"
    write_whole(file, lambda path: np.save(path, np.arange(3)))
    assert np.load(file).tolist() == [0, 1, 2]
    assert list(file.parent.iterdir()) == [file]


def test_a_killed_holder_blocks_nobody(tmp_path: Path) -> None:
    file = tmp_path / "table"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)], env=environment, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        holder.kill()
    with locked(file):
        pass


def test_a_full_disk_is_an_error_and_not_a_signal(tmp_path: Path) -> None:
    """Rows are written, not mapped: a mapped file on a full disk would end the process by SIGBUS."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            write_rows(
                tmp_path / "rows.npy", (4000, 2), "float32", lambda part: np.zeros((len(range(4000)[part]), 2)), 99
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert not (tmp_path / "rows.npy").exists()


def test_rows_go_on_where_they_were(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(10, 2, 3)).astype(np.float32)
    asked: list[int] = []
    told: list[int] = []

    def produce(part: slice, stop: int) -> Any:
        if part.start >= stop:
            raise RuntimeError("killed")
        asked.append(part.start)
        return values[part]

    file = tmp_path / "rows.npy"
    with pytest.raises(RuntimeError, match="killed"):
        write_rows(file, values.shape, "float32", lambda part: produce(part, 8), 4)
    assert not file.exists()
    write_rows(file, values.shape, "float32", lambda part: produce(part, 99), 4, told.append)
    assert asked == [0, 4, 8] and told == [8, 2]
    assert np.array_equal(np.load(file), values) and list(tmp_path.iterdir()) == [file]
    with pytest.raises(ValueError, match=r"rows must have the shape \(4, 2, 3\), got \(4, 2\)"):
        write_rows(tmp_path / "other.npy", values.shape, "float32", lambda part: values[part, :, 0], 4)
