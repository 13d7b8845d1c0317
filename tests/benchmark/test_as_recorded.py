"""`polymodal data show`: a person sees words, curves and bodies, whatever summary of them a method gets."""

from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from scipy.io import loadmat

from benchmark.pictures.contact_sheet import draw_one_by_one
from datamodules.base import DataModule, Skeleton
from datamodules.mmsa import Mmsa
from datamodules.mosi import Mosi
from datamodules.rows.as_recorded import AsRecorded
from datamodules.sources.mmsa_file import convert
from datamodules.utd_mhad import HIP, UtdMhad
from tests.datamodules.miniature_recordings import make_mmsa, make_mosi, make_utd_mhad


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POLYMODAL_DATA", str(tmp_path))
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "cache"))
    return tmp_path


def sheet(datamodule: DataModule, monkeypatch: pytest.MonkeyPatch, path: Path) -> Figure:
    """The figure that is saved as the picture of three test rows."""
    kept: list[Figure] = []
    saved = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (kept.append(self), saved(self, *a, **k))[1])
    draw_one_by_one(datamodule, path, "test", 3)
    return kept[0]


def test_actions_are_curves_and_bodies_of_the_recording(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_utd_mhad(data)
    datamodule = UtdMhad()
    assert isinstance(datamodule, AsRecorded)
    recorded = datamodule.as_recorded("test", 6)  # the third action of person 4
    body = recorded["skeleton"]
    assert isinstance(body, Skeleton)
    joints = torch.from_numpy(loadmat(folder / "Skeleton" / "a3_s4_t1_skeleton.mat")["d_skel"])
    expected = joints - joints[HIP].mean(dim=-1)[None, :, None]
    torch.testing.assert_close(body.joints, expected.permute(2, 0, 1))
    axes = sheet(datamodule, monkeypatch, data / "x.png").axes
    assert all(len(axis.lines) == 6 and not axis.patches for axis in axes[::2])  # a curve a channel, no bars
    assert all(len(axis.lines) == 5 * 19 for axis in axes[1::2])  # five frames of nineteen bones


def test_what_was_said_is_written_in_its_order(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_mosi(data)
    axes = sheet(Mosi(), monkeypatch, data / "x.png").axes
    written = {text.get_text() for axis in axes[::2] for text in axis.texts}
    assert written <= {f"the film number{n} was {how}" for n in range(8, 12) for how in ("great", "awful")} and written
    assert not any(axis.patches for axis in axes[::2]) and all(axis.patches for axis in axes[1::2])


def test_sentences_of_mmsa_are_kept_for_people(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(make_mmsa(data / "x.pkl"), data / "mmsa", 12)
    axes = sheet(Mmsa(), monkeypatch, data / "x.png").axes
    assert [axis.texts[0].get_text() for axis in axes[::3]] == ["sentence 0", "sentence 1", "sentence 2"]


def test_a_summary_without_its_recording_is_drawn_as_it_is(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_mosi(data)
    monkeypatch.setattr(Mosi, "as_recorded", lambda self, split, row: {})
    axes = sheet(Mosi(), monkeypatch, data / "x.png").axes
    assert all(axis.patches for axis in axes)
