"""DeepFashion In-Shop: retrieval of clothes never seen."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from datamodules.bases.image_retrieval import ImageRetrieval, Photo
from datamodules.registry import register

COLUMNS = "image_name item_id evaluation_status"


@register("inshop")
class Inshop(ImageRetrieval):
    """In-Shop Clothes Retrieval: 25,882 training photos; 14,218 queries and 12,612 gallery photos of unseen items.

    Reads `list_eval_partition.txt` (in the folder or its `Eval/`) and the photos under `img/` (or `Img/img/`).

    As published, a query is answered by the gallery alone, and gallery photos ask nothing. Validation, on held-out
    training items, has no such parts: every photo asks for all others. So do the numbers that a method reports once
    per cell (NMI and the recalls between modalities of `skewed_mean`): they are those of all test photos.
    """

    title = "inshop"
    version = "3"
    licence = "photos: non-commercial research; see the dataset's page"
    citation = "Z. Liu et al., DeepFashion: Powering Robust Clothes Recognition and Retrieval, CVPR (2016)."
    folders = ("In-shop Clothes Retrieval Benchmark", "inshop", "In-shop", "In_shop")
    ks = (1, 10, 20, 30, 40, 50)
    expected: ClassVar[dict[str, int]] = {"train": 25882, "query": 14218, "gallery": 12612}

    def read_index(self, folder: Path) -> list[Photo]:
        name = "list_eval_partition.txt"
        file = folder / "Eval" / name if (folder / "Eval" / name).exists() else folder / name
        prefix = "Img/" if (folder / "Img" / "img").is_dir() else ""
        count, header, *lines = file.read_text(encoding="utf-8").splitlines()
        if header.split() != COLUMNS.split():
            raise ValueError(f"inshop: the columns of {name} must be {COLUMNS!r}, got {header!r}")
        rows = [line.split() for line in lines if line.strip()]
        if len(rows) != int(count):
            raise ValueError(f"inshop: {name} must list the {count} photos it announces, got {len(rows)}: truncated?")
        return [_photo(prefix + path, item, status) for path, item, status in rows]


def _photo(path: str, item: str, status: str) -> Photo:
    if status not in ("train", "query", "gallery"):
        raise ValueError(f"inshop: the status of {path} must be train, query or gallery, got {status!r}")
    return Photo(path, item, status)
