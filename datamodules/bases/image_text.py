"""An image and a text per row: what captions, retrieval and questions about images have in common."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from datamodules.base import DataModule, Split, SplitName
from datamodules.options import Count
from datamodules.rows.words import Vocabulary, build_vocabulary, split_words
from datamodules.sources.image_table import ImageSource, ImageTable, Side
from datamodules.spec import Modality


class ImageTextRows(NamedTuple):
    """The rows of a split.

    Attributes:
        texts: As written.
        image: `[N]` position of each row's image in the source; rows of one image are one group.
        target: `[N, ...]`.
        slices: Named parts, as in `Split`.
        prompt: `[N]` bool, rows that are the name of a class and have no image (`datamodules.rows.prompts`).
    """

    texts: Sequence[str]
    image: Tensor
    target: Tensor
    slices: Mapping[str, Tensor] | None = None
    prompt: Tensor | None = None


class ImageText(DataModule):
    """Rows of an image and a text; a subclass says where they come from.

    Images are decoded once, as squares, into a memory-mapped table of the cache. Texts become lower-case words, as many
    as `length`. The vocabulary an encoder learns is that of the training texts; rarer and unseen words are "unknown" to
    it, while a pretrained text tower reads them.

    Args:
        image_size: Side of the stored images, in pixels; a pretrained encoder resizes them to what it expects.
        length: Words of a text that are kept.
        min_count: How often a word must be in the training texts to be learnt.

    Attributes:
        text: Name of the text modality; the image's is `image`.
    """

    text: ClassVar[str] = "text"

    def __init__(self, *, image_size: Side, length: Count, min_count: Count) -> None:
        super().__init__()
        self.image_size = image_size
        self.length = length
        self.min_count = min_count

    @abstractmethod
    def open_images(self) -> ImageSource:
        """Every image once."""

    @abstractmethod
    def read_rows(self) -> dict[SplitName, ImageTextRows]:
        """Train, val and test."""

    @cached_property
    def images(self) -> ImageSource:
        """Every image, opened once."""
        return self.open_images()

    @cached_property
    def rows(self) -> dict[SplitName, ImageTextRows]:
        """Train, val and test, read once."""
        return self.read_rows()

    def words(self, modality: str) -> tuple[str, ...]:
        return self._tokens[0].words if modality == self.text else ()

    def modalities(self) -> tuple[Modality, ...]:
        """The image and the text."""
        words, known = self._tokens[0]
        shape = (3, self.image_size, self.image_size)
        return (
            Modality("image", "image", shape),
            Modality(self.text, "text", (self.length,), vocabulary=len(words), known=known),
        )

    def content(self) -> str:
        """A version made of the content: other files are another dataset, never mixed with this one's results."""
        digest = hashlib.sha256(self.images.fingerprint().encode())
        for name, rows in self.rows.items():
            digest.update(name.encode() + rows.image.numpy().tobytes() + rows.target.numpy().tobytes())
            for text in rows.texts:
                digest.update(text.encode() + b"\0")
        return digest.hexdigest()[:12]

    @cached_property
    def table(self) -> ImageTable:
        """Every image, decoded once."""
        return ImageTable(self.images, self.image_size)

    def load(self) -> dict[SplitName, Split]:
        splits: dict[SplitName, Split] = {}
        for name, rows in self.rows.items():
            inputs = {"image": self.table.rows(rows.image), self.text: self._tokens[1][name]}
            splits[name] = Split(inputs, rows.target, group=rows.image, slices=rows.slices)
            if rows.prompt is not None:
                there = torch.stack([~rows.prompt, torch.ones_like(rows.prompt)], dim=1)
                group = rows.image.masked_fill(rows.prompt, -1)
                splits[name] = splits[name]._replace(present=there, gallery=rows.prompt, group=group)
        return splits

    @cached_property
    def _tokens(self) -> tuple[Vocabulary, dict[SplitName, Tensor]]:
        """The vocabulary and the token ids; the words themselves are not kept."""
        words: dict[SplitName, list[list[str]]]
        words = {name: [split_words(text) for text in rows.texts] for name, rows in self.rows.items()}
        vocabulary = build_vocabulary(words["train"], [*words["val"], *words["test"]], self.min_count)
        return vocabulary, {name: vocabulary.encode(own, self.length) for name, own in words.items()}


def check_text(text: object, where: str) -> str:
    """The text, if it has a word; else an error that names `where`."""
    if not isinstance(text, str) or not split_words(text):
        raise ValueError(f"{where}: the text must have at least one word, got {text!r}")
    return text


def read_json(file: Path, key: str, what: str) -> list[Any]:
    """The list `key` of a JSON file; `what` it is, for the error if it is not there."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}: put {what} there")
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file} is not JSON (half downloaded?): {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get(key), list) or not content[key]:
        raise ValueError(f"{file} must have a list `{key}` with something in it")
    return content[key]
