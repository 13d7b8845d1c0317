"""Words as token ids: one vocabulary per dataset, the same for every method."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_WORD = re.compile(r"\w+(?:['’]\w+)*")


class Vocabulary(NamedTuple):
    """The word of each token id: padding, unknown, the words that training has often enough, and all others.

    Attributes:
        words: By id; both parts in alphabetical order, so that a `typo` slips to a word that looks alike.
        known: Ids from here on are read as unknown by encoders learnt from scratch; pretrained towers read the word.
    """

    words: tuple[str, ...]
    known: int

    def encode(self, texts: Sequence[Sequence[str]], length: int) -> Tensor:
        """`[N, length]` ids of the first words of each text, padded with 0."""
        number = {word: i for i, word in enumerate(self.words)}
        ids = np.zeros((len(texts), length), dtype=np.int64)
        for row, words in enumerate(texts):
            kept = [number[word] for word in words[:length]]
            ids[row, : len(kept)] = kept
        return torch.from_numpy(ids)


def split_words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation."""
    return _WORD.findall(text.lower())


def build_vocabulary(train: Sequence[Sequence[str]], others: Sequence[Sequence[str]], min_count: int = 1) -> Vocabulary:
    """Every word has an id, for a pretrained tower to see; those that training has `min_count` times are known."""
    counts = Counter(word for words in train for word in words)
    known = sorted(word for word, count in counts.items() if count >= min_count)
    rest = {*counts, *(word for words in others for word in words)}.difference(known)
    return Vocabulary(("", "unknown", *known, *sorted(rest)), 2 + len(known))
