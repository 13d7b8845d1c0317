"""Arrays in a file, each a modality: what a preprocessing script leaves behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.base import DataModule, Gathered, Split, SplitName
from datamodules.registry import register
from datamodules.rows.standardise import moments
from datamodules.rows.user_split import class_numbers, split_by_name, split_by_shares
from datamodules.sources.array_file import Array, ArrayFile
from datamodules.sources.data_folder import find_data
from datamodules.spec import Kind, Modality, Task

BLOCK = 1024  # rows looked at together
_KINDS: dict[int, Kind] = {2: "vector", 3: "sequence", 4: "image"}
_TORCH = {np.dtype(t).str for t in ("bool", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8")}
_SPLITS = np.array(["train", "val", "test"])


@register("npz_views")
class NpzViews(DataModule):
    """Your arrays in one .npz file or a folder of .npy files: each a modality, one the target, rows first.

    Arrays are read from disk batch by batch when they are large, and never unpickled. Vectors are standardised per
    feature, sequences and images per channel, with training rows; bytes of an image become 0 to 1. Rows count from 1.

    Args:
        file: The .npz file or the folder, absolute or below POLYMODAL_DATA.
        modalities: Names of arrays, or a table that says what each is: `{ photo = "image", sound = "sequence" }`. A
            list goes by shape: `[N, d]` vector, `[N, T, C]` sequence, `[N, C, H, W]` image. `text` is `[N, L]` token
            ids, 0 padding.
        target: Name of the array with the target: `[N]` classes of any kind, `[N, L]` labels 0 or 1, or values.
        task: What the target is. Classes are numbered in order; F1 of two classes is that of the second.
        metric: Name of the score; empty means the default of the task.
        split: An array that says train, val or test (or 0, 1, 2), or three shares: then the split is stratified by
            class and fixed by `title`.
        group: Array with the source of each row; rows of one source stay in one split.
        title: Of the task; empty means the name of the file.
    """

    licence = "yours"
    citation = "yours"
    source = "folder: a .npz file or a folder of .npy files of yours"

    def __init__(
        self,
        *,
        file: str = "",
        modalities: Sequence[str] | Mapping[str, str] = (),
        target: str = "target",
        task: Literal["multiclass", "multilabel", "regression"] = "multiclass",
        metric: str = "",
        split: str | Sequence[float] = (0.6, 0.2, 0.2),
        group: str = "",
        title: str = "",
    ) -> None:
        super().__init__()
        self.file = file
        self.kinds = dict(modalities) if isinstance(modalities, Mapping) else dict.fromkeys(modalities, "")
        self.target = target
        self.kind: str = task
        self.metric = metric
        self.split = split
        self.group = group
        self.title = title

    @property
    def suffix(self) -> str:
        return f"[{self.title or self._path.stem}]"

    def describe(self) -> Task:
        modalities = tuple(self._modality(name, kind) for name, kind in self.kinds.items())
        if len(modalities) < 2:
            raise ValueError('`modalities` must name two arrays or more: ["image", "sound"] or { image = "image", .. }')
        target, names = self._target
        outputs = len(names) if self.kind == "multiclass" else target.shape[1]
        title = self.title or self._path.stem
        version = self._arrays.fingerprint[:12]
        return Task(title, version, modalities, self.kind, outputs, metric=self.metric, class_names=names)

    def load(self) -> dict[SplitName, Split]:
        rows = self._rows
        values = {m.name: self._values(m, rows["train"]) for m in self.task.modalities}
        target = self._target[0]
        if self.kind == "regression":
            mean, deviation = moments(target[rows["train"]])
            target = (target - mean) / deviation
        y = torch.from_numpy(target) if self.kind == "multiclass" else torch.from_numpy(target).float()
        splits: dict[SplitName, Split] = {}
        for name, index in rows.items():
            own = torch.from_numpy(index)
            inputs = {
                m.name: x[own] if m.kind == "text" else Gathered(x, own, scale, shift)
                for m, (x, scale, shift) in zip(self.task.modalities, values.values(), strict=True)
            }
            group = None if self._groups is None else torch.from_numpy(self._groups[index])
            splits[name] = Split(inputs, y[own], group=group)
        return splits

    @cached_property
    def _path(self) -> Path:
        return find_data(self.file, "`file`")

    @cached_property
    def _arrays(self) -> ArrayFile:
        return ArrayFile(self._path)

    def _modality(self, name: str, kind: str) -> Modality:
        x = self._array(name)
        if kind not in ("", "vector", "sequence", "image", "text"):
            raise ValueError(f"`modalities`: {name} must be a vector, sequence, image or text, got {kind!r}")
        found = kind or _KINDS.get(x.ndim, "")
        if x.ndim != {"vector": 2, "text": 2, "sequence": 3, "image": 4}.get(found, 0):
            expected = "[N, d], [N, T, C] or [N, C, H, W]" if not kind else f"that of a {kind}"
            raise ValueError(f"{self._path}: expected the shape of {name!r} to be {expected}, but got {x.shape}")
        if found == "text":
            if x.dtype.kind not in "iu" or x.min() < 0:
                raise ValueError(f"{self._path}: token ids of {name!r} must be integers >= 0, got {x.dtype}")
            return Modality(name, "text", x.shape[1:], vocabulary=max(2, int(x.max()) + 1))
        if found == "image" and x.dtype == np.uint8:
            return Modality(name, "image", x.shape[1:])
        return Modality(name, found, x.shape[1:], range=None if found == "image" else (0.0, 1.0))  # pyright: ignore

    def _array(self, name: str) -> Array:
        """An array with a row per target."""
        x = self._arrays.get(name)
        rows = len(self._target[0])
        if x.ndim == 0 or len(x) != rows:
            raise ValueError(f"{self._path}: {name!r} has shape {x.shape}, but the target has {rows} rows")
        return x

    def _values(self, modality: Modality, train: NDArray[np.int64]) -> tuple[Tensor, float | Tensor, Tensor | None]:
        """The rows as they are stored, and what makes them inputs: a scale and a shift."""
        x = self._array(modality.name)
        if modality.kind == "text":
            return torch.from_numpy(x.astype(np.int64)), 1.0, None
        _check_finite(x, f"{self._path}: {modality.name!r}")
        # Where it is stored, unless torch cannot index it: other byte orders, long doubles, unsigned words.
        values = torch.from_numpy(x if x.dtype.str in _TORCH else x.astype(np.float32))
        if modality.kind == "image" and modality.range is not None:
            return values, 1 / 255, None
        mean, deviation = channel_moments(x, train, modality.kind)
        return values, torch.from_numpy(1 / deviation).float(), torch.from_numpy(-mean / deviation).float()

    @cached_property
    def _target(self) -> tuple[Array, tuple[str, ...]]:
        y = self._arrays.get(self.target)
        where = f"{self._path}: the target {self.target!r}"
        if self.kind == "multiclass":
            if y.ndim != 1 or y.dtype.kind not in "iubUS":
                raise ValueError(f"{where} must be [N] numbers or names of classes, got {y.dtype} {y.shape}")
            return class_numbers(_text(y))
        y = y[:, None] if y.ndim == 1 else y
        if y.ndim != 2 or y.dtype.kind not in "iubf":
            raise ValueError(f"{where} must be [N] or [N, K] numbers, got {y.dtype} {y.shape}")
        y = np.asarray(y, dtype=np.float64)
        bad = ~np.isfinite(y) if self.kind == "regression" else ~np.isin(y, (0.0, 1.0))
        if bad.any():
            row = int(bad.any(axis=1).argmax())
            expected = "finite numbers" if self.kind == "regression" else "0 or 1"
            raise ValueError(f"{where}, row {row + 1}: expected {expected}, but got {y[row].tolist()}")
        return y, ()

    @cached_property
    def _groups(self) -> NDArray[np.int64] | None:
        return class_numbers(_text(self._array(self.group)))[0] if self.group else None

    @cached_property
    def _rows(self) -> dict[SplitName, NDArray[np.int64]]:
        target = self._target[0]
        if isinstance(self.split, str):
            said = self._array(self.split)
            if said.dtype.kind in "iu" and np.isin(said, (0, 1, 2)).all():
                said = _SPLITS[said]
            return split_by_name(_text(said), self._groups, f"{self._path}, array {self.split!r}")
        strata = target.astype(np.int64) if self.kind == "multiclass" else np.zeros(len(target), dtype=np.int64)
        return split_by_shares(self.split, strata, self.title or self._path.stem, self._groups)


def channel_moments(x: Array, rows: NDArray[np.int64], kind: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and deviation of the training rows, per feature of a vector, per channel of a sequence or an image.

    Shaped to broadcast over a row. Looks at a block of rows at a time; blocks are merged by their exact moments.
    """
    axes = {"vector": (0,), "sequence": (0, 1), "image": (0, 2, 3)}[kind]
    count, mean, squares = 0.0, np.zeros(()), np.zeros(())
    for start in range(0, len(rows), BLOCK):
        block = np.asarray(x[np.sort(rows[start : start + BLOCK])], dtype=np.float64)
        size = block.size / block.mean(axis=axes).size
        own = block.mean(axis=axes, keepdims=True)[0]
        spread = ((block - own) ** 2).sum(axis=axes, keepdims=True)[0]
        step = own - mean
        squares = squares + spread + step**2 * count * size / (count + size)
        mean = mean + step * size / (count + size)
        count += size
    deviation = np.sqrt(squares / count)
    deviation = np.where(deviation > 1e-12, deviation, 1.0)
    # Sums differ in their last bits between processors: rounded as in `standardise`.
    deviation = np.array([float(f"{value:.6g}") for value in deviation.flat]).reshape(deviation.shape)
    return np.round(mean / deviation, 6) * deviation, deviation


def _check_finite(x: Array, where: str) -> None:
    if x.dtype.kind not in "iubf":
        raise ValueError(f"{where} must hold numbers, got {x.dtype}")
    for start in range(0, len(x) if x.dtype.kind == "f" else 0, BLOCK):
        good = np.isfinite(x[start : start + BLOCK]).reshape(len(x[start : start + BLOCK]), -1).all(axis=1)
        if not good.all():
            raise ValueError(f"{where}, row {start + int((~good).argmax()) + 1} has values that are not finite")


def _text(x: Array) -> NDArray[np.str_]:
    return np.char.decode(x, "utf-8") if x.dtype.kind == "S" else x.astype(np.str_)
