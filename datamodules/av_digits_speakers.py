"""See a digit and hear it from somebody whose voice was never heard in training."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.av_digits import AvDigits
from datamodules.base import Split, SplitName
from datamodules.bases.recorded import Recorded
from datamodules.registry import register
from datamodules.rows.fixed_order import fixed_order, pair_by_class
from datamodules.rows.standardise import moments, standardise
from datamodules.sources.folders import data_folder
from datamodules.sources.fsdd import WINDOW, list_recordings, log_mel, parse_wave
from datamodules.sources.mnist import as_input, mnist
from datamodules.spec import Modality, Task

FRAMES, BANDS = 64, 32
HOP = 100  # 12.5 ms: 64 frames are 0.8 s, and 98 % of the recordings are shorter
SAMPLES = WINDOW + (FRAMES - 1) * HOP  # that the frames see
SPEAKERS: dict[SplitName, tuple[str, ...]] = {
    "train": ("george", "jackson", "lucas", "nicolas"),
    "val": ("theo",),
    "test": ("yweweler",),
}


@register("av_digits_speakers")
class AvDigitsSpeakers(Recorded):
    """MNIST image and spoken digit (log-mel) with speakers kept apart: 2,000 pairs of 4 speakers, then 500 and 500.

    Read from `fsdd/recordings` and `MNIST/raw` below `POLYMODAL_DATA`. Speakers are taken in alphabetical order: four
    for training, one for validation, one for test. Test images are MNIST test images; training and validation share
    MNIST's training images without a common one. The recordings themselves can be corrupted (`sound_noise`,
    `sound_mask`, `sound_gain`), and their spectra made of that.
    """

    version = "1"
    sha256 = "3e90b1f3bb5b259bc636ae1dc080800b91e57910c7e49f2d1772fdec25fac1d7"
    licence, citation = AvDigits.licence, AvDigits.citation
    source = "folders: fsdd/recordings/*.wav and MNIST/raw"
    sound = "audio"

    def describe(self) -> Task:
        modalities = (
            Modality("image", "image", (1, 28, 28)),
            Modality("audio", "sequence", (FRAMES, BANDS)),
        )
        return Task("av_digits_speakers", self.version, modalities, "multiclass", 10, class_names=tuple("0123456789"))

    def load(self) -> dict[SplitName, Split]:
        return dict(_load(data_folder("av_digits_speakers")))

    def recordings(self, split: SplitName) -> Tensor:
        folder = data_folder("av_digits_speakers")
        samples, digit, speaker = _read_samples(folder / "fsdd" / "recordings")
        rows, _ = _pair(_heard(speaker), digit, folder)[split]
        return torch.from_numpy(np.stack([_padded(samples[row]) for row in rows]))

    def features(self, recordings: Tensor) -> Tensor:
        spectra = np.stack([_spectrum(samples) for samples in recordings.double().numpy()])
        return torch.from_numpy(standardise(spectra, *_moments(data_folder("av_digits_speakers"))))


@cache
def _load(folder: Path) -> dict[SplitName, Split]:
    spectra, digit, speaker = _read_spectra(folder / "fsdd" / "recordings")
    audio = standardise(spectra, *_moments(folder))
    voice = np.unique(speaker, return_inverse=True)[1]
    splits: dict[SplitName, Split] = {}
    for name, (rows, image) in _pair(_heard(speaker), digit, folder).items():
        inputs = {"image": torch.from_numpy(image), "audio": torch.from_numpy(audio[rows])}
        splits[name] = Split(inputs, torch.from_numpy(digit[rows]), group=torch.from_numpy(voice[rows]))
    return splits


@cache
def _moments(folder: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and deviation of each band, over the frames of the training speakers."""
    spectra, _, speaker = _read_spectra(folder / "fsdd" / "recordings")
    return moments(spectra[_heard(speaker)["train"]].reshape(-1, BANDS))


def _heard(speaker: NDArray[np.str_]) -> dict[SplitName, NDArray[np.int64]]:
    """The recordings of each split."""
    return {name: np.flatnonzero(np.isin(speaker, speakers)) for name, speakers in SPEAKERS.items()}


def _pair(
    heard: dict[SplitName, NDArray[np.int64]], digit: NDArray[np.int64], folder: Path
) -> dict[SplitName, tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """For each split its recordings and an image of the same digit for each; no image twice."""
    pairs: dict[SplitName, tuple[NDArray[np.int64], NDArray[np.float32]]] = {}
    halves: tuple[tuple[bool, tuple[SplitName, ...]], ...] = ((True, ("train", "val")), (False, ("test",)))
    for from_training, names in halves:
        images, image_digit = mnist(folder, train=from_training)
        together = np.concatenate([heard[name] for name in names])
        rows, image_rows = pair_by_class(digit[together], image_digit, "av_digits_speakers")
        rows = together[rows]
        for name in names:
            # In an order without meaning, instead of digit by digit.
            here = fixed_order(np.flatnonzero(np.isin(rows, heard[name])), "av_digits_speakers/rows")
            pairs[name] = rows[here], as_input(images[image_rows[here]])
    return pairs


@cache
def _read_spectra(folder: Path) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.str_]]:
    """`[N, FRAMES, BANDS]` log-mel spectra, digit and speaker of every recording."""
    samples, digit, speaker = _read_samples(folder)
    return np.stack([_spectrum(own) for own in samples]), digit, speaker


def _spectrum(samples: NDArray[np.float64]) -> NDArray[np.float32]:
    return log_mel(samples, BANDS, FRAMES, HOP)


def _padded(samples: NDArray[np.float64]) -> NDArray[np.float32]:
    """`[SAMPLES]`: what the frames see of a recording; 16-bit samples are exact in single precision."""
    padded = np.zeros(SAMPLES, dtype=np.float32)
    padded[: min(SAMPLES, len(samples))] = samples[:SAMPLES]
    return padded


def _read_samples(folder: Path) -> tuple[list[NDArray[np.float64]], NDArray[np.int64], NDArray[np.str_]]:
    """Samples, digit and speaker of every recording."""
    recordings = list_recordings(folder)
    samples = [parse_wave(spoken.path.read_bytes()) for spoken in recordings]
    digit = np.array([spoken.digit for spoken in recordings])
    speaker = np.array([spoken.speaker for spoken in recordings])
    known = {name for speakers in SPEAKERS.values() for name in speakers}
    if set(speaker.tolist()) != known:
        raise ValueError(f"{folder} must hold recordings of {sorted(known)}, got {sorted(set(speaker.tolist()))}")
    return samples, digit, speaker
