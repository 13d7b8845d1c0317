"""Pretrained text encoders: the text towers of open_clip and Hugging Face sentence encoders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.encoders.base import Encoder, EncoderName
from datamodules.encoders.clip_models import clip_source, load_clip
from datamodules.encoders.weights import find_weights
from datamodules.spec import Modality


class TextEncoder(Encoder):
    """A text encoder that reads token ids of the dataset as the words they stand for."""

    def __init__(self, modality: Modality, words: Sequence[str], tokens: bool) -> None:
        super().__init__()
        self.tokens = tokens
        self.words = tuple(words)
        # A word may be several of the encoder's own tokens; what is kept must have one length for all texts.
        self.length = 2 * modality.shape[0] + 2

    def spell(self, x: Tensor) -> list[str]:
        """The texts of `[B, L]` token ids."""
        return [" ".join(self.words[i] for i in row if i) for row in x.tolist()]

    def forward(self, x: Tensor) -> Tensor:
        ids, mask = self.tokenize(self.spell(x))
        device = next(self.parameters()).device
        return self.embed(ids.to(device), mask.to(device))

    def embed(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The encoder's own token ids `[B, T]` -> features."""
        if not self.tokens:
            return self.pooled(ids, mask)
        hidden = self.hidden(ids, mask) * mask.unsqueeze(-1)
        kept = hidden[:, : self.length]
        return F.pad(kept, (0, 0, 0, self.length - kept.shape[1]))

    def tokenize(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        """The encoder's own token ids, and which are not padding."""
        raise NotImplementedError

    def hidden(self, ids: Tensor, mask: Tensor) -> Tensor:
        """`[B, T, D]`."""
        raise NotImplementedError

    def pooled(self, ids: Tensor, mask: Tensor) -> Tensor:
        """`[B, D]`."""
        raise NotImplementedError

    def probe(self) -> torch.Size:
        device = next(self.parameters()).device
        ids, mask = self.tokenize(["a"])
        with torch.no_grad():
            return self.embed(ids.to(device), mask.to(device)).shape[1:]


class ClipTextEncoder(TextEncoder):
    """The text tower of an open_clip model."""

    def __init__(self, name: EncoderName, modality: Modality, words: Sequence[str], load: bool) -> None:
        super().__init__(modality, words, name.tokens)
        import open_clip

        self.net: Any = load_clip(name, load)[0]
        self.net.visual = nn.Identity()
        self.tokenizer: Any = open_clip.get_tokenizer(clip_source(name))
        self.length = min(self.length, self.tokenizer.context_length)
        self.transform = f"words, {type(self.tokenizer).__name__}, {self.tokenizer.context_length}"

    def tokenize(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        with torch.device("cpu"):
            ids = self.tokenizer(texts)
            inner = getattr(self.tokenizer, "tokenizer", None)  # of transformers, with a padding token of its own
            if inner is not None:
                return ids, ids != inner.pad_token_id
            # CLIP pads with 0, which is also a token; the end of the text is the largest id.
            return ids, torch.arange(ids.shape[1]) <= ids.argmax(dim=1, keepdim=True)

    def hidden(self, ids: Tensor, mask: Tensor) -> Tensor:
        found = self.net.forward_intermediates(
            text=ids, text_indices=1, normalize_intermediates=True, intermediates_only=True
        )
        return found["text_intermediates"][-1]

    def pooled(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.net.encode_text(ids)


class SentenceEncoder(TextEncoder):
    """A Hugging Face text encoder in a folder, pooled as the folder says (mean unless `1_Pooling` asks for CLS)."""

    def __init__(self, name: EncoderName, modality: Modality, words: Sequence[str], load: bool) -> None:
        super().__init__(modality, words, name.tokens)
        try:
            import transformers
        except ImportError as error:
            raise ValueError(f"{name} needs the package transformers: pip install transformers") from error
        folder = find_weights(name)
        self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        if load:
            self.net, facts = transformers.AutoModel.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, use_safetensors=True, output_loading_info=True
            )
            lost = [key for key in facts["missing_keys"] if not key.startswith("pooler")]
            if lost:
                raise ValueError(f"{folder} does not hold the weights of its model: {lost[0]} is missing")
        else:
            self.net: Any = transformers.AutoModel.from_config(
                transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
            )
        limit = getattr(self.net.config, "max_position_embeddings", None) or 512
        self.limit = min(limit, self.tokenizer.model_max_length)
        self.length = min(self.length, self.limit)
        self.cls = _pools_by_cls(folder)
        self.transform = f"words, {type(self.tokenizer).__name__}, {self.limit}, {'cls' if self.cls else 'mean'}"

    def probe(self) -> torch.Size:
        width = self.net.config.hidden_size  # its attention looks at the mask, which the meta device does not have
        return torch.Size((self.length, width) if self.tokens else (width,))

    def tokenize(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        with torch.device("cpu"):
            found = self.tokenizer(texts, padding=True, truncation=True, max_length=self.limit, return_tensors="pt")
        return found["input_ids"], found["attention_mask"].bool()

    def hidden(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.net(input_ids=ids, attention_mask=mask.long()).last_hidden_state

    def pooled(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.hidden(ids, mask)
        if self.cls:
            return hidden[:, 0]
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * weight).sum(dim=1) / weight.sum(dim=1).clamp_min(1)


def _pools_by_cls(folder: Path) -> bool:
    file = folder / "1_Pooling" / "config.json"
    return file.is_file() and bool(json.loads(file.read_text(encoding="utf-8")).get("pooling_mode_cls_token"))
