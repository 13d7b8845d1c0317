"""Recordings are corrupted as sound, and features made of what is left."""

import os

import pytest
import torch
from torch import Tensor

from benchmark.conditions import befalling, notes, resolve
from datamodules.base import Split, SplitName
from datamodules.bases.recorded import SOUNDS, Recorded
from datamodules.corruptions import applicable, apply, calibration, catalogue, corrupt, joint, standard, united
from datamodules.corruptions.contract import check
from datamodules.spec import Modality, Task
from leaderboard.record import Condition

SPOKEN = Modality("voice", "sequence", (400, 1))


def recordings(rows: int = 6, length: int = 300, size: int = 400) -> Tensor:
    """Tones of unlike loudness as 16-bit samples, silence behind them."""
    time = torch.arange(size) / 8000
    x = torch.sin(6.283 * torch.linspace(300, 900, rows)[:, None] * time) * torch.linspace(0.05, 0.6, rows)[:, None]
    x[:, length:] = 0
    return (x * 32768).round() / 32768


def at(name: str, parameter: float, x: Tensor) -> Tensor:
    rows = torch.arange(len(x))
    return apply(x[..., None], rows, name=name, parameter=parameter, key=5, modality=SPOKEN).squeeze(-1)


@pytest.mark.parametrize("name", SOUNDS)
def test_contract(name: str) -> None:
    assert check(name) == []
    assert name in standard("sound") and name not in catalogue("sequence")


@pytest.mark.parametrize("decibel", [20.0, 0.0])
def test_noise_has_the_ratio_of_the_spoken_part_and_goes_on_after_it(decibel: float) -> None:
    x = recordings()
    noise = at("sound_noise", decibel, x) - x
    signal = x[:, :300].square().mean(dim=1)
    quiet = slice(0, 4)  # the loud ones are clipped at 0 dB
    for part in (noise[:, :300], noise[:, 300:]):
        measured = 10 * torch.log10(signal / part.square().mean(dim=1))[quiet]
        torch.testing.assert_close(measured, torch.full_like(measured, decibel), atol=1.5, rtol=0)
    assert at("sound_noise", -20.0, x).abs().max() <= 1, "no sample leaves the range of a recording"


def test_a_gap_is_silence_within_what_was_said() -> None:
    x = recordings()
    short, long = (at("sound_mask", share, x) for share in (0.2, 0.5))
    for y, share in ((short, 0.2), (long, 0.5)):
        silent = (y == 0) & (x != 0)
        assert not silent[:, 300:].any()
        spans = [int(s.nonzero().max() - s.nonzero().min()) + 1 for s in silent]
        assert all(abs(span - share * 300) <= 4 for span in spans)  # a tone may be 0 at the ends
        torch.testing.assert_close(y[~silent], x[~silent])


def test_gain_clips_or_rounds() -> None:
    x = recordings(rows=40)
    y = at("sound_gain", 20.0, x)
    louder = y.abs().amax(dim=1) > x.abs().amax(dim=1)
    assert 8 <= louder.sum() <= 32, "a coin per row"
    assert (y[louder].abs() <= 1).all() and (y[louder].abs() > 0.999).any(), "clipped"
    quieter = y[~louder] * 32768
    torch.testing.assert_close(quieter, quieter.round())
    torch.testing.assert_close(quieter, x[~louder] * 3276.8, atol=0.51, rtol=0)


def test_features_are_refused() -> None:
    features = torch.zeros(3, 8, 5)
    for name in SOUNDS:
        with pytest.raises(ValueError, match=r"needs recordings \[rows, samples, 1\]"):
            corrupt(features, torch.arange(3), name=name, severity=1, key=1, modality=Modality("a", "sequence", (8, 5)))


class Voices(Recorded):
    """Loudness of four windows of each recording."""

    sound = "voice"

    def describe(self) -> Task:
        return Task(
            "voices", "1", (Modality("voice", "sequence", (4, 1)), Modality("v", "vector", (2,))), "multiclass", 2
        )

    def recordings(self, split: SplitName) -> Tensor:
        return recordings(rows=20)

    def features(self, recordings: Tensor) -> Tensor:
        return recordings.reshape(len(recordings), 4, -1).square().mean(dim=2, keepdim=True)

    def load(self) -> dict[SplitName, Split]:
        inputs = {"voice": self.features(recordings(20)), "v": torch.zeros(20, 2)}
        names: tuple[SplitName, ...] = ("train", "val", "test")
        return {name: Split(inputs, torch.arange(20) % 2) for name in names}


@pytest.fixture(name="voices")
def voices_fixture(monkeypatch: pytest.MonkeyPatch) -> Voices:
    entry = {"kind": "sequence", "shape": [4, 1], "medium": "sound"}
    entry["severities"] = {"sound_noise": [9, 8, 7, 6, 5], "frame_noise": [5, 4, 3, 2, 1]}
    entry["left_out"] = {"sound_gain": "for a reason"}
    monkeypatch.setattr(calibration, "tables", lambda folder: {"voices": {"voice": entry}})
    return Voices()


def test_the_sweep_corrupts_the_recording(voices: Voices) -> None:
    batch = next(iter(voices.ordered("test")))
    whole = voices.corrupted(batch, "test", "voice", "sound_noise", 5)
    torch.testing.assert_close(whole, voices.heard("test", "sound_noise", 5.0, torch.arange(20)))
    assert not torch.equal(whole, batch.inputs["voice"])
    some = torch.tensor([7, 2])
    part = batch._replace(inputs={n: x[some] for n, x in batch.inputs.items()}, row=some)
    assert torch.equal(voices.corrupted(part, "test", "voice", "sound_noise", 5), whole[some]), "whatever the batch"
    assert torch.equal(voices.corrupted(batch, "test", "voice", "sound_noise", 0), batch.inputs["voice"])
    other = voices.corrupted(batch, "val", "voice", "sound_noise", 5)
    assert not torch.equal(other, whole), "every split has its own noise"
    # Of the others the features are corrupted, as everywhere.
    assert voices.corrupted(batch, "test", "v", "gaussian_noise", 1).shape == (20, 2)


def test_sound_is_tested_where_it_is_at_hand_and_training_is_made_noisy_by_features(voices: Voices) -> None:
    voice = voices.task.modalities[0]
    assert applicable(voice, "voices") == ("sound_noise", "sound_mask", "misaligned")
    assert applicable(voice, "others")[0] == "frame_noise"
    assert (united(voice, "voices"), joint(voice, "voices")) == ("sound_noise", "frame_noise")
    tested = {c.corruption for c in resolve("standard", voices.task) if c.modality == "voice" and c.kind == "single"}
    assert tested == {"sound_noise", "sound_mask"}
    assert befalling(Condition("joint", severity=1), voice, "voices") == "sound_noise"
    assert notes(resolve("standard", voices.task), voices.task) == [
        "voices: severities of v are those of the kind, calibrated on other datasets",
        "voices: not tested: voice sound_gain (for a reason)",
    ]


def test_spoken_digits_are_corrupted_as_recordings() -> None:
    if not os.environ.get("POLYMODAL_DATA"):
        pytest.skip("POLYMODAL_DATA is not set")
    from datamodules.av_digits_speakers import AvDigitsSpeakers

    digits = AvDigitsSpeakers()
    clean = digits.splits["test"].inputs["audio"]
    assert torch.equal(digits.features(digits.recordings("test")), clean), "an untouched recording has its own spectrum"
    batch = next(iter(digits.ordered("test")))
    far = [
        (digits.corrupted(batch, "test", "audio", "sound_noise", s) - batch.inputs["audio"]).square().mean()
        for s in (1, 3, 5)
    ]
    assert 0 < far[0] < far[1] < far[2]
