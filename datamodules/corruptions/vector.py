"""Corruptions of standardised feature vectors `[B, d]`; Gaussian noise is in `every.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from datamodules.corruptions.registry import Draw, corruption


@corruption("feature_dropout", kinds=("vector",), version=1)
def feature_dropout(x: Tensor, probability: float, draw: Draw) -> Tensor:
    """Features lost one by one, each replaced by the mean (zero) with a probability."""
    return torch.where(draw.uniform(x.shape[1]) < probability, 0.0, x)


@corruption("quantize", kinds=("vector",), version=1)
def quantize(x: Tensor, width: float, draw: Draw) -> Tensor:
    """Rounded to levels a number of standard deviations apart."""
    return (x / width).round() * width


@corruption("scale_drift", kinds=("vector",), version=1)
def scale_drift(x: Tensor, sigma: float, draw: Draw) -> Tensor:
    """Each feature of each row multiplied by a factor around one, as a sensor out of calibration does."""
    return x * (1 + sigma * draw.normal(x.shape[1]).to(x.dtype))
