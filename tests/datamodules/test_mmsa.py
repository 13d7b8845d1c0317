"""MMSA: a pickle is converted without being run, and scored as the literature of MOSI and MOSEI does."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score

from benchmark.cli import main
from benchmark.conformance import check_dataset
from datamodules.mmsa import Mmsa
from datamodules.rows.resample import resample
from datamodules.sources.mmsa_file import convert
from datamodules.spec import Modality, Task
from leaderboard import scores
from tests.datamodules.miniature_recordings import make_mmsa

PAIR = (Modality("a", "vector", (4,)), Modality("b", "vector", (4,)))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POLYMODAL_DATA", str(tmp_path))
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_the_command_converts_and_the_dataset_keeps_the_contract(data: Path, capsys: pytest.CaptureFixture) -> None:
    path = make_mmsa(data / "mosi.pkl")
    assert main(["data", "convert", "mmsa", str(path), "--output", str(data / "mmsa"), "--length", "12"]) == 0
    assert "train 40, val 15, test 20 rows of 12 frames" in capsys.readouterr().out
    failures = [str(result) for result in check_dataset("mmsa", Mmsa) if not result.passed]
    assert not failures
    datamodule = Mmsa()
    assert [m.shape for m in datamodule.task.modalities] == [(12, 6), (12, 5), (12, 4)]
    assert (
        datamodule.splits["test"].target[:, 0].tolist()
        == pickle.loads(path.read_bytes())["test"]["regression_labels"].tolist()
    )
    train = datamodule.splits["train"].inputs["audio"][slice(0, 40)]
    torch.testing.assert_close(train.mean(dim=(0, 1)), torch.zeros(5), atol=1e-4, rtol=0)
    torch.testing.assert_close(train.flatten(0, 1).std(dim=0, unbiased=False), torch.ones(5), atol=1e-3, rtol=0)
    assert datamodule.splits["train"].group is not None and datamodule.notes == ()


def test_padding_is_left_out_and_broken_values_are_zero(tmp_path: Path) -> None:
    path = make_mmsa(tmp_path / "x.pkl", aligned=False)
    content = pickle.loads(path.read_bytes())
    content["train"]["audio"][0, 1, 2] = -np.inf
    path.write_bytes(pickle.dumps(content, 4))
    convert(path, tmp_path / "out", 8)
    with np.load(tmp_path / "out" / "train.npz", allow_pickle=False) as arrays:
        for row, length in enumerate(content["train"]["audio_lengths"]):
            x = content["train"]["audio"][row, :length]
            expected = resample(np.where(np.isfinite(x), x, 0), 8)
            np.testing.assert_allclose(arrays["audio"][row], expected, rtol=1e-6)
        assert arrays["video"].tolist()[:6] == ["video0"] * 5 + ["video1"]


def test_a_video_in_two_splits_is_noted(data: Path) -> None:
    path = make_mmsa(data / "x.pkl")
    content = pickle.loads(path.read_bytes())
    content["test"]["id"][0] = "video0$_$9"
    path.write_bytes(pickle.dumps(content, 4))
    convert(path, data / "mmsa", 12)
    assert Mmsa().notes == ("mmsa: 1 videos are in more than one published split",)
    assert Mmsa().splits["test"].group is None


class Runs:
    def __reduce__(self) -> Any:
        return os.system, ("touch was_run",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.pop("valid"), "part 'valid': must be a dictionary in the layout of MMSA, got NoneType"),
        (lambda c: c["test"].pop("audio"), "part 'test': has no 'audio'"),
        (lambda c: c["test"].update(audio=np.zeros((3, 2, 1))), r"'audio': must be \[20, T, D\] numbers, got float64"),
        (lambda c: c["test"].update(vision="x"), r"'vision': must be \[20, T, D\] numbers, got str"),
        (lambda c: c["train"].update(id=["a"]), "'id': must be 40 strings"),
        (lambda c: c["train"].update(regression_labels=["a"] * 40), "must be .N. finite numbers"),
        (lambda c: c["train"].update(audio_lengths=[99] * 40), r"'audio_lengths': must be \[40\] integers up to 12"),
        (lambda c: c["train"].update(raw_text=Runs()), "nothing of it was run: the name (posix|nt).system"),
        (lambda c: c["train"].update(raw_text=np.array(["a", None], dtype=object)), "dtype 'O8'"),
    ],
)
def test_what_is_wrong_with_a_pickle_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, change: Any, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = make_mmsa(tmp_path / "x.pkl")
    content = pickle.loads(path.read_bytes())
    change(content)
    path.write_bytes(pickle.dumps(content, 4))
    with pytest.raises(ValueError, match=said) as caught:
        convert(path, tmp_path / "out", 12)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert "nothing of it was run" not in str(caught.value) or str(caught.value).endswith("take the file as published")
    assert not (tmp_path / "was_run").exists() and not list(tmp_path.glob("out/*.npz"))
    assert main(["data", "convert", "mmsa", str(path), "--output", str(tmp_path / "out")]) != 0
    assert "Traceback" not in capsys.readouterr().err


def test_without_the_folder_or_a_file_of_it(data: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"`folder` is 'mmsa', but there is nothing at .*: put it there"):
        Mmsa().describe()
    convert(make_mmsa(data / "x.pkl"), data / "mmsa", 12)
    (data / "mmsa" / "val.npz").unlink()
    with pytest.raises(FileNotFoundError, match=r"val\.npz: write it with `polymodal data convert mmsa"):
        Mmsa().describe()


# ---- scores ----------------------------------------------------------------------------------------------------------


def literature(pred: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """The published evaluation, counted row by row with scikit-learn."""
    found: dict[str, float] = {"mae": 0.0, "accuracy_5": 0.0, "accuracy_7": 0.0}
    for p, t in zip(pred.tolist(), truth.tolist(), strict=True):
        found["mae"] += abs(p - t) / len(pred)
        for classes, limit in ((5, 2), (7, 3)):
            same = round(min(max(p, -limit), limit)) == round(min(max(t, -limit), limit))
            found[f"accuracy_{classes}"] += same / len(pred)
    found["correlation"] = float(np.corrcoef(pred, truth)[0, 1])
    clear = [i for i, t in enumerate(truth) if t != 0]
    found["accuracy_2"] = accuracy_score(truth >= 0, pred >= 0)
    found["weighted_f1"] = f1_score(truth >= 0, pred >= 0, average="weighted")
    found["accuracy_2_nonzero"] = accuracy_score(truth[clear] > 0, pred[clear] > 0)
    found["weighted_f1_nonzero"] = f1_score(truth[clear] > 0, pred[clear] > 0, average="weighted")
    return found


def intensities(seed: int, rows: int = 90) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    truth = np.round(draw.uniform(-3, 3, rows) * 2) / 2  # halves, where rounding must go to the even number
    truth[:: 3 + seed] = 0
    pred = np.round(1.4 * truth + draw.normal(0, 1.2, rows), 1)
    pred[1::9] = 0
    return pred.astype(np.float32), truth.astype(np.float32)


@pytest.mark.parametrize("seed", range(4))
def test_scores_are_those_of_the_literature(seed: int) -> None:
    pred, truth = intensities(seed)
    goal = Task("t", "1", PAIR, "sentiment", 1).goal
    found = goal.scores(torch.from_numpy(pred)[:, None], torch.from_numpy(truth)[:, None])
    for name, expected in literature(pred, truth).items():
        assert found[name] == pytest.approx(expected, abs=1e-6), name
        assert float(scores.score(name, truth[:, None], pred[:, None])) == pytest.approx(expected, abs=1e-6), name
    assert set(goal.metrics) <= set(found) and set(goal.metrics) == set(literature(pred, truth))


@pytest.mark.parametrize("metric", ["mae", "correlation", "accuracy_2_nonzero", "accuracy_7", "weighted_f1_nonzero"])
def test_a_drawn_row_counts_as_often_as_it_was_drawn(metric: str) -> None:
    pred, truth = intensities(1)
    drawn = np.random.default_rng(5).multinomial(len(pred), np.full(len(pred), 1 / len(pred)), size=3)
    both = np.stack([pred, -pred])[..., None]
    found = scores.score(metric, truth[:, None], both, drawn)
    assert found.shape == (3, 2)
    for i, times in enumerate(drawn):
        rows = np.repeat(np.arange(len(pred)), times)
        for j, one in enumerate((pred, -pred)):
            assert found[i, j] == pytest.approx(literature(one[rows], truth[rows])[metric], abs=1e-6)
    added = scores.contributions(metric, truth[:, None], both)
    assert added.mean(axis=-1) == pytest.approx(scores.score(metric, truth[:, None], both))
    # To first order, leaving a row out changes the score by what the row adds above the mean.
    rows = len(pred)
    for row in (0, 7, 20):
        weights = np.ones(rows)
        weights[row] += 1e-3
        slope = (
            scores.score(metric, truth[:, None], both[0], weights) - scores.score(metric, truth[:, None], both[0])
        ) / 1e-3
        assert rows * slope == pytest.approx(added[0, row] - added[0].mean(), abs=0.02)


def test_the_trivial_sentiment_is_the_median_and_correlates_with_nothing() -> None:
    train, test = (torch.from_numpy(intensities(seed)[1])[:, None] for seed in (0, 1))
    found = Task("t", "1", PAIR, "sentiment", 1).goal.trivial(train, test)
    assert found == pytest.approx(float((test - train.median()).abs().mean()))
    assert Task("t", "1", PAIR, "sentiment", 1, metric="correlation").goal.trivial(train, test) == 0
    assert "must be -3 to 3" in Task("t", "1", PAIR, "sentiment", 1).goal.fault(torch.tensor([[4.0]]))
