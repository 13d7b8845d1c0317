"""Arrays in a .npz file or a folder of .npy files, read without ever unpickling."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
import zlib
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from datamodules.registry import did_you_mean
from datamodules.sources.files import write_whole
from datamodules.sources.folders import cache_folder

LARGE = 2**28  # bytes of an archive from which its arrays are unpacked into the cache and read from disk

EXPANSION = 2000  # times its size that a packed file may hold; zip reaches about 1000
# A bad checksum, cut off, encrypted, packed in an unknown way, no header, an absurd shape.
_DAMAGED = (ValueError, OSError, EOFError, RuntimeError, MemoryError, OverflowError, zipfile.BadZipFile, zlib.error)

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
            self._check_size(name)
            if self.path.is_dir():
                return np.load(self.path / f"{name}.npy", mmap_mode="c", allow_pickle=False)
            if self.path.stat().st_size >= LARGE:
                return np.load(self._unpacked(name), mmap_mode="c", allow_pickle=False)
            with np.load(self.path, allow_pickle=False) as archive:
                return archive[name]
        except _DAMAGED as error:
            if "pickle" in str(error).lower() or "object" in str(error).lower():
                raise ValueError(
                    f"{self.path}: {name!r} is an array of Python objects, which are never unpickled: save numbers or "
                    "fixed-length strings"
                ) from None
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise ValueError(f"{self.path}: {name!r} cannot be read: {reason}") from None

    def _check_size(self, name: str) -> None:
        """Raise ValueError unless the file holds as many bytes as the shape of the array says, and no absurd number."""
        if self.path.is_dir():
            file = self.path / f"{name}.npy"
            size = file.stat().st_size
            with file.open("rb") as stream:
                promised = _promised(stream)
        else:
            with zipfile.ZipFile(self.path) as archive, archive.open(f"{name}.npy") as stream:
                size = archive.getinfo(f"{name}.npy").file_size
                promised = _promised(stream)
            if size > EXPANSION * self.path.stat().st_size:
                raise ValueError(f"it unpacks to {size / 2**30:,.1f} GiB, more than numbers of your own ever would")
        if promised > size:
            raise ValueError(f"its shape promises {promised:,} bytes, and there are {size:,}: the file is damaged")

    def _unpacked(self, name: str) -> Path:
        code = hashlib.sha256(f"{self.fingerprint}/{name}".encode()).hexdigest()
        file = cache_folder() / "arrays" / f"{code[:24]}.npy"

        def unpack(path: Path) -> None:
            with zipfile.ZipFile(self.path) as archive, archive.open(f"{name}.npy") as source, path.open("wb") as sink:
                shutil.copyfileobj(source, sink, 2**22)

        if not file.exists():
            write_whole(file, unpack)
        return file


def _promised(stream: IO[bytes]) -> int:
    """Bytes of the values that the header of a .npy file promises."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return prod(shape) * dtype.itemsize
