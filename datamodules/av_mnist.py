"""AV-MNIST: a digit seen with most of its energy taken away, and heard in noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from datamodules.base import DataModule, Gathered, Split, SplitName
from datamodules.npz_views import channel_moments
from datamodules.registry import register
from datamodules.sources.folders import find_data
from datamodules.spec import Modality, Task

ROWS = {"train": 60_000, "test": 10_000}
HELD_OUT = 12  # the last twelfth of the published training rows (5,000) chooses the epoch
SIDES = {"image": 28, "audio": 112}


@register("av_mnist")
class AvMnist(DataModule):
    """AV-MNIST: 70,000 pairs of a degraded MNIST image and a noisy spectrogram of a spoken digit, 10 classes.

    In `folder`: `image/{train,test}_data.npy` [N, 784], `audio/{train,test}_data.npy` [N, 112, 112] and
    `{train,test}_labels.npy`. The first 55,000 training rows train and the last 5,000 validate, as usual. Both
    modalities are images of one channel, standardised by the training rows, and read from disk batch by batch.

    Args:
        folder: Absolute or below POLYMODAL_DATA.
    """

    version = "1"
    licence = "research; MNIST and TIDIGITS have terms of their own"
    citation = (
        "V. Vielzeuf, A. Lechervy, S. Pateux and F. Jurie, CentralNet: a Multilayer Approach for Multimodal Fusion, "
        "ECCV workshop (2018)."
    )
    source = "folder: avmnist, in the published layout"

    def __init__(self, *, folder: str = "avmnist") -> None:
        super().__init__()
        self.folder = folder

    def describe(self) -> Task:
        modalities = tuple(Modality(name, "image", (1, side, side), range=None) for name, side in SIDES.items())
        return Task("av_mnist", self.version, modalities, "multiclass", 10, class_names=tuple("0123456789"))

    @property
    def notes(self) -> tuple[str, ...]:
        folder = find_data(self.folder, "folder")
        found = {part: len(_labels(folder, part)) for part in ROWS}
        return () if found == ROWS else (f"av_mnist: expected {ROWS} pairs, the folder has {found}",)

    def load(self) -> dict[SplitName, Split]:
        folder = find_data(self.folder, "folder")
        target = {part: _labels(folder, part) for part in ROWS}
        kept = len(target["train"]) - max(1, len(target["train"]) // HELD_OUT)
        rows: dict[SplitName, tuple[str, NDArray[np.int64]]] = {
            "train": ("train", np.arange(kept)),
            "val": ("train", np.arange(kept, len(target["train"]))),
            "test": ("test", np.arange(len(target["test"]))),
        }
        stored = {(name, part): _array(folder, name, part, len(target[part])) for name in SIDES for part in ROWS}
        scales = {}
        for name in SIDES:
            mean, deviation = channel_moments(stored[name, "train"], rows["train"][1], "image")
            scales[name] = torch.from_numpy(1 / deviation).float(), torch.from_numpy(-mean / deviation).float()
        splits: dict[SplitName, Split] = {}
        for split, (part, own) in rows.items():
            index = torch.from_numpy(own)
            inputs = {name: Gathered(torch.from_numpy(stored[name, part]), index, *scales[name]) for name in SIDES}
            splits[split] = Split(inputs, torch.from_numpy(target[part][own]))
        return splits


def _array(folder: Path, name: str, part: str, rows: int) -> NDArray[np.generic]:
    """`[N, 1, side, side]`, where it is stored."""
    path, side = folder / name / f"{part}_data.npy", SIDES[name]
    x = _load(path)
    if x.dtype.kind not in "uif" or x.dtype == np.float16 or x.size != rows * side * side or len(x) != rows:
        raise ValueError(f"{path} must hold {rows} images of {side}x{side} numbers, got {x.dtype} {x.shape}")
    return x.reshape(rows, 1, side, side)


def _labels(folder: Path, part: str) -> NDArray[np.int64]:
    path = folder / f"{part}_labels.npy"
    y = _load(path)
    if y.ndim != 1 or not len(y) or y.dtype.kind not in "uif" or not np.isin(y, np.arange(10)).all():
        raise ValueError(f"{path} must hold [N] digits 0 to 9, got {y.dtype} {y.shape}")
    return y.astype(np.int64)


def _load(path: Path) -> NDArray[np.generic]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}: put the arrays of AV-MNIST there")
    try:
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is not a .npy file of numbers (half copied?): {error}") from None
