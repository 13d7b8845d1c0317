"""What an encoder is called and what it does."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from datamodules.registry import did_you_mean

LIBRARIES = ("timm", "open_clip", "sentence", "random")
TOKENS = "+tokens"


@dataclass(frozen=True)
class EncoderName:
    """An encoder as a matrix names it.

    Attributes:
        library: One of `LIBRARIES`.
        model: As the library calls it: a timm model, `MODEL/PRETRAINED`, a folder, a kind of random encoder.
        tokens: Keep the tokens (patch grid, text tokens) instead of one pooled vector.
    """

    library: str
    model: str
    tokens: bool = False

    @classmethod
    def parse(cls, text: str) -> EncoderName:
        """Read `LIBRARY:MODEL` or `LIBRARY:MODEL+tokens`."""
        library, colon, model = text.removesuffix(TOKENS).partition(":")
        if not colon or not model:
            raise ValueError(f"an encoder must be LIBRARY:MODEL (with +tokens to keep tokens), got {text!r}")
        if library not in LIBRARIES:
            raise ValueError(f"no encoder library {library!r} in {text!r}. {did_you_mean(library, LIBRARIES)}")
        if library == "open_clip" and not all(model.rpartition("/")):
            raise ValueError(f"open_clip must have MODEL/PRETRAINED, as open_clip:ViT-B-32/openai, got {text!r}")
        return cls(library, model, text.endswith(TOKENS))

    def __str__(self) -> str:
        return f"{self.library}:{self.model}{TOKENS * self.tokens}"

    @property
    def label(self) -> str:
        """As a board shows it: of a folder, only its own name."""
        model = Path(self.model).name if self.library == "sentence" else self.model
        return f"{self.library}:{model}{TOKENS * self.tokens}"

    @property
    def stem(self) -> str:
        """Name of the user's weight file."""
        return self.model.replace("/", "-")

    @property
    def parts(self) -> tuple[str, str]:
        """Model and tag of published weights, of open_clip."""
        model, _, tag = self.model.rpartition("/")
        return model, tag


class Encoder(nn.Module, ABC):
    """From raw inputs `[B, ...]` to features, with the preprocessing the network was trained with.

    Features are `[B, D]`; with tokens kept `[B, D, h, w]` of an image and `[B, L, D]` of a text, zero at padding.

    Attributes:
        transform: What is done to an input before the network sees it, in words: part of the features' identity.
    """

    transform: str = ""

    @abstractmethod
    def probe(self) -> torch.Size:
        """The shape of one row's features; works without weights, on the meta device."""


def close_names(name: str, known: Sequence[str]) -> str:
    """The names that are close: a library knows too many to list them all."""
    close = difflib.get_close_matches(name, known, n=3)
    return f". Did you mean {', '.join(close)}?" if close else ""
