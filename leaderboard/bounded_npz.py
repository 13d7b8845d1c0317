"""`.npz` files of predictions, read with suspicion: nothing is unpickled, and nothing is unpacked that is not bounded.

What is read is what `Store.write` writes: a zip of plain arrays. Whatever else a zip or an array file can be
(encrypted, of another compression, of Python objects, larger than it has bytes for) is refused before it costs memory.
"""

from __future__ import annotations

import io
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_MEMBERS = 10_000
_ROOM = 2**28  # bytes that any file may unpack to, whatever its size: a constant compresses a thousandfold
_EXPANSION = 100  # times its size that a larger one may hold
_HEADER = re.compile(
    rb"\{'descr': '([<>|=]?[biufU]\d{1,6})', 'fortran_order': (True|False), 'shape': \(([0-9, ]{0,200})\), \} *\n"
)
# What zipfile and zlib raise for files that are none, truncated, encrypted, or of a compression they do not know.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error, OSError)


class InvalidPredictions(ValueError):
    """A file of predictions that cannot be trusted."""


def read(content: bytes, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, NDArray[np.generic]]:
    """The wanted arrays of an `.npz`.

    Raises:
        InvalidPredictions: If the file is damaged, or is not one that we could have written.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            members = {m.filename.removesuffix(".npy"): m for m in file.infolist()}
            if len(members) != len(file.infolist()) or len(members) > _MEMBERS:
                raise InvalidPredictions(f"{len(file.infolist())} members, some of them twice or too many")
            members = {name: m for name, m in members.items() if wanted(name)}
            _check_sizes(members, len(content))
            return {name: _array(name, _inflated(content, member)) for name, member in members.items()}
    except InvalidPredictions:
        raise
    except (*_DAMAGE, ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise InvalidPredictions(f"a damaged file: {error}") from None


def _check_sizes(members: dict[str, zipfile.ZipInfo], size: int) -> None:
    claimed = sum(member.file_size for member in members.values())
    if claimed > max(_ROOM, _EXPANSION * size):
        raise InvalidPredictions(f"{size} bytes claim to hold {claimed}")
    for name, member in members.items():
        if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InvalidPredictions(f"`{name[:80]}` is encrypted or of an unknown compression")


def _inflated(content: bytes, member: zipfile.ZipInfo) -> bytes:
    """As `ZipFile.read`, which takes three times as long: it expects members that do not fit into memory."""
    start = member.header_offset
    head = content[start : start + 30] if start >= 0 else b""
    if len(head) < 30 or head[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"no member where {member.filename[:80]} should be")
    start += 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
    found = content[start : start + member.compress_size]
    if member.compress_type == zipfile.ZIP_DEFLATED:
        found = zlib.decompressobj(-zlib.MAX_WBITS).decompress(found, member.file_size + 1)
    if len(found) != member.file_size or zlib.crc32(found) != member.CRC:
        raise zipfile.BadZipFile(f"{member.filename[:80]} has another length or checksum than it says")
    return found


def _array(name: str, content: bytes) -> NDArray[np.generic]:
    """An array file, whose header must be one that numpy writes for plain numbers or text."""
    length = int.from_bytes(content[8:10], "little")
    header = _HEADER.fullmatch(content, 10, 10 + length)
    if content[:8] != b"\x93NUMPY\x01\x00" or header is None:
        raise InvalidPredictions(f"`{name[:80]}` is not an array of plain numbers")
    dtype = np.dtype(header[1].decode())
    shape = tuple(int(n) for n in header[3].split(b",") if n.strip())
    size = math.prod(shape) * dtype.itemsize
    if len(content) - 10 - length != size:
        raise InvalidPredictions(f"`{name[:80]}` says it has {size} bytes, it has {len(content) - 10 - length}")
    flat = np.frombuffer(content, dtype, offset=10 + length)
    return flat.reshape(shape[::-1]).T if header[2] == b"True" else flat.reshape(shape)
