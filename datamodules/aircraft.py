"""FGVC-Aircraft: retrieval of aircraft variants never seen."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from PIL import Image

from datamodules.bases.image_retrieval import ImageRetrieval, Photo, whole_and_detail
from datamodules.registry import register
from datamodules.sources.image_table import Pixels

TRAINING_CLASSES = 50
LISTS = ("images_variant_trainval.txt", "images_variant_test.txt")
BANNER = 0.03  # of a photo's height, at the bottom: the line that names its photographer (20 pixels, as published)


@register("aircraft")
class Aircraft(ImageRetrieval):
    """FGVC-Aircraft: 10,000 photos of 100 aircraft variants; the first 50 train, the rest are unseen.

    Reads `variants.txt`, `images_variant_trainval.txt`, `images_variant_test.txt` and `images/` of the published
    folder's `data`. The order of the classes is that of `variants.txt`; the published halves divide every class and are
    not used. The lowest 3 % of each photo, where its photographer is named, is cut off.
    """

    title = "aircraft"
    version = "1"
    licence = "photos: non-commercial research; see the dataset's page"
    citation = "S. Maji et al., Fine-Grained Visual Classification of Aircraft, arXiv:1306.5151 (2013)."
    folders = ("fgvc-aircraft-2013b", "fgvc_aircraft", "aircraft")
    expected: ClassVar[dict[str, int]] = {"train": 5000, "test": 5000}

    @staticmethod
    def views(photo: Image.Image, size: int) -> Pixels:
        width, height = photo.size
        return whole_and_detail(photo.crop((0, 0, width, height - round(BANNER * height))), size)

    def read_index(self, folder: Path) -> list[Photo]:
        data = folder / "data"
        variants = {name: i for i, name in enumerate((data / "variants.txt").read_text(encoding="utf-8").splitlines())}
        photos = []
        for name in LISTS:
            for line in (data / name).read_text(encoding="utf-8").splitlines():
                image, _, variant = line.strip().partition(" ")
                if variant not in variants:
                    raise ValueError(f"aircraft: {name} must name variants of variants.txt, got {line!r}")
                number = variants[variant]
                photos.append(Photo(f"data/images/{image}.jpg", number, _part(number)))
        return photos


def _part(number: int) -> Literal["train", "test"]:
    return "train" if number < TRAINING_CLASSES else "test"
