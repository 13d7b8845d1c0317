"""Sentiment intensity from text, audio and vision, in the layout of MMSA."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from datamodules.base import SPLITS, DataModule, Gathered, Split, SplitName
from datamodules.npz_views import channel_moments
from datamodules.registry import register
from datamodules.rows.as_recorded import Original
from datamodules.sources.array_file import ArrayFile
from datamodules.sources.folders import find_data
from datamodules.sources.mmsa_file import MODALITIES
from datamodules.spec import Modality, Task

SentimentMetric = Literal[
    "mae", "correlation", "accuracy_2", "accuracy_2_nonzero", "accuracy_5", "accuracy_7", "weighted_f1",
    "weighted_f1_nonzero",
]  # fmt: skip


@register("mmsa")
class Mmsa(DataModule):
    """MOSI, MOSEI or SIMS as MMSA publishes them: text, audio and vision sequences, intensity from -3 to 3.

    Reads a folder that `polymodal data convert mmsa FILE.pkl --output FOLDER` has written. The published split is kept.
    Each modality is standardised per channel with the training rows. Acc-5 and Acc-7 are those of labels from -3 to 3
    (MOSI, MOSEI); the ones of SIMS go from -1 to 1, and its literature cuts them elsewhere.

    Args:
        folder: Absolute or below POLYMODAL_DATA.
        metric: Of the scores of sentiment, the one that selects and ranks.
    """

    licence = "free for research; see the pages of CMU-MOSI, CMU-MOSEI and CH-SIMS"
    citation = (
        "H. Mao et al., M-SENA: An Integrated Platform for Multimodal Sentiment Analysis, ACL (2022), and the "
        "dataset's own paper (Zadeh et al. 2016, Zadeh et al. 2018, Yu et al. 2020)."
    )
    source = "folder: written by `polymodal data convert mmsa`"

    def __init__(self, *, folder: str = "mmsa", metric: SentimentMetric = "mae") -> None:
        super().__init__()
        self.folder = folder
        self.metric: SentimentMetric = metric

    @property
    def suffix(self) -> str:
        return f"[{Path(self.folder).name}]"

    def describe(self) -> Task:
        train = self._files["train"]
        modalities = tuple(Modality(name, "sequence", train.get(name).shape[1:]) for name in MODALITIES)
        version = "-".join(file.fingerprint[:6] for file in self._files.values())
        return Task("mmsa", version, modalities, "sentiment", 1, metric=self.metric)

    @property
    def notes(self) -> tuple[str, ...]:
        shared = self._shared
        return (f"mmsa: {len(shared)} videos are in more than one published split",) if shared else ()

    def load(self) -> dict[SplitName, Split]:
        scales = {name: self._scale(name) for name in MODALITIES}
        number = {video: i for i, video in enumerate(sorted({v for own in self._videos.values() for v in own}))}
        splits: dict[SplitName, Split] = {}
        for split, file in self._files.items():
            target = torch.from_numpy(file.get("target").astype(np.float32)).unsqueeze(1)
            rows = torch.arange(len(target))
            inputs: Mapping[str, Gathered] = {
                name: Gathered(torch.from_numpy(file.get(name)), rows, *scale) for name, scale in scales.items()
            }
            group = torch.tensor([number[video] for video in self._videos[split]])
            # As published, a video may be in two splits: then rows are no groups that splits keep together.
            splits[split] = Split(inputs, target, group=None if self._shared else group)
        return splits

    def as_recorded(self, split: SplitName, row: int) -> dict[str, Original]:
        file = self._files[split]
        return {"text": str(file.get("raw_text")[row])} if "raw_text" in file.names else {}

    @cached_property
    def _files(self) -> dict[SplitName, ArrayFile]:
        folder = find_data(self.folder, "folder")
        files: dict[SplitName, ArrayFile] = {}
        for name in SPLITS:
            path = folder / f"{name}.npz"
            if not path.is_file():
                raise FileNotFoundError(
                    f"there is no {path}: write it with `polymodal data convert mmsa FILE.pkl --output {folder}`"
                )
            files[name] = ArrayFile(path)
        for name, file in files.items():
            self._check(name, file, files["train"])
        return files

    @staticmethod
    def _check(name: SplitName, file: ArrayFile, train: ArrayFile) -> None:
        rows = len(file.get("target"))
        for modality in MODALITIES:
            x, like = file.get(modality), train.get(modality)
            if x.ndim != 3 or len(x) != rows or x.shape[1:] != like.shape[1:] or x.dtype != np.float32:
                raise ValueError(
                    f"{file.path}: {modality!r} must be {rows} rows of the training shape {like.shape[1:]}, got "
                    f"{x.dtype} {x.shape}: convert the three splits from one file"
                )

    @cached_property
    def _videos(self) -> dict[SplitName, list[str]]:
        return {name: file.get("video").tolist() for name, file in self._files.items()}

    @property
    def _shared(self) -> set[str]:
        train, val, test = (set(self._videos[name]) for name in SPLITS)
        return (train & val) | (train & test) | (val & test)

    def _scale(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """What a training row of the modality is multiplied by, and what is added."""
        x: NDArray[np.float32] = self._files["train"].get(name)
        mean, deviation = channel_moments(x, np.arange(len(x)), "sequence")
        return torch.from_numpy(1 / deviation).float(), torch.from_numpy(-mean / deviation).float()
