"""Image-text retrieval with five captions an image: Flickr8k, Flickr30k, COCO."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from datamodules.base import SplitName
from datamodules.bases.image_text import ImageText, ImageTextRows, check_text
from datamodules.registry import register
from datamodules.sources.data_folder import find_data
from datamodules.sources.image_table import ImageFiles
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
        image_size: Side of the images.
        length: Words of a caption that are kept.
        min_count: How often a word must be in the training captions to be learnt.
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
        image_size: int = 64,
        length: int = 24,
        min_count: int = 2,
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
        for name in ("train", "val", "test"):
            rows = [(text, i) for i, own in enumerate(self._captioned) if own.split == name for text in own.captions]
            if not rows:
                raise ValueError(f"{self._file}: no image of the {name} split")
            image = torch.tensor([i for _, i in rows])
            found[name] = ImageTextRows([text for text, _ in rows], image, image)
        return found

    @cached_property
    def _path(self) -> Path:
        return find_data(self.folder, "`folder`")

    @cached_property
    def _file(self) -> Path:
        file = self._path / f"dataset_{self.corpus}.json"
        if not file.is_file():
            raise FileNotFoundError(f"there is no {file}: put Karpathy's split file of {self.corpus} there")
        return file

    @cached_property
    def _captioned(self) -> list[_Captioned]:
        try:
            content = json.loads(self._file.read_bytes())
        except ValueError as error:
            raise ValueError(f"{self._file} is not JSON (half downloaded?): {error}") from None
        if not isinstance(content, dict) or not isinstance(content.get("images"), list) or not content["images"]:
            raise ValueError(f"{self._file}: expected a list `images`")
        return [_image(raw, f"{self._file}, image {number}") for number, raw in enumerate(content["images"], 1)]


def _image(raw: Any, where: str) -> _Captioned:
    try:
        name, part, sentences = raw["filename"], raw["split"], raw["sentences"]
        texts = [sentence["raw"] for sentence in sentences[:CAPTIONS]]
        folder = raw.get("filepath", "")
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{where}: no {error}: expected filename, split and sentences with raw text") from None
    where = f"{where} ({name})"
    if part not in PARTS:
        raise ValueError(f"{where}: expected split to be one of {', '.join(PARTS)}, but got {part!r}")
    if not texts:
        raise ValueError(f"{where} has no sentence")
    file = f"{folder}/{name}" if folder else str(name)
    if Path(file).is_absolute() or ".." in Path(file).parts:
        raise ValueError(f"{where}: a file outside of the folder")
    return _Captioned(file, PARTS[part], [check_text(text, where) for text in texts])
