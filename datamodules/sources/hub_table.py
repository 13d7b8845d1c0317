"""Tables of the Hugging Face hub or of a local folder, through the `datasets` library; no code of theirs is run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from datamodules.rows.user_split import MEANT
from datamodules.sources.files import content_of, entry_of, write_whole
from datamodules.sources.folders import cache_folder, find_data
from datamodules.sources.image_table import ImageSource

if TYPE_CHECKING:
    from datasets import Dataset

TABLES = (".parquet", ".json", ".jsonl", ".csv")


def open_table(path: str, config: str = "", revision: str = "") -> dict[str, Dataset]:
    """The splits of a dataset, memory-mapped.

    Args:
        path: A folder, absolute or below POLYMODAL_DATA (images with a metadata.csv, parquet, JSON, or what
            `save_to_disk` wrote), or one table; else the id of a dataset of the hub.
        config: Name of the configuration, where a dataset has several.
        revision: Commit or tag of the hub's dataset.
    """
    import datasets
    from datasets.exceptions import DatasetNotFoundError, DatasetsError

    folder = find_folder(path)
    bar = datasets.utils.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        if folder is not None and any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
            found: Any = datasets.load_from_disk(str(folder))
        else:
            # A cache for each folder: offline the library takes whatever it has cached under the same last name.
            code = "ids" if folder is None else hashlib.sha256(str(folder).encode()).hexdigest()[:16]
            cache = str(cache_folder() / "hub" / code)
            if folder is not None and (files := _table_files(folder)):
                kind = {".parquet": "parquet", ".csv": "csv"}.get(Path(files["train"][0]).suffix, "json")
                found = datasets.load_dataset(kind, data_files=files, cache_dir=cache)
            else:
                where = path if folder is None else str(folder)
                found = datasets.load_dataset(where, config or None, revision=revision or None, cache_dir=cache)
    except (DatasetNotFoundError, ConnectionError, TimeoutError) as error:
        raise FileNotFoundError(
            f"`path` is {path!r}: there is no such folder, and the hub's dataset of that name is not there or cannot "
            f"be reached ({type(error).__name__}): download it where there is a network and give its folder"
        ) from None
    except (DatasetsError, pa.ArrowException, OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error.__cause__ or error).split())[:300]
        raise ValueError(f"`path` {path!r} cannot be read as a table: {reason}") from None
    finally:
        if not bar:
            datasets.enable_progress_bars()
    return dict(found) if isinstance(found, dict) else {"train": found}


def _table_files(folder: Path) -> dict[str, list[str]]:
    """Tables that lie in the folder itself, by split; the library would overlook them if images lie beside them.

    A file's name says its split (`train-0.parquet`, `captions_val.json`), `train` otherwise.
    """
    if folder.is_file():
        if folder.suffix not in TABLES:
            raise ValueError(f"{folder} must be a folder or a table ({', '.join(TABLES)})")
        return {"train": [str(folder)]}
    found: dict[str, list[str]] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix in TABLES and file.stem not in ("metadata", "dataset_infos"):
            words = re.split(r"[^a-z]+", file.stem.lower())
            split = next((MEANT[word] for word in words if word in MEANT), "train")
            found.setdefault(split, []).append(str(file))
    if len({Path(name).suffix for files in found.values() for name in files}) > 1:
        raise ValueError(f"{folder} holds tables of several kinds: keep those of one ({', '.join(TABLES)})")
    if found and "train" not in found:
        raise ValueError(f"{folder}: no table of a train split, only {', '.join(found)}")
    return found


def find_folder(path: str) -> Path | None:
    """The user's folder, or None if `path` can only be the id of a dataset of the hub (`owner/name`)."""
    try:
        return find_data(path, "path")
    except FileNotFoundError:
        if path.count("/") == 1 and not path.startswith(("/", ".", "~")):
            return None
        raise


class HubImages(ImageSource):
    """The image column of tables: embedded files, or paths.

    Args:
        tables: By the name they have in errors.
        column: With images.
        folder: That paths are relative to.
    """

    def __init__(self, tables: Sequence[tuple[str, Dataset]], column: str, folder: Path | None) -> None:
        from datasets import Image

        self.column = column
        self.folder = folder
        self.tables: list[tuple[str, Dataset]] = []
        for name, table in tables:
            only = table.select_columns([column])
            is_image = isinstance(table.features[column], Image)
            # Not decoded by the library: a file that is no image must be named by its row.
            self.tables.append((name, only.cast_column(column, Image(decode=False)) if is_image else only))

    def __len__(self) -> int:
        return sum(len(table) for _, table in self.tables)

    def read(self, position: int) -> bytes:
        _, table, row = self._find(position)
        value = table[row][self.column]
        if isinstance(value, dict) and value.get("bytes") is not None:
            return value["bytes"]
        file = self._file(value)
        if file is None or not file.is_file():
            raise ValueError(self._absent(position, value))
        return file.read_bytes()

    def where(self, position: int) -> str:
        name, _, row = self._find(position)
        return f"{name}, row {row + 1}, column {self.column!r}"

    def fingerprint(self) -> str:
        """By the content of embedded images and of those that are files.

        Raises:
            ValueError: For a row whose image is not there.
        """
        digest, position = hashlib.sha256(), 0
        files: list[Path] = []
        for _, table in self.tables:
            embedded = _content_of(table, self.column)
            for block in table.with_format("arrow").iter(batch_size=1000):
                for value in _light(block[self.column]):  # pyright: ignore
                    if not isinstance(value, int):  # of an embedded one, whose bytes are in `embedded`
                        file = self._file(value)
                        if file is None or not file.is_file():
                            raise ValueError(self._absent(position, value))
                        files.append(file)
                    digest.update(f"{value}\n".encode())
                    position += 1
            digest.update(embedded.encode())
        digest.update(content_of(files).encode())
        return digest.hexdigest()

    def _absent(self, position: int, value: Any) -> str:
        path = value.get("path") if isinstance(value, dict) else value
        named = f"there is no image at {str(path)!r}" if path else "the cell is empty, and must be an image"
        return f"{self.where(position)}: {named}"

    def _find(self, position: int) -> tuple[str, Dataset, int]:
        for name, table in self.tables:
            if position < len(table):
                return name, table, position
            position -= len(table)
        raise IndexError(position)

    def _file(self, value: Any) -> Path | None:
        path = value.get("path") if isinstance(value, dict) else value
        if not isinstance(path, str) or not path:
            return None
        return Path(path) if self.folder is None else self.folder / path


def _content_of(table: Dataset, column: str) -> str:
    """Hash of the embedded images of a table; of files that did not change since they were last read it is known."""
    if not pa.types.is_struct(table.features.arrow_schema.field(column).type):
        return ""
    files = [Path(entry["filename"]) for entry in table.cache_files]
    facts = [entry_of(file) for file in files]
    known = cache_folder() / "hub" / "contents" / hashlib.sha256(f"{facts}/{column}".encode()).hexdigest()
    if facts and known.is_file():
        return known.read_text()
    digest = hashlib.sha256()
    for block in table.with_format("arrow").iter(batch_size=100):
        cells: Any = block[column]  # pyright: ignore
        for content in (
            cells.combine_chunks().field("bytes") if isinstance(cells, pa.ChunkedArray) else cells.field("bytes")
        ):
            digest.update(b"\0" if content.as_py() is None else hashlib.sha256(content.as_buffer()).digest())
    if facts:
        write_whole(known, digest.hexdigest().encode())
    return digest.hexdigest()


def _light(column: Any) -> list[Any]:
    """Of each cell what tells it from others without reading an embedded image: its length, or its path."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not pa.types.is_struct(column.type):
        return column.to_pylist()
    # Only offsets are read, not the images between them.
    lengths = pc.call_function("binary_length", [column.field("bytes")]).to_pylist()
    paths = column.field("path").to_pylist()
    return [{"path": path} if length is None else length for length, path in zip(lengths, paths, strict=True)]
