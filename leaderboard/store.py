"""Results folders: one JSON record and one `.npz` of predictions per cell, written atomically, read with suspicion."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from leaderboard.record import InvalidRecord, Record

_STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")


@dataclass(frozen=True)
class Reading:
    """What a results folder holds: the records that can be trusted, and the files that cannot, with the reason."""

    records: tuple[Record, ...]
    invalid: tuple[tuple[Path, str], ...]


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
            (self.folder / ".writable").unlink()
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

    def write(self, record: Record, predictions: Mapping[str, np.ndarray] | None = None) -> Path:
        """Store a record and its predictions, replacing older ones."""
        if predictions is not None:
            buffer = io.BytesIO()
            np.savez_compressed(buffer, allow_pickle=False, **dict(predictions))
            self._write(self.path(record.cell, ".npz"), buffer.getvalue())
        path = self.path(record.cell)
        self._write(path, record.to_json().encode())
        return path

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
        if record is None or record.status != "ok" or not zipfile.is_zipfile(self.path(cell, ".npz")):
            return None
        return record

    def predictions(self, cell: str) -> dict[str, np.ndarray]:
        """The cell's predictions: `target`, `row`, `pred:<condition id>` and, for the clean condition, `prob:clean`."""
        with np.load(self.path(cell, ".npz"), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}

    def scan(self) -> Reading:
        """Read every record of the folder, sorted by name.

        What cannot be trusted is named, never dropped in silence.
        """
        records: list[Record] = []
        invalid: list[tuple[Path, str]] = []
        for path in sorted(self._files()):
            try:
                record = _read(path)
                if record.cell != path.stem:
                    raise InvalidRecord(f"file name says {path.stem}, record says {record.cell}")
                records.append(record)
            except InvalidRecord as error:
                invalid.append((path, str(error)))
        return Reading(tuple(records), tuple(invalid))

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
        return Record.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRecord(f"cannot be read: {error}") from None
