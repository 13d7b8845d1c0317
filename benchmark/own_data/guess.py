"""What a guess is: the dataset that a file seems to be, and everything that was assumed, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Guess:
    """A registered dataset with the options that read the user's file.

    Attributes:
        rows: Of the file.
        said: What was assumed, left out or found odd, a sentence each.
        heavy: Whether a step costs much, as of images.
    """

    dataset: str
    options: Mapping[str, Any]
    rows: int
    said: tuple[str, ...]
    heavy: bool = False
