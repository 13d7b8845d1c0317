"""Words as a vector: how often each word is in a text, and how rare it is in the training rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Logarithms and roots differ in their last bits between processors; rounding hides that.
_DIGITS = 6


class TfIdf(NamedTuple):
    """The words that count, in alphabetical order, and the weight of each: rarer words say more."""

    words: tuple[str, ...]
    rarity: NDArray[np.float64]

    def encode(self, texts: Sequence[Sequence[str]], length: float) -> NDArray[np.float32]:
        """`[N, words]`: 1 + log of how often a text has a word, times its rarity; each row has norm `length`.

        A text without a word that counts is a row of zeros.
        """
        column = {word: i for i, word in enumerate(self.words)}
        x = np.zeros((len(texts), len(self.words)))
        for row, words in enumerate(texts):
            for word, count in Counter(words).items():
                if word in column:
                    x[row, column[word]] = (1 + np.log(count)) * self.rarity[column[word]]
        size = np.sqrt(np.square(x).sum(axis=1, keepdims=True))
        return np.round(x * (length / np.maximum(size, 1e-12)), _DIGITS).astype(np.float32)


def learn_tfidf(train: Sequence[Sequence[str]], min_count: int) -> TfIdf:
    """The words that at least `min_count` training texts have, with the smoothed inverse frequency of each."""
    texts_with = Counter(word for words in train for word in set(words))
    words = tuple(sorted(word for word, count in texts_with.items() if count >= min_count))
    if not words:
        raise ValueError(f"no word is in {min_count} of the {len(train)} training texts: lower `min_count`")
    share = (1 + np.array([texts_with[word] for word in words])) / (1 + len(train))
    return TfIdf(words, 1 - np.log(share))
