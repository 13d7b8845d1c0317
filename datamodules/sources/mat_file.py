"""MATLAB files, one array at a time."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

# What scipy raises on files that were cut short or altered.
_DAMAGED = (
    ValueError, TypeError, OSError, EOFError, IndexError, KeyError, OverflowError, MemoryError, NotImplementedError,
    zlib.error, MatReadError,
)  # fmt: skip


def read_mat(path: Path, name: str) -> NDArray[Any]:
    """The numeric array `name` of a MATLAB file (up to version 7); an error names the file."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}: copy it there")
    try:
        found = loadmat(path, variable_names=[name])
    except _DAMAGED as error:
        raise ValueError(f"{path} is no MATLAB file (damaged or half copied?), copy it again: {error}") from None
    x = found.get(name)
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "iuf":
        raise ValueError(f"{path} must hold an array of numbers named `{name}`: copy the file again")
    return x
