"""Frozen encoders as a transform of a dataset: every cell trains on features that are computed once and kept.

Features of corrupted inputs are made as the inputs would be corrupted without them: the raw input of a row gets the
noise of that row, and is then encoded; once per condition, for all methods and seeds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.base import DataModule, Gathered, Split, SplitName, Stored
from datamodules.corruptions import corrupt, corruption_key, severities, version
from datamodules.encoders import feature_cache
from datamodules.encoders.feature_cache import Table, TableSpec
from datamodules.encoders.pretrained import Encoder, EncoderName, build, weights_digest
from datamodules.spec import Batch, Modality, Task

VERSION = 1  # of this file's way from inputs to features: a change of it makes every table anew
BATCH = 64
Condition = tuple[str, int]  # corruption and severity
_SPLITS: tuple[SplitName, ...] = ("train", "val", "test")


class Rows:
    """A modality's features, standardised by the training rows and read out of a table as asked for.

    Indexed like the tensor it stands for.
    """

    def __init__(self, table: Table, modality: Modality, moments: NDArray[np.float64]) -> None:
        self.table = table
        self.modality = modality
        axis = (-1, *[1] * (len(modality.shape) - 1)) if modality.kind == "image" else (-1,)
        self.mean, self.deviation = (torch.from_numpy(m.astype(np.float32)).view(axis) for m in moments)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def shape(self) -> torch.Size:
        """Of the tensor it stands for."""
        return torch.Size((len(self), *self.modality.shape))

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        chosen = rows if isinstance(rows, slice) else rows.cpu().numpy()
        items = chosen if self.table.index is None else self.table.index[chosen]
        x = torch.from_numpy(np.array(self.table.values[items], dtype=np.float32))  # a copy: the file is read-only
        padding = (x == 0).all(dim=-1, keepdim=True) if self.modality.kind == "sequence" else None
        x = x.sub_(self.mean).div_(self.deviation)
        return x if padding is None else x.masked_fill_(padding, 0.0)

    def fingerprint(self) -> str:
        """Hash of everything that decides the features."""
        return self.table.key


class Features(DataModule):
    """A dataset with some modalities seen through pretrained encoders.

    A pooled modality becomes a vector; with tokens kept an image becomes the map of its patches and a text the sequence
    of its tokens, on which attention methods work. All are standardised by the training rows.

    Args:
        base: The dataset.
        encoders: Modality -> `timm:MODEL`, `open_clip:MODEL/PRETRAINED`, `sentence:FOLDER` or `random:KIND`, each with
            `+tokens` to keep tokens.
        freeze: False leaves the inputs as they are and makes the encoder the modality's own, to be fine-tuned by every
            method (images only).
    """

    def __init__(self, base: DataModule, encoders: Mapping[str, str], *, freeze: bool = True) -> None:
        super().__init__()
        self.base = base
        self.freeze = freeze
        for name in encoders:
            if name not in base.task.names:
                raise ValueError(f"{base.task.name} has no modality {name!r}, it has {', '.join(base.task.names)}")
        self.encoders = {name: EncoderName.parse(text) for name, text in encoders.items()}
        self._read: dict[tuple[str, str, Condition | None], Rows] = {}
        self._built: dict[str, Encoder] = {}
        self._sketches: dict[str, Encoder] = {}
        self._contents: dict[tuple[str, str], str] = {}

    @property
    def suffix(self) -> str:
        """What tells this dataset from its base on a board."""
        shown = [self.base.suffix.strip("[]")] if self.base.suffix else []
        shown += [f"{name}={encoder.label}" for name, encoder in self.encoders.items()]
        return f"[{';'.join(shown + ['freeze=false'] * (not self.freeze))}]"

    @property
    def raw(self) -> Task:
        return self.base.task

    @property
    def notes(self) -> tuple[str, ...]:
        """What the base found odd about the user's files."""
        return getattr(self.base, "notes", ())

    def words(self, modality: str) -> tuple[str, ...]:
        return self.base.words(modality)

    def spell(self, modality: str, value: Tensor) -> str:
        return self.base.spell(modality, value)

    def describe(self) -> Task:
        task = self.base.task
        modalities = tuple(self._modality(m) if m.name in self.encoders else m for m in task.modalities)
        code = hashlib.sha256(json.dumps([VERSION, self.freeze, self._identities], sort_keys=True).encode()).hexdigest()
        return replace(
            task,
            name=task.name + self.suffix,
            version=f"{task.version}+{code[:10]}",
            modalities=modalities,
            bayes=task.bayes if not self.freeze else None,  # known of the inputs, not of what an encoder leaves of them
        )

    def load(self) -> dict[SplitName, Split]:
        splits = self.base.splits
        if not self.freeze:
            return splits
        return {
            name: split._replace(
                inputs={m: self._rows(name, m) if m in self.encoders else x for m, x in split.inputs.items()}
            )
            for name, split in splits.items()
        }

    def corrupted(self, batch: Batch, split: SplitName, modality: str, corruption: str, severity: int) -> Tensor:
        if not self.freeze or modality not in self.encoders or corruption == "misaligned" or severity == 0:
            return super().corrupted(batch, split, modality, corruption, severity)
        rows = self._rows(split, modality, (corruption, severity))
        return rows[batch.row].to(batch.inputs[modality].device)

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.base.fingerprint()}/{self.task.version}".encode()).hexdigest()

    def tables(self, conditions: Mapping[str, tuple[Condition, ...]]) -> list[TableSpec]:
        """The tables a run needs: clean ones of all splits, and those of the test rows under conditions by modality."""
        if not self.freeze:
            return []
        names = tuple(self.encoders)
        found = [self._spec(split, m, None) for split in _SPLITS for m in names]
        noisy = [(m, c) for m in names for c in conditions.get(m, ()) if c[0] != "misaligned"]
        return found + [self._spec("test", m, c) for m, c in noisy]

    def encode(self, modality: str, x: Tensor) -> Tensor:
        """Features of some raw inputs, as they are kept: `[B, ...]`."""
        encoder = self._encoder(modality)
        device = next(encoder.parameters()).device
        with torch.inference_mode():
            return torch.cat([encoder(part.to(device)).cpu() for part in x.split(BATCH)]).to(self._dtype(modality))

    @cached_property
    def _identities(self) -> dict[str, dict[str, str]]:
        """What decides the features of each encoded modality, apart from the data."""
        found = {}
        for name, encoder in self.encoders.items():
            sketch = self._sketch(name)
            words = "\n".join(self.base.words(name)) if self._raw(name).kind == "text" else ""
            found[name] = {
                "encoder": encoder.label,
                "weights": weights_digest(encoder, sketch),
                "transform": sketch.transform,
                "words": hashlib.sha256(words.encode()).hexdigest(),
            }
        return found

    def _sketch(self, name: str) -> Encoder:
        """The encoder without its weights, where tensors cost nothing."""
        if name not in self._sketches:
            with torch.device("meta"):
                self._sketches[name] = build(self.encoders[name], self._raw(name), self.base.words(name), load=False)
        return self._sketches[name]

    def _encoder(self, name: str) -> Encoder:
        if name not in self._built:
            encoder = build(self.encoders[name], self._raw(name), self.base.words(name))
            device = "cuda" if torch.cuda.is_available() else "cpu"
            self._built[name] = encoder.to(device).requires_grad_(False).train(False)
        return self._built[name]

    def _raw(self, name: str) -> Modality:
        return self.raw.modalities[self.raw.names.index(name)]

    def _modality(self, raw: Modality) -> Modality:
        """The encoded modality."""
        encoder = self.encoders[raw.name]
        if not self.freeze:
            if raw.kind != "image" or encoder.library == "random":
                raise ValueError(
                    f"freeze = false fine-tunes encoders of images (timm, open_clip), and {encoder} of `{raw.name}` "
                    "is none"
                )
            self._sketch(raw.name)
            return replace(raw, encoder=str(encoder))
        shape = tuple(self._sketch(raw.name).probe())
        if len(shape) == 1:
            return Modality(raw.name, "vector", shape)
        return Modality(raw.name, "image" if len(shape) == 3 else "sequence", shape, encoder="tokens", range=None)

    def _dtype(self, name: str) -> torch.dtype:
        # Tokens are many: half precision keeps what an encoder knows at half the size.
        return torch.float16 if self.encoders[name].tokens else torch.float32

    def _rows(self, split: SplitName, name: str, condition: Condition | None = None) -> Rows:
        key = (split, name, condition)
        if key not in self._read:
            modality = self.task.modalities[self.task.names.index(name)]
            table = feature_cache.table(self._spec(split, name, condition))
            training = table if key == ("train", name, None) else self._rows("train", name).table
            self._read[key] = Rows(table, modality, training.moments(lambda values: _moments(values, modality)))
        return self._read[key]

    def _spec(self, split: SplitName, name: str, condition: Condition | None) -> TableSpec:
        raw, modality = self.base.splits[split].inputs[name], self._raw(name)
        noise: dict[str, Any] = {}
        if condition is not None:
            corruption, severity = condition
            noise = {
                "corruption": corruption,
                "version": version(corruption),
                "parameter": severities(corruption, modality.kind)[severity - 1],
                "key": corruption_key(self.raw.name, self.raw.version, split, name, corruption),
            }

        def inputs(rows: Tensor) -> Tensor:
            x = raw[rows]
            if condition is None:
                return x
            return corrupt(x, rows, name=condition[0], severity=condition[1], key=noise["key"], modality=modality)

        firsts, index = _items(raw, modality, inputs, shared=condition is None)
        described = self.task.modalities[self.task.names.index(name)]
        dtype = str(self._dtype(name)).removeprefix("torch.")
        return TableSpec(
            identity={
                "version": VERSION,
                "data": self._content(split, name),
                "dtype": dtype,
                **self._identities[name],
                "noise": noise,
            },
            about={
                "dataset": self.raw.name,
                "modality": name,
                "split": split,
                "encoder": self.encoders[name].label,
                "condition": "clean" if condition is None else f"{condition[0]}:{condition[1]}",
            },
            shape=described.shape,
            dtype=dtype,
            items=len(firsts),
            index=index,
            produce=lambda part: self.encode(name, inputs(firsts[part])).numpy(),
        )

    def _content(self, split: SplitName, name: str) -> str:
        """Hash of a modality's rows, computed once."""
        if (split, name) not in self._contents:
            self._contents[split, name] = _digest(self.base.splits[split].inputs[name])
        return self._contents[split, name]


def _items(
    raw: Tensor | Gathered | Stored, modality: Modality, inputs: Any, shared: bool
) -> tuple[Tensor, NDArray[np.int64] | None]:
    """The first row of each different input, and the input of each row (None: every row has its own)."""
    if modality.kind == "text":
        texts = inputs(torch.arange(len(raw)))
        _, index, firsts = _unique(texts.numpy())
    elif shared and isinstance(getattr(raw, "index", None), Tensor):
        _, index, firsts = _unique(raw.index.numpy())  # pyright: ignore[reportAttributeAccessIssue]
    else:
        return torch.arange(len(raw)), None
    return torch.from_numpy(firsts), index


def _unique(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    found, firsts, index = np.unique(values, axis=0, return_index=True, return_inverse=True)
    return found, index.reshape(-1).astype(np.int64), firsts.astype(np.int64)


def _moments(values: NDArray[Any], modality: Modality) -> NDArray[np.float64]:
    """Mean and deviation of each feature, over rows and tokens that are not padding; `[2, D]`."""
    total: Any = 0.0
    squares: Any = 0.0
    count = 0
    for first in range(0, len(values), 1024):
        part = np.asarray(values[first : first + 1024], dtype=np.float64)
        flat = np.moveaxis(part, 1, -1) if modality.kind == "image" else part
        flat = flat.reshape(-1, flat.shape[-1])
        if modality.kind == "sequence":
            flat = flat[(flat != 0).any(axis=1)]
        total, squares, count = total + flat.sum(axis=0), squares + np.square(flat).sum(axis=0), count + len(flat)
    mean = total / max(1, count)
    variance = np.maximum(squares / max(1, count) - mean**2, 0.0)
    # A feature that hardly varies is left in its own units instead of blown up.
    deviation = np.where(variance > 1e-12 * (1 + mean**2), np.sqrt(variance), 1.0)
    return np.stack([mean, deviation])


def _digest(raw: Tensor | Gathered | Stored) -> str:
    digest = hashlib.sha256(str(tuple(raw.shape)).encode())
    if isinstance(raw, Stored):
        digest.update(raw.fingerprint().encode())
        return digest.hexdigest()
    parts: list[Tensor] = [raw] if isinstance(raw, Tensor) else []
    if isinstance(raw, Gathered):
        parts = [raw.values, raw.index, torch.as_tensor(raw.scale)]
        parts += [] if raw.shift is None else [raw.shift]
    for part in parts:
        digest.update(str(part.dtype).encode())
        for block in part.split(1024) if part.dim() else (part,):
            digest.update(block.contiguous().numpy().tobytes())
    return digest.hexdigest()
