"""What several tests of datasets start from."""

from pathlib import Path

import pytest


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of the user's data, and a cache of its own."""
    monkeypatch.setenv("POLYMODAL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"
