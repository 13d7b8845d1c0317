"""Pulsar candidates: the integrated pulse profile and the DM-SNR curve."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from datamodules.base import SPLITS, DataModule, Split, SplitName
from datamodules.registry import register
from datamodules.rows.fixed_order import split_by_class
from datamodules.rows.standardise import standardise_by
from datamodules.sources.folders import data_folder
from datamodules.spec import Modality, Task

ROWS = 17_898


@register("pulsars")
class Pulsars(DataModule):
    """HTRU2: 17,898 pulsar candidates, four statistics of the profile and four of the DM curve; 9 % are pulsars.

    Read from `htru2/HTRU_2.csv` below `POLYMODAL_DATA`. The score is F1 of the pulsar class.
    """

    version = "1"
    sha256 = "ca206af8770bc1780df045fb0186d4bd6989460704ec5810216dbc2b6c8442a1"
    licence = "CC BY 4.0"
    citation = (
        "R. J. Lyon, B. W. Stappers, S. Cooper, J. M. Brooke and J. D. Knowles, Fifty years of pulsar candidate "
        "selection, MNRAS 459 (2016)."
    )
    source = "folder: htru2/HTRU_2.csv"

    def describe(self) -> Task:
        modalities = (Modality("profile", "vector", (4,)), Modality("dm", "vector", (4,)))
        names = ("noise", "pulsar")
        return Task("pulsars", self.version, modalities, "multiclass", 2, metric="f1", class_names=names)

    def load(self) -> dict[SplitName, Split]:
        features, target = _read(data_folder("pulsars") / "htru2" / "HTRU_2.csv")
        parts = split_by_class(target, (0.6, 0.2, 0.2), "pulsars")
        x = torch.from_numpy(standardise_by(parts[0], features))
        return {
            name: Split({"profile": x[rows, :4], "dm": x[rows, 4:]}, torch.from_numpy(target[rows]))
            for name, rows in zip(SPLITS, parts, strict=True)
        }


def parse_candidates(table: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """`[N, 8]` features and `[N]` class out of a CSV without header: four of the profile, four of the curve, class."""
    values = np.loadtxt(io.StringIO(table), delimiter=",", dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != 9:
        raise ValueError(f"there must be 9 columns (8 features and the class), got an array of shape {values.shape}")
    return values[:, :-1], values[:, -1].astype(np.int64)


@cache
def _read(path: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no HTRU2 table at {path}: set POLYMODAL_DATA to the folder above htru2")
    features, target = parse_candidates(path.read_text(encoding="ascii"))
    if len(target) != ROWS:
        raise ValueError(f"{path} must have {ROWS} candidates, got {len(target)}")
    return features, target
