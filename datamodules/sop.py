"""Stanford Online Products: retrieval of products never seen."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from datamodules.bases.image_retrieval import ImageRetrieval, Photo
from datamodules.registry import register

COLUMNS = "image_id class_id super_class_id path"


@register("sop")
class Sop(ImageRetrieval):
    """Stanford Online Products: 120,053 photos of 22,634 products, 11,318 in training and 11,316 unseen.

    Reads `Ebay_train.txt`, `Ebay_test.txt` and the photos of the published folder.
    """

    title = "sop"
    version = "2"
    licence = "photos: non-commercial research; see the dataset's page"
    citation = "H. O. Song et al., Deep Metric Learning via Lifted Structured Feature Embedding, CVPR (2016)."
    folders = ("Stanford_Online_Products", "sop", "SOP")
    ks = (1, 10, 100, 1000)
    expected: ClassVar[dict[str, int]] = {"train": 59551, "test": 60502}

    def read_index(self, folder: Path) -> list[Photo]:
        return [*_read(folder / "Ebay_train.txt", "train"), *_read(folder / "Ebay_test.txt", "test")]


def _read(file: Path, part: Literal["train", "test"]) -> list[Photo]:
    header, *lines = file.read_text(encoding="utf-8").splitlines()
    if header.split() != COLUMNS.split():
        raise ValueError(f"sop: the columns of {file.name} must be {COLUMNS!r}, got {header!r}")
    rows = (line.split(maxsplit=3) for line in lines if line.strip())
    return [Photo(path, int(label), part) for _, label, _, path in rows]
