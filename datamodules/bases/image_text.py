"""An image and a text per row: what captions, retrieval and questions about images have in common."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple

from torch import Tensor

from datamodules.base import DataModule, Split, SplitName
from datamodules.rows.words import Vocabulary, build_vocabulary, split_words
from datamodules.sources.image_table import ImageSource, ImageTable
from datamodules.spec import Modality


class ImageTextRows(NamedTuple):
    """The rows of a split.

    Attributes:
        texts: As written.
        image: `[N]` position of each row's image in the source; rows of one image are one group.
        target: `[N, ...]`.
        slices: Named parts, as in `Split`.
    """

    texts: Sequence[str]
    image: Tensor
    target: Tensor
    slices: Mapping[str, Tensor] | None = None


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

    def __init__(self, *, image_size: int, length: int, min_count: int) -> None:
        super().__init__()
        for name, value, least in (("image_size", image_size, 8), ("length", length, 1), ("min_count", min_count, 1)):
            if value < least:
                raise ValueError(f"`{name}` must be at least {least}, got {value}")
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

    def load(self) -> dict[SplitName, Split]:
        table = ImageTable(self.images, self.image_size)
        splits: dict[SplitName, Split] = {}
        for name, rows in self.rows.items():
            inputs = {"image": table.rows(rows.image), self.text: self._tokens[1][name]}
            splits[name] = Split(inputs, rows.target, group=rows.image, slices=rows.slices)
        return splits

    @cached_property
    def _tokens(self) -> tuple[Vocabulary, dict[SplitName, Tensor]]:
        """The vocabulary and the token ids; the words themselves are not kept."""
        words: dict[SplitName, list[list[str]]]
        words = {name: [split_words(text) for text in rows.texts] for name, rows in self.rows.items()}
        vocabulary = build_vocabulary(words["train"], [*words["val"], *words["test"]], self.min_count)
        return vocabulary, {name: vocabulary.encode(own, self.length) for name, own in words.items()}


def check_text(text: object, where: str) -> str:
    """The text, if it has a word.

    Raises:
        ValueError: If it is none, or empty, naming `where`.
    """
    if not isinstance(text, str) or not split_words(text):
        raise ValueError(f"{where}: expected a text with at least one word, but got {text!r}")
    return text
