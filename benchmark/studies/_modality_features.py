"""Frozen features of single modalities: what one learns alone, what it learns beside the others, or its raw inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from torch import Tensor

from benchmark.build import build_method
from benchmark.seeds import seed_all
from benchmark.trainer import fit
from datamodules.base import DataModule, SplitName
from datamodules.interactions import Interaction
from datamodules.spec import Modality

MOST_COMPONENTS = 16  # of raw inputs
MOST_ROWS = 5_000  # to find them: a training split of images may not fit into memory as floats
HELD_OUT: tuple[SplitName, ...] = ("val", "test")
SPLITS: tuple[SplitName, ...] = ("train", *HELD_OUT)

Source = Literal["unimodal", "joint", "raw"]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Features:
    """One modality's features, `[rows, d]`, and the held-out accuracy of who learnt it alone, if anybody did."""

    train: Floats
    held_out: Floats
    accuracy: float | None = None


def features_of(
    data: DataModule,
    dataset: str,
    pair: tuple[str, str],
    recipe: Mapping[str, Any],
    asked: Source | None,
    seed: int,
) -> tuple[Source, str, list[Features]]:
    """Where the features come from, why, and the features.

    Args:
        recipe: Of the networks that learn them.
        asked: None takes what a modality learns alone, unless neither learns anything.
    """
    if asked == "raw":
        return "raw", "asked for", [raw(data, name) for name in pair]
    if asked == "joint":
        return "joint", "asked for", _joint_features(data, dataset, pair, recipe, seed)
    alone = [_alone(data, dataset, name, recipe, seed) for name in pair]
    if asked == "unimodal" or not data.task.goal.classifies:
        return "unimodal", "asked for" if asked else "the default", alone
    labels = torch.cat([data.splits[split].target for split in HELD_OUT])
    majority = float(labels.bincount().max()) / len(labels)
    noise = math.sqrt(majority * (1 - majority) / len(labels))
    if any((f.accuracy or 0) > majority + 3 * noise for f in alone):
        return "unimodal", "the default", alone
    why = f"alone, neither beats the majority class ({majority:.3f} of the held-out rows) by three standard errors"
    known = isinstance(data, Interaction)  # its signals are the leading components of the inputs
    others = [raw(data, n) for n in pair] if known else _joint_features(data, dataset, pair, recipe, seed)
    kept = [replace(f, accuracy=a.accuracy) for f, a in zip(others, alone, strict=True)]
    return "raw" if known else "joint", why, kept


def _alone(data: DataModule, dataset: str, name: str, recipe: Mapping[str, Any], seed: int) -> Features:
    """What `unimodal` learns of one modality: its encoding, and how often it is right on held-out rows."""
    method = _fitted("unimodal", {"modality": name}, data, dataset, recipe, seed)
    parts: dict[SplitName, Floats] = {}
    right = []
    for split in SPLITS:
        encodings = []
        for batch in data.ordered(split):
            out = method(batch.inputs, batch.present)
            encodings.append(out.fused)
            if split != "train" and data.task.goal.classifies:
                right.append((out.logits.argmax(dim=1) == batch.target).float())
        parts[split] = _array(torch.cat(encodings))
    accuracy = float(torch.cat(right).mean()) if right else None
    return Features(parts["train"], np.concatenate([parts[s] for s in HELD_OUT]), accuracy)


def _joint_features(
    data: DataModule, dataset: str, pair: tuple[str, str], recipe: Mapping[str, Any], seed: int
) -> list[Features]:
    """What concat's encoder of each modality learns beside the others'."""
    method = _fitted("concat", {}, data, dataset, recipe, seed)
    z = {split: torch.cat([method(batch.inputs, batch.present).z for batch in data.ordered(split)]) for split in SPLITS}
    index = [data.task.names.index(name) for name in pair]
    held_out = torch.cat([z[split] for split in HELD_OUT])
    return [Features(_array(z["train"][:, m]), _array(held_out[:, m])) for m in index]


def _fitted(
    name: str, options: Mapping[str, Any], data: DataModule, dataset: str, recipe: Mapping[str, Any], seed: int
) -> Any:
    """A method trained as a cell of the benchmark is; its rows come without gradients."""
    seed_all(dataset, seed, "init")
    method = build_method(name, options, data.task, recipe)
    fit(method, data, seed=seed)
    return method.requires_grad_(False).to("cpu").train(False)


def raw(data: DataModule, name: str) -> Features:
    """Principal components of the inputs with more than the average variance (Kaiser's rule), at most 16."""
    modality = next(m for m in data.task.modalities if m.name == name)
    inputs = data.splits["train"].inputs[name]
    # Rows may be sorted by class: a sample, not the first ones.
    train = _flat(modality, inputs[torch.from_numpy(np.random.default_rng(0).permutation(len(inputs))[:MOST_ROWS])])
    components = PCA(min(MOST_COMPONENTS, *train.shape), random_state=0).fit(train)
    average = train.var(axis=0, ddof=1).mean()
    kept = max(1, int((np.asarray(components.explained_variance_) > average).sum()))
    held_out = [
        components.transform(_flat(modality, batch.inputs[name])) for split in HELD_OUT for batch in data.ordered(split)
    ]
    return Features(components.transform(train)[:, :kept], np.concatenate(held_out)[:, :kept])


def _flat(modality: Modality, x: Tensor) -> Floats:
    """`[N, d]`; a text as the number of times each token occurs in it."""
    if modality.kind == "text":
        x = torch.zeros(len(x), modality.vocabulary).scatter_add_(1, x.long(), torch.ones(x.shape))[:, 1:]
    return _array(x.flatten(1))


def _array(x: Tensor) -> Floats:
    return x.detach().double().numpy()
