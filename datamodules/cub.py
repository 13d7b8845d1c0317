"""Caltech-UCSD Birds 200: retrieval of bird species never seen."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from datamodules.bases.image_retrieval import ImageRetrieval, Photo
from datamodules.registry import register

LAST_TRAINING_CLASS = 100


@register("cub")
class Cub(ImageRetrieval):
    """CUB-200-2011: 11,788 photos of 200 bird species; the first 100 train, the rest are unseen.

    Reads `images.txt`, `image_class_labels.txt` and `images/` of the published folder. Its own `train_test_split.txt`
    divides every class and is not used.
    """

    title = "cub"
    version = "2"
    licence = "photos: non-commercial research; see the dataset's page"
    citation = "C. Wah et al., The Caltech-UCSD Birds-200-2011 Dataset, CNS-TR-2011-001 (2011)."
    folders = ("CUB_200_2011", "cub", "CUB")
    expected: ClassVar[dict[str, int]] = {"train": 5864, "test": 5924}

    def read_index(self, folder: Path) -> list[Photo]:
        paths = _table(folder / "images.txt")
        labels = _table(folder / "image_class_labels.txt")
        if paths.keys() != labels.keys():
            raise ValueError("cub: images.txt and image_class_labels.txt must list the same photos, and do not")
        return [
            Photo(f"images/{path}", int(labels[key]), "train" if int(labels[key]) <= LAST_TRAINING_CLASS else "test")
            for key, path in paths.items()
        ]


def _table(file: Path) -> dict[str, str]:
    """`{id: value}` out of lines `id value`."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line.strip())
