"""Audio-visual digits seen and heard badly, so that each modality has something to add."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from datamodules.av_digits import COEFFICIENTS, FRAMES, AvDigits, load_pairs, make_split
from datamodules.base import Split, SplitName
from datamodules.registry import register
from datamodules.spec import Modality, Task

# Frozen with the version.
IMAGE_NOISE = 0.23  # of a pixel between 0 and 1, after the mean over 4x4 pixels
AUDIO_NOISE = 1.5  # in deviations of each coefficient
SEED = 20260


@register("av_digits_degraded")
class AvDigitsDegraded(AvDigits):
    """The pairs of `av_digits` with images of 7x7 pixels and noise on both modalities, frozen with the version.

    The noise belongs to the data: every method sees the same, in training too. It is drawn from NumPy's `RandomState`,
    whose stream is frozen by NumPy's policy, and rounded to 1/1024 so that it is bit-equal on every machine.
    """

    version = "1"
    sha256 = "75cda7d8c1ba9aab1c5d905bd521eeb14c9049dad99f2357d161d1f01454b91d"

    def describe(self) -> Task:
        modalities = (
            Modality("image", "image", (1, 7, 7), range=None),
            Modality("audio", "sequence", (FRAMES, COEFFICIENTS)),
        )
        return Task("av_digits_degraded", self.version, modalities, "multiclass", 10, class_names=tuple("0123456789"))

    def load(self) -> dict[SplitName, Split]:
        pairs = load_pairs("av_digits_degraded")
        small = pairs.image.reshape(-1, 1, 7, 4, 7, 4).mean(axis=(3, 5))
        image = _noisy(small, IMAGE_NOISE, SEED)
        # What follows a recording is filling, not silence: it stays zero.
        audio = np.where(pairs.heard, _noisy(pairs.audio, AUDIO_NOISE, SEED + 1), np.float32(0))
        return {name: make_split(pairs, image, audio, rows) for name, rows in pairs.rows.items()}


def _noisy(x: NDArray[np.float32], deviation: float, seed: int) -> NDArray[np.float32]:
    noise = np.random.RandomState(seed).standard_normal(x.shape)
    return (np.round((x + deviation * noise) * 1024) / 1024).astype(np.float32)
