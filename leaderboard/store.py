"""Results folders: one JSON record and one `.npz` of predictions per cell, written atomically, read with suspicion."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import multiprocessing
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from leaderboard import bounded_npz
from leaderboard.bounded_npz import InvalidPredictions
from leaderboard.record import InvalidRecord, Record
from leaderboard.trust import PREDICTED, contradiction

_MANY = 1000  # records from which on several processes check them faster than one
_STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")


@dataclass(frozen=True)
class Reading:
    """What a results folder holds: the records that can be trusted, and the files that cannot, with the reason."""

    records: tuple[Record, ...]
    invalid: tuple[tuple[Path, str], ...]


@dataclass(frozen=True)
class Verdict:
    """What is to be thought of one file of a results folder; `invalid` ones have a problem."""

    path: Path
    status: Literal["ok", "failed", "invalid"]
    problem: str = ""


class Store:
    """A results folder.

    Every file is written under a temporary name in the same folder and then renamed, predictions before the record, so
    that a record that exists is complete whatever killed the writer.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def prepare(self) -> None:
        """Create the folder and prove that a file can be written there.

        Raises:
            OSError: If it cannot, naming the folder; better now than after an hour of training.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write(self.folder / ".writable", b"polymodal\n" * 1024)
            (self.folder / ".writable").unlink(missing_ok=True)  # another runner may prove the same just now
        except OSError as error:
            raise OSError(f"cannot write to the results folder {self.folder}: {error.strerror or error}") from error

    def path(self, cell: str, suffix: str = ".json") -> Path:
        """The cell's file with this suffix.

        Raises:
            ValueError: If the id could leave the folder.
        """
        if not _STEM.fullmatch(cell):
            raise ValueError(f"not a cell id: {cell!r}")
        return self.folder / f"{cell}{suffix}"

    def write(self, record: Record, predictions: Mapping[str, np.ndarray] | None = None) -> Record:
        """Store a record and its predictions, replacing older ones; the record as it was stored."""
        if predictions is not None:
            buffer = io.BytesIO()
            np.savez_compressed(buffer, allow_pickle=False, **_packed(predictions))
            content = buffer.getvalue()
            self._write(self.path(record.cell.id, ".npz"), content)
            record = msgspec.structs.replace(record, predictions=hashlib.sha256(content).hexdigest())
        self._write(self.path(record.cell.id), record.to_json().encode())
        return record

    def write_bytes(self, cell: str, suffix: str, content: bytes) -> Path:
        """Store another file of the cell, such as its checkpoint."""
        path = self.path(cell, suffix)
        self._write(path, content)
        return path

    def read(self, cell: str) -> Record | None:
        """The cell's record, or None if there is none.

        Raises:
            InvalidRecord: If the file is there but cannot be trusted.
        """
        path = self.path(cell)
        return _read(path) if path.exists() else None

    def done(self, cell: str) -> Record | None:
        """The cell's record if it is valid, successful and has its predictions; else None, and the cell runs again."""
        try:
            record = self.read(cell)
        except InvalidRecord:
            return None
        return record if record is not None and record.status == "ok" and self._has_predictions(record) else None

    def lock(self, cell: str) -> FileLock:
        """The cell's lock; the kernel lets go of it when the process that holds it dies, however it dies."""
        folder = self.folder / ".locks"
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / self.path(cell).stem)

    def _has_predictions(self, record: Record) -> bool:
        """Whether the `.npz` beside the record is, byte for byte, the one that was written with it."""
        try:
            content = self.path(record.cell.id, ".npz").read_bytes()
        except OSError:
            return False
        return hashlib.sha256(content).hexdigest() == record.predictions

    def predictions(self, cell: str, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
        """The cell's predictions: `target`, `row`, `pred:<condition id>` and, for the clean condition, `prob:clean`.

        Args:
            cell: Its id.
            names: Only these, as far as they are there; reading one costs a tenth of a millisecond.

        Raises:
            OSError: If there is no file that can be read.
            InvalidPredictions: If it is damaged, or claims to be larger than it can be.
        """
        content = self.path(cell, ".npz").read_bytes()
        if names is None:
            return _unpacked(bounded_npz.read(content))
        found = _unpacked(bounded_npz.read(content, lambda name: name in names or name in ("conditions", "pred")))
        return {name: array for name, array in found.items() if name in names}

    def problem(self, record: Record) -> str | None:
        """What is wrong with the predictions of a record; None if they give, for each condition, its score."""
        try:
            content = self.path(record.cell.id, ".npz").read_bytes()
            if hashlib.sha256(content).hexdigest() != record.predictions:
                return "predictions are not those the record was written with"
            # Probabilities are most of the bytes, and no score is made of them.
            return contradiction(
                record, _unpacked(bounded_npz.read(content, lambda name: not name.startswith("prob:")))
            )
        except (OSError, InvalidPredictions) as error:
            return f"predictions cannot be read: {error}"

    def scan(self, made: Callable[[Record], Record] | None = None) -> Reading:
        """Read every record of the folder, sorted by name.

        What cannot be trusted is named, never dropped in silence.

        Args:
            made: What is kept of each; all of it, if nothing else is said.
        """
        records: list[Record] = []
        invalid: list[tuple[Path, str]] = []
        with _no_garbage():
            for path in sorted(self._files()):
                try:
                    record = _read(path)
                    records.append(record if made is None else made(record))
                except InvalidRecord as error:
                    invalid.append((path, str(error)))
        return Reading(tuple(records), tuple(invalid))

    def verify(self) -> list[Verdict]:
        """Check every record of the folder and the predictions of the successful ones, byte by byte, sorted by name."""
        paths = sorted(self._files())
        cores = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)
        if len(paths) < _MANY or cores == 1:
            return [self.verdict(path) for path in paths]
        with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
            return list(pool.map(self.verdict, paths, chunksize=100))

    def verdict(self, path: Path) -> Verdict:
        """Check one record and its predictions."""
        with _no_garbage():
            try:
                record = _read(path)
            except InvalidRecord as error:
                return Verdict(path, "invalid", str(error))
            problem = self.problem(record) if record.status == "ok" else None
        if record.status == "failed":
            return Verdict(path, "failed")
        return Verdict(self.path(record.cell.id, ".npz"), "invalid", problem) if problem else Verdict(path, "ok")

    def _files(self) -> Iterator[Path]:
        if not self.folder.is_dir():
            return
        for entry in os.scandir(self.folder):
            if entry.name.endswith(".json") and not entry.name.startswith("."):
                yield Path(entry.path)

    def _write(self, path: Path, content: bytes) -> None:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def _read(path: Path) -> Record:
    try:
        record = Record.from_json(path.read_bytes())
    except OSError as error:
        raise InvalidRecord(f"cannot be read: {error}") from None
    if record.cell.id != path.stem:
        raise InvalidRecord(f"file name says {path.stem}, what it describes is {record.cell.id}")
    return record


@contextlib.contextmanager
def _no_garbage() -> Iterator[None]:
    """Hold the garbage collector: records have no cycles, and looking for them in a growing heap doubles the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _packed(predictions: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The predictions of all conditions as one array: a member of a zip costs as much to open as 100 kB to read."""
    names = [name for name in predictions if name.startswith(PREDICTED)]
    alone = {name: array for name, array in predictions.items() if name not in names}
    if len({predictions[name].shape for name in names}) != 1:
        return dict(predictions)
    ids = [name.removeprefix(PREDICTED) for name in names]
    return {**alone, "conditions": np.array(ids), "pred": np.stack([predictions[name] for name in names])}


def _unpacked(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    if "conditions" not in arrays:
        return arrays
    ids, stacked = arrays.pop("conditions"), arrays.pop("pred", np.empty(0))
    if ids.dtype.kind != "U" or ids.ndim != 1 or stacked.ndim < 2 or len(ids) != len(stacked):
        raise InvalidPredictions("`conditions` does not name the predictions")
    return {**arrays, **{f"{PREDICTED}{name}": one for name, one in zip(ids.tolist(), stacked, strict=True)}}
