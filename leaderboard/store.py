"""Results folders: one JSON record and one `.npz` of predictions per cell, written atomically, read with suspicion."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import os
import re
import socket
import stat
import tempfile
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from leaderboard import bounded_npz
from leaderboard.bounded_npz import InvalidPredictions
from leaderboard.processes import cores, pool
from leaderboard.record import InvalidRecord, Record
from leaderboard.trust import PREDICTED, Claim, Stack, contradiction

_MANY = 1000  # records from which on several processes check them faster than one
_LARGEST = 2**30  # bytes of a file that we read
_STACKED = ("conditions", "pred")  # the predictions of all conditions, and their names
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
    trace: str = ""  # what two runs never have in common: every prediction, and how long each step took


class Locked(RuntimeError):
    """Another process is in this cell; the message says which."""


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
            with contextlib.suppress(Locked), self.lock("writable"):  # another runner may prove the same just now
                write_whole(self.folder / "writable.proof", b"polymodal\n" * 1024)
                (self.folder / "writable.proof").unlink()
            self._sweep()
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
            write_whole(self.path(record.cell.id, ".npz"), content)
            record = msgspec.structs.replace(record, predictions=hashlib.sha256(content).hexdigest())
        write_whole(self.path(record.cell.id), record.to_json().encode())
        return record

    def write_bytes(self, cell: str, suffix: str, content: bytes) -> Path:
        """Store another file of the cell, such as its checkpoint."""
        path = self.path(cell, suffix)
        write_whole(path, content)
        return path

    def read(self, cell: str) -> Record | None:
        """The cell's record, or None if there is none.

        Raises:
            InvalidRecord: If the file is there but cannot be trusted, naming it.
        """
        path = self.path(cell)
        try:
            return _read(path) if path.exists() else None
        except InvalidRecord as error:
            raise InvalidRecord(f"{path}: {error}") from None

    def done(self, cell: str) -> Record | None:
        """The cell's record if it is successful and can be trusted; else None, and the cell runs again."""
        try:
            record = self.read(cell)
        except InvalidRecord:
            return None
        return record if record is not None and record.status == "ok" and self.problem(record) is None else None

    def settled(self, cells: Sequence[str]) -> set[str]:
        """Those of many cells that are done."""
        there = [path for path in map(self.path, cells) if path.exists()]
        return {verdict.path.stem for verdict in self._verdicts(there, _forgotten) if verdict.status == "ok"}

    @contextlib.contextmanager
    def lock(self, cell: str) -> Generator[None]:
        """Hold the cell's lock; the kernel lets go of it when the process that holds it dies, however it dies.

        Raises:
            Locked: If another process holds it, naming that process.
        """
        folder = self.folder / ".locks"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / self.path(cell).stem
        note = file.with_name(f"{file.name}.holder")
        try:
            with FileLock(file, blocking=False):
                with contextlib.suppress(OSError):  # a courtesy: a full disk is said of what matters
                    note.write_text(f"process {os.getpid()} on {socket.gethostname()}")
                try:
                    yield
                finally:
                    with contextlib.suppress(OSError):
                        note.unlink()
        except Timeout:
            raise Locked(note.read_text() if note.exists() else "another process") from None

    def predictions(self, cell: str, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
        """The cell's predictions: `target`, `row`, `pred:<condition id>` and, for the clean condition, `prob:clean`.

        Args:
            cell: Its id.
            names: Only these, as far as they are there; reading one costs a tenth of a millisecond.

        Raises:
            OSError: If there is no file that can be read.
            InvalidPredictions: If it is damaged, or claims to be larger than it can be.
        """
        content = _content(self.path(cell, ".npz"))
        if names is None:
            return _apart(*_split(bounded_npz.read(content)))
        arrays = bounded_npz.read(content, lambda name: name in names or name in _STACKED)
        return {name: array for name, array in _apart(*_split(arrays)).items() if name in names}

    def stacked(self, cell: str, conditions: Sequence[str]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The cell's `target`, its `row`, and its predictions under these conditions in one array.

        Raises:
            OSError: If there is no file that can be read.
            InvalidPredictions: If it is damaged, or claims to be larger than it can be.
            KeyError: If something of it is not there.
        """
        wanted = {"target", "row", *_STACKED, *(f"{PREDICTED}{name}" for name in conditions)}
        arrays, stack = _split(bounded_npz.read(_content(self.path(cell, ".npz")), wanted.__contains__))
        if stack is None:
            return arrays["target"], arrays["row"], np.stack([arrays[f"{PREDICTED}{name}"] for name in conditions])
        place = {name: i for i, name in enumerate(stack.names)}
        return arrays["target"], arrays["row"], stack.values[[place[name] for name in conditions]]

    def problem(self, record: Record) -> str | None:
        """What is wrong with the predictions of a record; None if they give, for each condition, its score."""
        return self._wrong(Claim.of(record))

    def _wrong(self, claim: Claim | None) -> str | None:
        """`problem` of what a record claims; of no claim, none."""
        if claim is None:
            return None
        try:
            content = _content(self.path(claim.cell, ".npz"))
            if hashlib.sha256(content).hexdigest() != claim.digest:
                return "predictions are not those the record was written with"
            # Probabilities are most of the bytes, and no score is made of them.
            return contradiction(claim, *_split(bounded_npz.read(content, lambda name: not name.startswith("prob:"))))
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
        with no_garbage():
            for path in sorted(self._files()):
                try:
                    record = _read(path)
                    records.append(record if made is None else made(record))
                except InvalidRecord as error:
                    invalid.append((path, str(error)))
        return Reading(tuple(records), tuple(invalid))

    def trusted(self, made: Callable[[Record], Record] | None = None) -> Reading:
        """The records of the folder but those that `verify` refuses, and every file it refuses.

        Args:
            made: What is kept of each; all of it, if nothing else is said.
        """
        records: list[Record] = []
        verdicts = self._verified(lambda record: records.append(record if made is None else made(record)))
        refused = {v.path.stem: v for v in verdicts if v.status == "invalid"}
        kept = tuple(record for record in records if record.cell.id not in refused)
        return Reading(kept, tuple((v.path, v.problem) for v in refused.values()))

    def verify(self) -> list[Verdict]:
        """Check every record of the folder and the predictions of the successful ones, byte by byte, sorted by name."""
        return self._verified(_forgotten)

    def _verified(self, seen: Callable[[Record], None]) -> list[Verdict]:
        return _without_copies(self._verdicts(sorted(self._files()), seen))

    def _verdicts(self, paths: Sequence[Path], seen: Callable[[Record], None]) -> list[Verdict]:
        """What is to be thought of each; every record that can be read is shown to `seen`, once."""
        looked: list[Verdict] = []

        def claims() -> Iterator[Claim | None]:
            shared: dict[tuple[str, ...], tuple[str, ...]] = {}
            for path in paths:
                verdict, claim = _look(path, seen)
                looked.append(verdict)
                # Many have the same conditions, whose names are most of a claim.
                yield claim and claim._replace(ids=shared.setdefault(claim.ids, claim.ids))

        with no_garbage():
            if len(paths) < _MANY or cores() == 1:
                problems = list(map(self._wrong, claims()))
            else:  # this process reads the records while the others check the predictions of those it has read
                problems = list(pool().map(self._wrong, claims(), chunksize=50))
        return [
            verdict if problem is None else Verdict(verdict.path.with_suffix(".npz"), "invalid", problem)
            for verdict, problem in zip(looked, problems, strict=True)
        ]

    def _files(self) -> Iterator[Path]:
        if not self.folder.is_dir():
            return
        for entry in os.scandir(self.folder):
            if entry.name.endswith(".json") and not entry.name.startswith("."):
                yield Path(entry.path)

    def _sweep(self) -> None:
        """Remove what killed writers left: half files of cells that nobody is in."""
        for path in self.folder.glob(".*.tmp"):
            with contextlib.suppress(Locked, ValueError), self.lock(path.name[1:].rpartition("+")[0]):
                path.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees all of it or nothing; a killed writer leaves `.<stem>+<random>.tmp`."""
    # The cell's name is in it, so that who finds the file knows whose it was.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}+", suffix=".tmp")
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
        record = Record.from_json(_content(path))
    except OSError as error:
        raise InvalidRecord(f"cannot be read: {error.strerror or error}") from None
    if record.cell.id != path.stem:
        raise InvalidRecord(f"file name says {path.stem}, what it describes is {record.cell.id}")
    if not _STEM.fullmatch(path.stem):
        raise InvalidRecord("not a cell id")
    return record


def _look(path: Path, seen: Callable[[Record], None]) -> tuple[Verdict, Claim | None]:
    """What is to be thought of a record before its predictions, and what these have to bear out."""
    try:
        record = _read(path)
    except InvalidRecord as error:
        return Verdict(path, "invalid", str(error)), None
    seen(record)
    if record.status == "failed":
        return Verdict(path, "failed"), None
    took = [record.cost, [stage.seconds for stage in record.training], record.provenance.get("finished")]
    return Verdict(path, "ok", trace=f"{record.predictions} {took}"), Claim.of(record)


def _forgotten(record: Record) -> None:
    """For who asks for the verdict alone."""


def _content(path: Path) -> bytes:
    """A file's bytes; not those of a pipe, which never end, nor more than a cell can have."""
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LARGEST:
        raise OSError(f"not a file of at most {_LARGEST >> 20} MB")
    return path.read_bytes()


def _without_copies(verdicts: list[Verdict]) -> list[Verdict]:
    """The verdicts, records that differ in nothing but the cell they claim to be of refused: one is another's copy."""
    first: dict[str, Verdict] = {}
    for verdict in verdicts:
        first.setdefault(verdict.trace, verdict)
    copied = {v.trace: v for v in verdicts if v.status == "ok" and first[v.trace] is not v}

    def refused(verdict: Verdict) -> Verdict:
        if verdict.status != "ok" or verdict.trace not in copied:
            return verdict
        other = first[verdict.trace] if first[verdict.trace] is not verdict else copied[verdict.trace]
        return Verdict(verdict.path, "invalid", f"has the predictions and the times of {other.path.stem}: a copy")

    return [refused(verdict) for verdict in verdicts]


@contextlib.contextmanager
def no_garbage() -> Generator[None]:
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


def _split(arrays: dict[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], Stack | None]:
    """What `_packed` put together, and the arrays beside it."""
    if "conditions" not in arrays:
        return arrays, None
    ids, stacked = arrays.pop("conditions"), arrays.pop("pred", np.empty(0))
    if ids.dtype.kind != "U" or ids.ndim != 1 or stacked.ndim < 2 or len(ids) != len(stacked):
        raise InvalidPredictions("`conditions` does not name the predictions")
    return arrays, Stack(tuple(ids.tolist()), stacked)


def _apart(arrays: dict[str, NDArray[Any]], stack: Stack | None) -> dict[str, NDArray[Any]]:
    return arrays if stack is None else arrays | stack.apart()
