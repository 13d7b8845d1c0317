"""The pickles of MMSA (MOSI, MOSEI, SIMS: text, audio and vision of each utterance) as arrays in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.base import SplitName
from datamodules.rows.resample import resample
from datamodules.sources.files import write_whole
from datamodules.sources.plain_pickle import read_plain_pickle

PARTS: dict[SplitName, str] = {"train": "train", "val": "valid", "test": "test"}
MODALITIES = ("text", "audio", "vision")
SEPARATOR = "$_$"  # between the video and the number of the utterance


def convert(path: Path, output: Path, length: int) -> dict[SplitName, int]:
    """Write `train.npz`, `val.npz` and `test.npz` to a folder, and return how many rows each has.

    Each has `text`, `audio` and `vision` `[N, length, D]` in single precision, `target` `[N]` and `video` `[N]`; and
    `raw_text` `[N]`, the words for people to read, where the file has them.
    Frames that the file calls padding (`audio_lengths`, `vision_lengths`) are left out before a sequence is resampled.
    Values that are not finite become 0, as MMSA reads them.
    """
    content = read_plain_pickle(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a dictionary of {', '.join(PARTS.values())}, got {type(content).__name__}")
    parts: dict[SplitName, dict[str, NDArray[Any]]]
    parts = {name: _part(content, key, length, path) for name, key in PARTS.items()}
    for name, arrays in parts.items():  # all of them are right before the first is written

        def fill(place: Path, arrays: Mapping[str, NDArray[Any]] = arrays) -> None:
            np.savez(place, allow_pickle=False, **arrays)

        write_whole(output / f"{name}.npz", fill)
    return {name: len(arrays["target"]) for name, arrays in parts.items()}


def _part(content: Mapping[Any, Any], key: str, length: int, path: Path) -> dict[str, NDArray[Any]]:
    where = f"{path}, part {key!r}"
    part = content.get(key)
    if not isinstance(part, dict):
        raise ValueError(f"{where}: must be a dictionary in the layout of MMSA, got {type(part).__name__}")
    target = _field(part, "regression_labels", where)
    target = np.asarray(target, dtype=np.float32) if _numeric(target) else np.zeros(0)
    if target.ndim != 1 or not len(target) or not np.isfinite(target).all():
        raise ValueError(f"{where}, 'regression_labels': must be [N] finite numbers, one at least")
    expected = f"strings like VIDEO{SEPARATOR}NUMBER"
    names = _strings(_field(part, "id", where), len(target), f"{where}, 'id'", expected)
    arrays: dict[str, NDArray[Any]] = {name: _sequences(part, name, len(target), length, where) for name in MODALITIES}
    if "raw_text" in part:
        arrays["raw_text"] = np.array(_strings(part["raw_text"], len(target), f"{where}, 'raw_text'", "strings"))
    return {**arrays, "target": target, "video": np.array([name.partition(SEPARATOR)[0] for name in names])}


def _sequences(part: Mapping[Any, Any], name: str, rows: int, length: int, where: str) -> NDArray[np.float32]:
    x = _field(part, name, where)
    if not isinstance(x, np.ndarray) or x.ndim != 3 or len(x) != rows or not x.shape[1] or x.dtype.kind not in "iuf":
        found = f"{x.dtype} {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
        raise ValueError(f"{where}, {name!r}: must be [{rows}, T, D] numbers, got {found}")
    frames = np.full(rows, x.shape[1])
    if f"{name}_lengths" in part:
        given = part[f"{name}_lengths"]
        frames = np.asarray(given) if _numeric(given) else np.zeros(0)
        if frames.shape != (rows,) or frames.dtype.kind not in "iu" or frames.max() > x.shape[1]:
            raise ValueError(f"{where}, '{name}_lengths': must be [{rows}] integers up to {x.shape[1]}")
    made = np.empty((rows, length, x.shape[2]), dtype=np.float32)
    for row, size in enumerate(np.maximum(frames, 1).tolist()):
        one = np.where(np.isfinite(x[row, :size]), x[row, :size], 0)
        made[row] = one if size == length else resample(one, length)
    return made


def _field(part: Mapping[Any, Any], name: str, where: str) -> Any:
    if name not in part:
        raise ValueError(f"{where}: has no {name!r}; the layout of MMSA has text, audio, vision, id, regression_labels")
    return part[name]


def _numeric(values: Any) -> bool:
    if isinstance(values, np.ndarray):
        return values.dtype.kind in "iuf"
    return isinstance(values, list) and all(type(value) in (int, float) for value in values)


def _strings(values: Any, rows: int, where: str, expected: str) -> Sequence[str]:
    if isinstance(values, np.ndarray) and values.dtype.kind in "US" and values.ndim == 1:
        values = [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in values.tolist()]
    if not isinstance(values, list) or len(values) != rows or not all(isinstance(name, str) for name in values):
        raise ValueError(f"{where}: must be {rows} {expected}")
    return values
