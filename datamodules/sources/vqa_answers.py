"""Answers of VQA-v2: spelled as the official evaluation spells them, and scored as it scores them.

Written from the published rules of the evaluation (visualqa.org): lower case; punctuation gone; numbers up to ten as
digits; no articles; contractions with their apostrophe.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

PEOPLE = 10

_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_DIGITS = {"none": "0", **{word: str(i) for i, word in enumerate(_NUMBERS)}}
_ARTICLES = frozenset({"a", "an", "the"})
_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
_FULL_STOP = re.compile(r"\.(?!\d)")  # but not the point of 2.5
_THOUSANDS = re.compile(r"\d,\d")
_NOT = "ai are ca could did does do had has have is might must need ought sha should was were wo would"
_HAVE = "could i might must not should they we what where who would you"
_WILL = "how it somebody someone something they what who why you"
_IS = "he how somebody someone that there what when where who why"
_ARE = "there they what why you"
_WOULD = "he how it someone something there they where who you"


def _contractions() -> dict[str, str]:
    """Spellings without their apostrophe, and with it."""
    endings = {"t": _NOT, "ve": _HAVE, "ll": _WILL, "s": _IS, "re": _ARE, "d": _WOULD}
    found = {"im": "i'm", "yall": "y'all", "maam": "ma'am", "oclock": "o'clock", "twas": "'twas"}
    for ending, stems in endings.items():
        for stem in stems.split():
            stem = f"{stem}n" if ending == "t" else stem  # don't, can't: the n of "not" stands before the apostrophe
            found[stem + ending] = f"{stem}'{ending}"
    return found


_CONTRACTIONS = _contractions()


@lru_cache(maxsize=2**17)  # six million answers, most of them "yes", "no" and "2"
def normalise(answer: str) -> str:
    """An answer as the official evaluation compares it."""
    given = text = " ".join(answer.split())
    joined = _THOUSANDS.search(given) is not None
    for mark in _PUNCTUATION:
        # Between two words it separates them; beside a space, or where a number has a comma, it just goes.
        beside = f"{mark} " in given or f" {mark}" in given
        text = text.replace(mark, "" if beside or joined else " ")
    words = [_DIGITS.get(word, word) for word in _FULL_STOP.sub("", text).lower().split()]
    return " ".join(_CONTRACTIONS.get(word, word) for word in words if word not in _ARTICLES)


def official_accuracy(count: int) -> float:
    """The accuracy of an answer that `count` of ten people gave: 0, 0.3, 0.6, 0.9, then 1.

    The mean over the ten sets of nine people of min(matches / 3, 1). Left out in turn, each of the `count` leaves
    count - 1 matches, each of the others leaves `count`.
    """
    return (count * min((count - 1) / 3, 1.0) + (PEOPLE - count) * min(count / 3, 1.0)) / PEOPLE


def answer_scores(answers: Iterable[str]) -> dict[str, float]:
    """The score of every answer that people gave to one question, normalised."""
    return {answer: official_accuracy(n) for answer, n in Counter(map(normalise, answers)).items()}
