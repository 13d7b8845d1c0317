"""Pretrained encoders by name: `timm:MODEL`, `open_clip:MODEL/PRETRAINED`, `sentence:FOLDER`, `random:KIND`.

An encoder maps a batch of raw inputs (images in their range, token ids) to features, with the preprocessing it was
trained with inside. The libraries are imported only when one of their models is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from datamodules.encoders import weights
from datamodules.encoders.base import Encoder, EncoderName
from datamodules.encoders.image import ClipImageEncoder, TimmEncoder
from datamodules.encoders.random import RandomEncoder
from datamodules.encoders.text import ClipTextEncoder, SentenceEncoder
from datamodules.spec import Modality

IMAGES = {"timm": TimmEncoder, "open_clip": ClipImageEncoder}
TEXTS = {"open_clip": ClipTextEncoder, "sentence": SentenceEncoder}


def build(name: EncoderName, modality: Modality, words: Sequence[str] = (), *, load: bool = True) -> Encoder:
    """The encoder of a modality.

    Args:
        words: Of the token ids of a text.
        load: False leaves the weights as the library draws them; for the meta device.
    """
    if name.library == "random":
        return RandomEncoder(name.model, modality, name.tokens)
    kinds = [kind for kind, table in (("image", IMAGES), ("text", TEXTS)) if name.library in table]
    if modality.kind not in kinds:
        raise ValueError(f"{name} encodes {' and '.join(kinds)}, and `{modality.name}` is a {modality.kind}")
    if modality.kind == "image":
        if modality.shape[0] not in (1, 3):
            raise ValueError(f"{name} needs 1 or 3 channels, and `{modality.name}` has {modality.shape[0]}")
        return IMAGES[name.library](name, modality, load)
    if len(words) != modality.vocabulary:
        raise ValueError(
            f"{name} reads words, and the dataset has none for `{modality.name}` (DataModule.words): random:embedding "
            "needs none"
        )
    return TEXTS[name.library](name, modality, words, load)


def weights_digest(name: EncoderName, encoder: Encoder) -> str:
    """SHA-256 of the encoder's weights, wherever they come from."""
    if name.library == "random":
        return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in encoder.parameters())).hexdigest()
    path = weights.find_weights(name)
    # A folder of open_clip brings its own architecture, which decides the output too.
    return weights.digest(path.parent if (path.parent / "open_clip_config.json").is_file() else path)
