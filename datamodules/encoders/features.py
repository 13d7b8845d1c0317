"""Frozen encoders as a transform of a dataset: every cell trains on features that are computed once and kept.

Features of corrupted inputs are made as the inputs would be corrupted without them: the raw input of a row gets the
noise of that row, and is then encoded; once per condition, for all methods and seeds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.base import SPLITS, DataModule, Gathered, Split, SplitName, Stored, hash_tensor
from datamodules.bases.around import Around
from datamodules.corruptions import corrupt, corruption_key, levels, version
from datamodules.encoders import feature_cache
from datamodules.encoders.feature_cache import Table, TableSpec
from datamodules.encoders.pretrained import Encoder, EncoderName, build, weights_digest
from datamodules.rows.standardise import merged_moments
from datamodules.spec import Batch, Modality, Task

VERSION = 2  # of this file's way from inputs to features: a change of it makes every table anew
BATCH = 64
Condition = tuple[str, int]  # corruption and severity


class FeatureRows(Gathered):
    """A modality's features, standardised by the training rows and read out of a table as asked for.

    Args:
        moments: Mean and deviation of each feature; None leaves the features as they are.
    """

    def __init__(self, table: Table, modality: Modality, moments: NDArray[np.float64] | None) -> None:
        index = torch.arange(len(table)) if table.index is None else torch.from_numpy(table.index)
        super().__init__(torch.from_numpy(table.values), index, content=table.key)
        self.table = table  # holds the lock against deletion
        self.padded = modality.kind == "sequence"
        axis = (-1, *[1] * (len(modality.shape) - 1)) if modality.kind == "image" else (-1,)
        self.mean, self.deviation = (
            (None, None) if moments is None else (torch.from_numpy(m.astype(np.float32)).view(axis) for m in moments)
        )

    def prepare(self, x: Tensor) -> Tensor:
        if self.mean is None or self.deviation is None:
            return x
        padding = (x == 0).all(dim=-1, keepdim=True) if self.padded else None
        x = x.sub_(self.mean).div_(self.deviation)
        return x if padding is None else x.masked_fill_(padding, 0.0)


class Features(Around):
    """A dataset with some modalities seen through pretrained encoders.

    A pooled modality becomes a vector; with tokens kept an image becomes the map of its patches and a text the sequence
    of its tokens, on which attention methods work. All are standardised by the training rows, unless told not to be.

    Args:
        base: The dataset.
        encoders: Modality -> `timm:MODEL`, `open_clip:MODEL/PRETRAINED`, `sentence:FOLDER` or `random:KIND`, each with
            `+tokens` to keep tokens.
        freeze: False leaves the inputs as they are and makes the encoder the modality's own, to be fine-tuned by every
            method (images only).
        standardise: False keeps features as published: those of two towers of one model can then be compared.
    """

    def __init__(
        self, base: DataModule, encoders: Mapping[str, str], *, freeze: bool = True, standardise: bool = True
    ) -> None:
        super().__init__(base)
        self.freeze = freeze
        self.standardise = standardise
        for name in encoders:
            if name not in base.task.names:
                raise ValueError(f"{base.task.name} has no modality {name!r}, it has {', '.join(base.task.names)}")
        self.encoders = {name: EncoderName.parse(text) for name, text in encoders.items()}
        self._read: dict[tuple[str, str, Condition | None], FeatureRows] = {}
        self._built: dict[str, Encoder] = {}
        self._standards: dict[str, NDArray[np.float64]] = {}

    @property
    def suffix(self) -> str:
        shown = [f"{name}={encoder.label}" for name, encoder in self.encoders.items()]
        switched = {"freeze": self.freeze, "standardise": self.standardise}
        return self.suffix_with(*shown, *[f"{key}=false" for key, on in switched.items() if not on])

    @property
    def raw(self) -> Task:
        return self.base.task

    def describe(self) -> Task:
        task = self.base.task
        modalities = tuple(self._modality(m) if m.name in self.encoders else m for m in task.modalities)
        decided = [VERSION, self.freeze, self._identities] + ([] if self.standardise else ["as published"])
        code = hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()
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
        return hashlib.sha256(f"{self.base.content_hash}/{self.task.version}".encode()).hexdigest()

    def tables(self, conditions: Mapping[str, tuple[Condition, ...]]) -> list[TableSpec]:
        """The tables a run needs: clean ones of all splits, and those of the test rows under conditions by modality."""
        if not self.freeze:
            return []
        names = tuple(self.encoders)
        found = [self._spec(split, m, None) for split in SPLITS for m in names]
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
            sketch = self._sketches[name]
            words = "\n".join(self.base.words(name)) if self._raw(name).kind == "text" else ""
            found[name] = {
                "encoder": encoder.label,
                "weights": weights_digest(encoder, sketch),
                "transform": sketch.transform,
                "words": hashlib.sha256(words.encode()).hexdigest(),
            }
        return found

    @cached_property
    def _sketches(self) -> dict[str, Encoder]:
        """The encoders without their weights, where tensors cost nothing."""
        with torch.device("meta"):
            return {m: build(name, self._raw(m), self.base.words(m), load=False) for m, name in self.encoders.items()}

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
            return replace(raw, encoder=str(encoder))
        shape = tuple(self._sketches[raw.name].probe())
        if len(shape) == 1:
            return Modality(raw.name, "vector", shape)
        return Modality(raw.name, "image" if len(shape) == 3 else "sequence", shape, encoder="tokens", range=None)

    def _dtype(self, name: str) -> torch.dtype:
        # Tokens are many: half precision keeps what an encoder knows at half the size.
        return torch.float16 if self.encoders[name].tokens else torch.float32

    def _rows(self, split: SplitName, name: str, condition: Condition | None = None) -> FeatureRows:
        key = (split, name, condition)
        if key not in self._read:
            modality = self.task.modalities[self.task.names.index(name)]
            table = feature_cache.table(self._spec(split, name, condition))
            moments = None
            if self.standardise:
                training = table if key == ("train", name, None) else self._rows("train", name).table
                moments = self._standard(training, modality)
            self._read[key] = FeatureRows(table, modality, moments)
        return self._read[key]

    def _standard(self, training: Table, modality: Modality) -> NDArray[np.float64]:
        """Of the features of the training rows that have the modality; kept with the table if all have."""
        if modality.name not in self._standards:
            present = self.base.splits["train"].present
            there = None if present is None else present[:, self.task.names.index(modality.name)].numpy()
            if there is None or there.all():
                found = training.moments(lambda values: _moments(values, modality))
            else:
                items = np.arange(len(there)) if training.index is None else training.index
                found = _moments(training.values, modality, np.unique(items[there]))
            self._standards[modality.name] = found
        return self._standards[modality.name]

    def _spec(self, split: SplitName, name: str, condition: Condition | None) -> TableSpec:
        raw, modality = self.base.splits[split].inputs[name], self._raw(name)
        noise: dict[str, Any] = {}
        if condition is not None:
            corruption, severity = condition
            noise = {
                "corruption": corruption,
                "version": version(corruption),
                "parameter": levels(corruption, modality, self.raw.name)[severity - 1],
                "key": corruption_key(self.raw.name, self.raw.version, split, name, corruption),
            }

        def inputs(rows: Tensor) -> Tensor:
            x = raw[rows]
            if condition is None:
                return x
            name, severity = condition
            return corrupt(
                x, rows, name=name, severity=severity, key=noise["key"], modality=modality, dataset=self.raw.name
            )

        firsts, index = _items(raw, modality, inputs, shared=condition is None)
        described = self.task.modalities[self.task.names.index(name)]
        dtype = str(self._dtype(name)).removeprefix("torch.")
        return TableSpec(
            identity={
                "version": VERSION,
                "data": self._contents[split, name],
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

    @cached_property
    def _contents(self) -> dict[tuple[str, str], str]:
        """Hash of the rows of each encoded modality."""
        raw = {(split, name): self.base.splits[split].inputs[name] for split in SPLITS for name in self.encoders}
        return {key: hash_tensor(x) if isinstance(x, Tensor) else x.fingerprint() for key, x in raw.items()}


def _items(
    raw: Tensor | Gathered | Stored, modality: Modality, inputs: Callable[[Tensor], Tensor], shared: bool
) -> tuple[Tensor, NDArray[np.int64] | None]:
    """The first row of each different input, and the input of each row (None: every row has its own)."""
    if modality.kind == "text":
        which = inputs(torch.arange(len(raw)))
    elif shared and isinstance(raw, Gathered):
        which = raw.index
    else:
        return torch.arange(len(raw)), None
    _, firsts, index = np.unique(which.numpy(), axis=0, return_index=True, return_inverse=True)
    return torch.from_numpy(firsts.astype(np.int64)), index.reshape(-1).astype(np.int64)


def _moments(values: NDArray[Any], modality: Modality, items: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """Mean and deviation of each feature, over rows (or some) and tokens that are not padding; `[2, D]`."""

    def blocks() -> Iterator[NDArray[Any]]:
        for first in range(0, len(values if items is None else items), 1024):
            some = slice(first, first + 1024)
            part = np.asarray(values[some if items is None else items[some]])
            flat = np.moveaxis(part, 1, -1) if modality.kind == "image" else part
            flat = flat.reshape(-1, flat.shape[-1])
            yield flat[(flat != 0).any(axis=1)] if modality.kind == "sequence" else flat

    mean, deviation = merged_moments(blocks())
    # A feature that hardly varies is left in its own units instead of blown up.
    return np.stack([mean, np.where(deviation > 1e-6 * np.sqrt(1 + mean**2), deviation, 1.0)])
