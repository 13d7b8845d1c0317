"""The three views of `multi_digits` that are weak alone."""

from __future__ import annotations

from datamodules.multi_digits import MultiDigits
from datamodules.registry import register


@register("multi_digits_hard")
class MultiDigitsHard(MultiDigits):
    """UCI Multiple Features, the hard triple: Fourier, Zernike and morphology; 2,000 digits, 10 classes.

    None of the three tells a six from a nine, being blind to rotation, and morphology has six numbers.
    """

    title = "multi_digits_hard"
    version = "1"
    sha256 = "b6125e4bf7427945dc7c62b0c15b742fe5775b9112b71a6621e64c4ba2014e04"

    def __init__(self) -> None:
        super().__init__(views=("fou", "zer", "mor"))
