"""Class names as texts: the rows of a zero-shot test split that are asked for and never ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

# At least one, each with a place for the name.
Templates = Annotated[tuple[Annotated[str, Meta(pattern=r"\{\}")], ...], Meta(min_length=1)]
Candidates = Literal["all", "unseen"]
PHOTO = ("a photo of a {}", "a picture of a {}", "an image of a {}")


def prompts(names: Sequence[str], classes: Sequence[int], templates: Sequence[str]) -> tuple[list[str], list[int]]:
    """The text of every class in every template, and its class."""
    found = [(template.replace("{}", names[c]), c) for c in classes for template in templates]
    return [text for text, _ in found], [c for _, c in found]
