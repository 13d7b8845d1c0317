"""Pretrained encoders by name: `timm:MODEL`, `open_clip:MODEL/PRETRAINED`, `sentence:FOLDER`, `random:KIND`.

An encoder maps a batch of raw inputs (images in their range, token ids) to features, with the preprocessing it was
trained with inside. The libraries are imported only when one of their models is used.
"""

from __future__ import annotations

import difflib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from datamodules.encoders import weights
from datamodules.registry import did_you_mean
from datamodules.spec import Modality

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
            raise ValueError(f"an encoder is LIBRARY:MODEL (with +tokens to keep tokens), got {text!r}")
        if library not in LIBRARIES:
            raise ValueError(f"no encoder library {library!r} in {text!r}. {did_you_mean(library, LIBRARIES)}")
        if library == "open_clip" and not all(model.rpartition("/")):
            raise ValueError(f"open_clip needs MODEL/PRETRAINED, as open_clip:ViT-B-32/openai, got {text!r}")
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


def build(name: EncoderName, modality: Modality, words: Sequence[str] = (), *, load: bool = True) -> Encoder:
    """The encoder of a modality.

    Args:
        words: Of the token ids of a text.
        load: False leaves the weights as the library draws them; for the meta device.

    Raises:
        ValueError: If the encoder does not exist or does not encode this kind of modality.
        WeightsError: If its weights are nowhere to be had.
    """
    if name.library == "random":
        from datamodules.encoders.random import RandomEncoder

        return RandomEncoder(name.model, modality, name.tokens)
    kinds = {"timm": ("image",), "open_clip": ("image", "text"), "sentence": ("text",)}[name.library]
    if modality.kind not in kinds:
        raise ValueError(f"{name} encodes {' and '.join(kinds)}, and `{modality.name}` is a {modality.kind}")
    if modality.kind == "image" and modality.shape[0] not in (1, 3):
        raise ValueError(f"{name} needs 1 or 3 channels, and `{modality.name}` has {modality.shape[0]}")
    if modality.kind == "text" and len(words) != modality.vocabulary:
        raise ValueError(
            f"{name} reads words, and the dataset has none for `{modality.name}` (DataModule.words): random:embedding "
            "needs none"
        )
    from datamodules.encoders import image as image_encoders
    from datamodules.encoders import text as text_encoders

    if name.library == "timm":
        return image_encoders.TimmEncoder(name, modality, load)
    if name.library == "sentence":
        return text_encoders.SentenceEncoder(name, modality, words, load)
    if modality.kind == "image":
        return image_encoders.ClipImageEncoder(name, modality, load)
    return text_encoders.ClipTextEncoder(name, modality, words, load)


def weights_digest(name: EncoderName, encoder: Encoder) -> str:
    """SHA-256 of the encoder's weights, wherever they come from."""
    if name.library == "random":
        return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in encoder.parameters())).hexdigest()
    path = find_weights(name)
    # A folder of open_clip brings its own architecture, which decides the output too.
    return weights.digest(path.parent if (path.parent / "open_clip_config.json").is_file() else path)


def find_weights(name: EncoderName) -> Path:
    """The file (or, of a sentence encoder, the folder) an encoder is loaded from."""
    if name.library == "sentence":
        return weights.find_folder(name.model, str(name))
    if name.library == "timm":
        config = timm_config(name)
        repository = None if config is None else config.hf_hub_id
        return weights.find_file(name.stem, str(name), repository or None, ("model.safetensors",))
    from open_clip import get_pretrained_cfg

    # A repository may hold the image tower alone too, for timm: the name says which file is the whole model.
    repository, _, filename = get_pretrained_cfg(*clip_parts(name)).get("hf_hub", "").rpartition("/")
    names = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors")
    names = (f"{filename.rpartition('.')[0]}.safetensors",) if filename else names
    return weights.find_file(name.stem, str(name), repository or None, names)


def timm_config(name: EncoderName) -> Any:
    """What timm knows of the published weights; None if there are none."""
    import timm

    if not timm.is_model(name.model):
        raise ValueError(f"timm has no model {name.model!r}{close_names(name.model, timm.list_models())}")
    if "." in name.model and name.model not in timm.list_pretrained():
        raise ValueError(f"timm has no weights {name.model!r}{close_names(name.model, timm.list_pretrained())}")
    return timm.get_pretrained_cfg(name.model)


def clip_parts(name: EncoderName) -> tuple[str, str]:
    """Model and tag of the published weights."""
    model, _, tag = name.model.rpartition("/")
    return model, tag


def close_names(name: str, known: Sequence[str]) -> str:
    """The names that are close: a library knows too many to list them all."""
    close = difflib.get_close_matches(name, known, n=3)
    return f". Did you mean {', '.join(close)}?" if close else ""
