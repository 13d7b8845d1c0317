"""A table in a file of the user's own: CSV in whatever dialect and encoding, packed or not, or parquet."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any, NamedTuple

import pandas as pd
import pyarrow as pa

LARGEST = 2**31  # bytes of a table, unpacked
WIDEST = 50_000  # columns of it: to find their names alone, pandas takes seconds
_SAMPLE = 2**16  # bytes looked at to find the separator
_LINES = 50
_SEPARATORS = (",", ";", "\t", "|")
_COMMA = re.compile(r"-?\d+,\d+")
_POINT = re.compile(r"-?\d+\.\d+")
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_UNPACK: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError, OSError)
# What people write into a cell that they leave empty, besides what pandas knows (NA, NaN, null, None, n/a, #N/A).
EMPTY = ("?", "-", "--", ".", "na", "N.A.", "n.a.")


class TableFile(NamedTuple):
    """A table and how it was read.

    Attributes:
        repeated: Names that several columns have; the later ones are called `name.1`, `name.2`.
    """

    frame: pd.DataFrame
    separator: str
    encoding: str
    repeated: tuple[str, ...]


def read_table(
    path: Path, *, header: bool = True, separator: str = "", encoding: str = "", text: Collection[str] = ()
) -> TableFile:
    """Read a table; an empty `separator` or `encoding` is found out.

    Args:
        text: Columns to be read as they are written, and not as numbers.

    Raises:
        ValueError: In one line, naming the file, for whatever is no table.
    """
    if path.is_dir():
        raise ValueError(f"`file` must be a table, and {path} is a folder")
    if path.suffix == ".parquet":
        return _parquet(path, text)
    content = _content(path)
    encoding = encoding or _encoding(content)
    try:
        sample = codecs.getincrementaldecoder(encoding)().decode(content[:_SAMPLE])
    except LookupError:
        raise ValueError(f"{path}: `encoding` must be one that Python knows, got {encoding!r}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not in the `encoding` {encoding}: {error.reason} at byte {error.start}") from None
    separator = separator or _separator(sample)
    lines = _fields(sample, separator)
    if not lines:
        raise ValueError(f"{path} must be a table, and is empty")
    _check_width(path, re.split(rb"[\r\n]", content, maxsplit=1)[0].count(separator.encode()) + 1)
    counts = Counter(lines[0]) if header else Counter()
    try:
        options: dict[str, Any] = {"sep": separator, "encoding": encoding, "header": 0 if header else None}
        options |= {"decimal": _decimal(lines, separator), "low_memory": False}
        named = pd.read_csv(io.BytesIO(content), nrows=0 if header else 1, **options).columns
        as_text = {column: str for column in named if str(column) in text}
        empty = {column: list(EMPTY) for column in named if column not in as_text}  # "-" may well be a class
        frame = pd.read_csv(io.BytesIO(content), dtype=as_text, na_values=empty, **options)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError, OverflowError, csv.Error) as error:
        raise ValueError(f"{path} must be a table (separator {separator!r}): {_line(error)}") from None
    # pandas takes the first column for names of rows then.
    if not frame.index.equals(pd.RangeIndex(len(frame))) or max(map(len, lines)) > len(frame.columns):
        raise ValueError(f"{path}: its rows have more cells than its first line has names (separator {separator!r})")
    return TableFile(_named(frame), separator, encoding, tuple(name for name, n in counts.items() if n > 1))


def _parquet(path: Path, text: Collection[str]) -> TableFile:
    import pyarrow.parquet as pq

    try:
        about = pq.read_metadata(path)
        _check_width(path, about.num_columns)
        _check_size(path, sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups)))
        frame = pq.read_table(path).to_pandas()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} cannot be read as parquet: {_line(error)}") from None
    frame = _named(frame.reset_index(drop=True))
    for column in frame.columns:
        if column in text:
            frame[column] = frame[column].astype("string").astype(object)
    return TableFile(frame, "", "", ())


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.set_axis([str(column) for column in frame.columns], axis="columns")


def _content(path: Path) -> bytes:
    """What is in the file, unpacked."""
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if not name.endswith("/")]
                if len(names) != 1:
                    raise ValueError(f"{path} must hold one table, and holds {len(names)} files")
                with archive.open(names[0]) as file:
                    return _read(path, file)
        with _UNPACK.get(path.suffix, open)(path, "rb") as file:
            return _read(path, file)
    except _DAMAGED as error:
        raise ValueError(f"{path} is damaged, or is no {path.suffix} file: {_line(error)}") from None


def _read(path: Path, file: IO[bytes]) -> bytes:
    parts: list[bytes] = []  # asked for at once, Python would make room for the largest table there may be
    while part := file.read(2**20):
        parts.append(part)
        _check_size(path, len(parts) * 2**20 - 2**20 + len(part))
    return b"".join(parts)


def _check_width(path: Path, columns: int) -> None:
    if columns > WIDEST:
        raise ValueError(
            f"{path} is a table of {columns:,} columns, and of more than {WIDEST:,} none is read: write them as arrays "
            "for npz_views"
        )


def _check_size(path: Path, size: int) -> None:
    if size > LARGEST:
        raise ValueError(
            f"{path} is a table of more than {LARGEST / 2**30:g} GiB: leave columns out, or write it as arrays for "
            "npz_views, which reads them from disk"
        )


def _encoding(content: bytes) -> str:
    """UTF-8 if it is that, as its first bytes say if they do, else Windows' Western European."""
    for mark, name in _MARKS.items():
        if content.startswith(mark):
            return name
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(content), 2**20):
            decoder.decode(content[start : start + 2**20], start + 2**20 >= len(content))
    except UnicodeDecodeError:
        return "latin-1" if any(byte in content for byte in b"\x81\x8d\x8f\x90\x9d") else "cp1252"
    return "utf-8"


def _separator(sample: str) -> str:
    """The separator that cuts the first lines into the same number of cells, the most of them."""
    best = (0, ",")
    for candidate in _SEPARATORS:
        widths = Counter(len(line) for line in _fields(sample, candidate))
        if widths:
            width, lines = widths.most_common(1)[0]
            if width > 1 and lines >= 0.8 * sum(widths.values()) and width > best[0]:
                best = (width, candidate)
    return best[1]


def _fields(sample: str, separator: str) -> list[list[str]]:
    """The cells of the first lines; the last line of a long sample is cut off, and left out."""
    lines = sample.splitlines()
    lines = (lines[:-1] or lines) if len(sample) >= _SAMPLE // 4 else lines
    try:
        return [cells for cells in csv.reader(lines[:_LINES], delimiter=separator) if cells]
    except (csv.Error, TypeError):
        return [line.split(separator) for line in lines[:_LINES] if line]


def _decimal(lines: list[list[str]], separator: str) -> str:
    """A comma, where no number has a point."""
    cells = [cell.strip() for line in lines for cell in line] if separator != "," else []
    return "," if any(map(_COMMA.fullmatch, cells)) and not any(map(_POINT.fullmatch, cells)) else "."


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
