"""Image-text retrieval with five captions an image: Flickr8k, Flickr30k, COCO."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from datamodules.base import SPLITS, SplitName
from datamodules.bases.image_text import ImageText, ImageTextRows, check_text, read_json
from datamodules.options import Count
from datamodules.registry import register
from datamodules.sources.folders import find_data
from datamodules.sources.image_table import ImageFiles, Side
from datamodules.spec import Task

CAPTIONS = 5
PARTS: dict[str, SplitName] = {"train": "train", "restval": "train", "val": "val", "test": "test"}
FOLDERS = ("images", "Images", "Flicker8k_Dataset", "Flickr8k_Dataset", "flickr30k-images", "")


class _Captioned(NamedTuple):
    file: str
    split: SplitName
    captions: list[str]


@register("retrieval_pairs")
class RetrievalPairs(ImageText):
    """Flickr8k, Flickr30k or COCO with Karpathy's split: find the image of a caption and a caption of an image.

    Below POLYMODAL_DATA, in `folder`: `dataset_<corpus>.json` (the split file) and the images, in `images` or as
    published (`train2014`, `val2014` of COCO).

    A row is an image with one of its first five captions. An image is in the gallery once; any of its captions answers
    it. COCO's `restval` images are training images, as usual.

    Args:
        corpus: Which one.
        folder: Absolute or below POLYMODAL_DATA; empty means the name of the corpus.
        image_size, length, min_count: As of every `ImageText`.
    """

    version = "1"
    licence = "captions: for research (Flickr8k, Flickr30k), CC BY 4.0 (COCO); images: terms of Flickr"
    citation = (
        "M. Hodosh, P. Young and J. Hockenmaier, Framing image description as a ranking task, JAIR 47 (2013); P. Young "
        "et al., From image descriptions to visual denotations, TACL 2 (2014); T.-Y. Lin et al., Microsoft COCO, ECCV "
        "(2014); split: A. Karpathy and L. Fei-Fei, Deep visual-semantic alignments, CVPR (2015)."
    )
    source = "folder: flickr8k, flickr30k or coco, with Karpathy's split file"

    def __init__(
        self,
        *,
        corpus: Literal["flickr8k", "flickr30k", "coco"] = "flickr8k",
        folder: str = "",
        image_size: Side = 64,
        length: Count = 24,
        min_count: Count = 2,
    ) -> None:
        super().__init__(image_size=image_size, length=length, min_count=min_count)
        self.corpus = corpus
        self.folder = folder or corpus

    @property
    def suffix(self) -> str:
        return f"[{self.corpus}]"

    def describe(self) -> Task:
        version = f"{self.version}-{self.content()}"
        return Task("retrieval_pairs", version, self.modalities(), "pairs", 0, shared=("image",))

    def open_images(self) -> ImageFiles:
        names = [image.file for image in self._captioned]
        below = next((name for name in FOLDERS if (self._path / name / names[0]).is_file()), FOLDERS[0])
        return ImageFiles(self._path / below, names)

    def read_rows(self) -> dict[SplitName, ImageTextRows]:
        found: dict[SplitName, ImageTextRows] = {}
        for name in SPLITS:
            rows = [(text, i) for i, own in enumerate(self._captioned) if own.split == name for text in own.captions]
            if not rows:
                raise ValueError(f"{self._file}: every split must have images, and {name} has none")
            image = torch.tensor([i for _, i in rows])
            found[name] = ImageTextRows([text for text, _ in rows], image, image)
        return found

    @cached_property
    def _path(self) -> Path:
        return find_data(self.folder, "folder")

    @property
    def _file(self) -> Path:
        return self._path / f"dataset_{self.corpus}.json"

    @cached_property
    def _captioned(self) -> list[_Captioned]:
        images = read_json(self._file, "images", f"Karpathy's split file of {self.corpus}")
        return [_image(raw, f"{self._file}, image {number}") for number, raw in enumerate(images, 1)]


def _image(raw: Any, where: str) -> _Captioned:
    try:
        name, part, sentences = raw["filename"], raw["split"], raw["sentences"]
        texts = [sentence["raw"] for sentence in sentences[:CAPTIONS]]
        folder = raw.get("filepath", "")
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{where}: must have filename, split and sentences (raw text), and has no {error}") from None
    where = f"{where} ({name})"
    if part not in PARTS:
        raise ValueError(f"{where}: split must be one of {', '.join(PARTS)}, got {part!r}")
    if not texts:
        raise ValueError(f"{where}: there must be a sentence, and there is none")
    file = f"{folder}/{name}" if folder else str(name)
    if Path(file).is_absolute() or ".." in Path(file).parts:
        raise ValueError(f"{where}: the file must be in the folder, got {file!r}")
    return _Captioned(file, PARTS[part], [check_text(text, where) for text in texts])
