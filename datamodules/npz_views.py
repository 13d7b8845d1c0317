"""Arrays in a file, each a modality: what a preprocessing script leaves behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.base import SPLITS, Gathered, Split, SplitName
from datamodules.bases.user_views import FILL, LARGEST, Gaps, NewRows, UserTarget, UserViews
from datamodules.registry import register
from datamodules.rows.fixed_order import Integers
from datamodules.rows.standardise import Doubles, merged_moments
from datamodules.rows.user_split import class_numbers
from datamodules.sources.array_file import Array, ArrayFile
from datamodules.spec import Kind, Modality, Task

_There = dict[str, NDArray[np.bool_]]
BLOCK = 1024  # rows looked at together
_KINDS: dict[int, Kind] = {2: "vector", 3: "sequence", 4: "image"}
_AXES = {kind: axes for axes, kind in _KINDS.items()}
_TORCH = {np.dtype(t).str for t in ("bool", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8")}


class RowsWithGaps(Gathered):
    """Rows of which some have NaN: these are absent, and zero."""

    def prepare(self, x: Tensor) -> Tensor:
        absent = x.isnan().flatten(1).any(dim=1)
        x = super().prepare(x)
        x[absent] = 0.0
        return x


@register("npz_views")
class NpzViews(UserViews):
    """Your arrays in one .npz file or a folder of .npy files: each a modality, one the target, rows first.

    Arrays are read from disk batch by batch when they are large, and never unpickled. Vectors are standardised per
    feature, sequences and images per channel, with training rows; bytes of an image become 0 to 1. A row of nothing but
    NaN lacks that modality; a row of some NaN is an error, which names it, unless `gaps` is "absent". Integers (bytes,
    token ids) have no NaN, and are always there.

    Args:
        file: The .npz file or the folder, absolute or below POLYMODAL_DATA.
        modalities: Names of arrays, or a table that says what each is: `{ photo = "image", sound = "sequence" }`. A
            list goes by shape: `[N, d]` vector, `[N, T, C]` sequence, `[N, C, H, W]` image. `text` is `[N, L]` token
            ids, 0 padding.
        target: Name of the array with the target: `[N]` classes of any kind, `[N, L]` labels 0 or 1, or values.
        task, metric, split, group, gaps, title: As of every `UserViews`; `split` (which may say 0, 1, 2) and `group`
            name arrays.
    """

    source = "folder: a .npz file or a folder of .npy files of yours"

    def __init__(
        self,
        *,
        file: str = "",
        modalities: Sequence[str] | Mapping[str, Kind] = (),
        target: str = "target",
        task: UserTarget = "multiclass",
        metric: str = "",
        split: str | Sequence[float] = (0.6, 0.2, 0.2),
        group: str = "",
        gaps: Gaps = "error",
        title: str = "",
    ) -> None:
        super().__init__(file=file, task=task, metric=metric, split=split, group=group, gaps=gaps, title=title)
        self.kinds: Mapping[str, Kind | None]
        self.kinds = modalities if isinstance(modalities, Mapping) else dict.fromkeys(modalities)
        self.target = target
        self._known: tuple[dict[SplitName, Integers], _There, Tensor | None] | None = None

    def describe(self) -> Task:
        modalities = [self._modality(name, kind) for name, kind in self.kinds.items()]
        if len(modalities) < 2:
            raise ValueError('`modalities` must name two arrays or more: ["image", "sound"] or { image = "image", .. }')
        self.check_target(*self._target, f"{self.path}, `target` {self.target!r}")
        self._complete(modalities)  # now: a bad row is an error of the plan, and not of every cell
        return self.task_of(self._arrays.fingerprint[:12], modalities, *self._target)

    def load(self) -> dict[SplitName, Split]:
        modalities = self.task.modalities
        rows, there, present = self._complete(modalities)
        rows_of = {name: Gathered if own.all() else RowsWithGaps for name, own in there.items()}
        values = {m.name: self._values(m, *self._moments[m.name]) for m in modalities}
        y = self.target_tensor(self._target[0], rows["train"])
        splits: dict[SplitName, Split] = {}
        for name, index in rows.items():
            own = torch.from_numpy(index)
            inputs = {
                m.name: x[own] if m.kind == "text" else rows_of[m.name](x, own, scale, shift)
                for m, (x, scale, shift) in zip(modalities, values.values(), strict=True)
            }
            here = None if present is None else present[own]
            splits[name] = Split(inputs, y[own], here, self.group_of(index))
        return splits

    @cached_property
    def _arrays(self) -> ArrayFile:
        return ArrayFile(self.path)

    def _modality(self, name: str, kind: Kind | None) -> Modality:
        x = self._array(name)
        found = kind or _KINDS.get(x.ndim)
        if found is None or x.ndim != (2 if found == "text" else _AXES[found]):
            expected = "[N, d], [N, T, C] or [N, C, H, W]" if kind is None else f"that of a {kind}"
            raise ValueError(f"{self.path}: the shape of {name!r} must be {expected}, got {x.shape}")
        if found == "text":
            if x.dtype.kind not in "iu" or x.min() < 0:
                raise ValueError(f"{self.path}: token ids of {name!r} must be integers >= 0, got {x.dtype}")
            return Modality(name, "text", x.shape[1:], vocabulary=max(2, int(x.max()) + 1))
        if found == "image" and x.dtype == np.uint8:
            return Modality(name, "image", x.shape[1:])
        return Modality(name, found, x.shape[1:], range=None if found == "image" else (0.0, 1.0))

    def _array(self, name: str) -> Array:
        """An array with a row per target."""
        x = self._arrays.get(name)
        rows = len(self._target[0])
        if x.ndim == 0 or len(x) != rows:
            raise ValueError(f"{self.path}: {name!r} must have {rows} rows as the target, got the shape {x.shape}")
        return x

    def _there(self, modality: Modality, x: Array, path: Path) -> NDArray[np.bool_]:
        """`[N]` the rows of an array that have the modality: those without NaN."""
        where = f"{path}: {modality.name!r}"
        if x.dtype.kind not in "iubf":
            raise ValueError(f"{where} must hold numbers, got {x.dtype}")
        there = np.ones(len(x), dtype=bool)
        for start in range(0, len(x) if x.dtype.kind == "f" else 0, BLOCK):
            block = x[start : start + BLOCK].reshape(len(x[start : start + BLOCK]), -1)
            empty = np.isnan(block)
            huge = np.isinf(block) | (np.abs(block) > LARGEST)  # a half-precision bound would itself be infinite
            bad = huge.any(axis=1)
            if self.gaps == "error":
                bad |= empty.any(axis=1) & ~empty.all(axis=1)
            if bad.any():
                row = int(bad.argmax())
                advice = f" and at most {LARGEST:g}" if huge[row].any() else f", and some are NaN: {FILL}"
                raise ValueError(f"{where}, row {start + row + 1}: values must be finite{advice}")
            there[start : start + BLOCK] = ~empty.any(axis=1)
        return there

    def _complete(self, modalities: Sequence[Modality]) -> tuple[dict[SplitName, Integers], _There, Tensor | None]:
        """The rows of each split, those that have each modality, and the same for a `Split`."""
        if self._known is None:
            rows = self.split_rows(self._target[0])
            there = {m.name: self._there(m, self._array(m.name), self.path) for m in modalities}
            self._known = rows, there, self.present_of(there, rows["train"])
        return self._known

    @cached_property
    def _moments(self) -> dict[str, tuple[float | Tensor, Tensor | None]]:
        """Modality -> the scale and the shift that make its stored rows inputs, by training rows."""
        rows, there, _ = self._complete(self.task.modalities)
        found: dict[str, tuple[float | Tensor, Tensor | None]] = {}
        for m in self.task.modalities:
            if m.kind == "text":
                found[m.name] = (1.0, None)
            elif m.kind == "image" and m.range is not None:
                found[m.name] = (1 / 255, None)
            else:
                train = rows["train"][there[m.name][rows["train"]]]
                mean, deviation = channel_moments(self._array(m.name), train, m.kind)
                found[m.name] = (
                    torch.from_numpy(1 / deviation).float(),
                    torch.from_numpy(-mean / deviation).float(),
                )
        return found

    def _values(
        self, modality: Modality, scale: float | Tensor, shift: Tensor | None
    ) -> tuple[Tensor, float | Tensor, Tensor | None]:
        """The rows as they are stored, and what makes them inputs: a scale and a shift."""
        return _stored(modality, self._array(modality.name)), scale, shift

    @property
    def known_target(self) -> tuple[NDArray[Any], tuple[str, ...]]:
        return self._target

    @property
    def views_of(self) -> dict[str, Any]:
        return {
            name: {"scale": torch.as_tensor(scale).tolist(), "shift": None if shift is None else shift.tolist()}
            for name, (scale, shift) in self._moments.items()
        }

    def new_rows(self, path: Path) -> NewRows:
        arrays, inputs, present = ArrayFile(path), {}, []
        for m in self.task.modalities:
            x = arrays.get(m.name)
            if x.shape[1:] != m.shape or not len(x) or len({len(x), *(len(there) for there in present)}) > 1:
                shape = ", ".join(map(str, m.shape))
                raise ValueError(f"{path}: {m.name!r} must be [N, {shape}], N the same for all, got {x.shape}")
            present.append(self._there(m, x, path))
            index = torch.arange(len(x))
            scale, shift = self._moments[m.name]
            if m.kind == "text":
                ids = _stored(m, x)
                inputs[m.name] = ids.where(ids < m.vocabulary, 1)  # a word that training never had is unknown
            else:
                inputs[m.name] = RowsWithGaps(_stored(m, x), index, scale, shift)[index]
        if (nothing := ~np.stack(present).any(axis=0)).any():
            raise ValueError(f"{path}, row {int(nothing.argmax()) + 1}: every modality is empty")
        return NewRows(inputs, torch.from_numpy(np.stack(present, axis=1)))

    @cached_property
    def _target(self) -> tuple[Array, tuple[str, ...]]:
        y = self._arrays.get(self.target)
        where = f"{self.path}: the target {self.target!r}"
        if self.kind == "multiclass":
            if y.ndim != 1 or y.dtype.kind not in "iubUS":
                raise ValueError(f"{where} must be [N] numbers or names of classes, got {y.dtype} {y.shape}")
            return class_numbers(_text(y))
        y = y[:, None] if y.ndim == 1 else y
        if y.ndim != 2 or y.dtype.kind not in "iubf":
            raise ValueError(f"{where} must be [N] or [N, K] numbers, got {y.dtype} {y.shape}")
        y = np.asarray(y, dtype=np.float64)
        if bad := self.first_bad(y):
            raise ValueError(f"{where}, row {bad[0] + 1}: must be {self.expected}, got {y[bad]}")
        return y, ()

    def labels(self, name: str) -> NDArray[np.str_]:
        x = self._array(name)
        if name == self.split and x.dtype.kind in "iu" and np.isin(x, (0, 1, 2)).all():
            return np.array(SPLITS)[x]
        return _text(x)


def channel_moments(x: Array, rows: NDArray[np.int64], kind: Kind) -> tuple[Doubles, Doubles]:
    """Mean and deviation of the training rows, per feature of a vector, per channel of a sequence or an image.

    Shaped to broadcast over a row. Looks at a block of rows at a time.
    """
    blocks = (x[np.sort(rows[start : start + BLOCK])] for start in range(0, len(rows), BLOCK))
    last = (np.moveaxis(block, 1, -1) if kind == "image" else block for block in blocks)
    mean, deviation = merged_moments(block.reshape(-1, block.shape[-1]) for block in last)
    shape = (-1, 1, 1) if kind == "image" else (-1,)
    return mean.reshape(shape), deviation.reshape(shape)


def _stored(modality: Modality, x: Array) -> Tensor:
    """Where it is stored, unless torch cannot index it: other byte orders, long doubles, unsigned words."""
    if modality.kind == "text":
        return torch.from_numpy(x.astype(np.int64))
    return torch.from_numpy(x if x.dtype.str in _TORCH else x.astype(np.float32))


def _text(x: Array) -> NDArray[np.str_]:
    return np.char.decode(x, "utf-8") if x.dtype.kind == "S" else x.astype(np.str_)
