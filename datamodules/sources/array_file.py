"""Arrays in a .npz file or a folder of .npy files, read without ever unpickling."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.registry import did_you_mean
from datamodules.sources.files import write_whole
from datamodules.sources.folders import cache_folder

LARGE = 2**28  # bytes of an archive from which its arrays are unpacked into the cache and read from disk

Array = NDArray[Any]


class ArrayFile:
    """The arrays of a file or folder, by name.

    Arrays of a folder are memory-mapped. Those of a large archive are unpacked into the cache first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_dir():
            self.names = tuple(sorted(file.stem for file in path.glob("*.npy")))
        else:
            try:
                with zipfile.ZipFile(path) as archive:
                    self.names = tuple(sorted(name[:-4] for name in archive.namelist() if name.endswith(".npy")))
            except zipfile.BadZipFile:
                raise ValueError(f"{path} is not a .npz file or a folder of .npy files") from None
        if not self.names:
            raise ValueError(f"{path} must hold arrays (.npy), and holds none")
        digest = hashlib.sha256()
        for file in [path / f"{name}.npy" for name in self.names] if path.is_dir() else [path]:
            digest.update(file.name.encode())
            with file.open("rb") as stream:
                while block := stream.read(2**22):
                    digest.update(block)
        self.fingerprint = digest.hexdigest()

    def get(self, name: str) -> Array:
        """The array `name`."""
        if name not in self.names:
            raise ValueError(f"{self.path} has no array {name!r}. {did_you_mean(name, self.names)}")
        try:
            if self.path.is_dir():
                return np.load(self.path / f"{name}.npy", mmap_mode="c", allow_pickle=False)
            if self.path.stat().st_size >= LARGE:
                return np.load(self._unpacked(name), mmap_mode="c", allow_pickle=False)
            with np.load(self.path, allow_pickle=False) as archive:
                return archive[name]
        except ValueError as error:
            if "pickle" in str(error).lower() or "object" in str(error).lower():
                raise ValueError(
                    f"{self.path}: {name!r} is an array of Python objects, which are never unpickled: save numbers or "
                    "fixed-length strings"
                ) from None
            raise ValueError(f"{self.path}: {name!r} cannot be read: {error}") from None

    def _unpacked(self, name: str) -> Path:
        code = hashlib.sha256(f"{self.fingerprint}/{name}".encode()).hexdigest()
        file = cache_folder() / "arrays" / f"{code[:24]}.npy"

        def unpack(path: Path) -> None:
            with zipfile.ZipFile(self.path) as archive, archive.open(f"{name}.npy") as source, path.open("wb") as sink:
                shutil.copyfileobj(source, sink, 2**22)

        if not file.exists():
            write_whole(file, unpack)
        return file
