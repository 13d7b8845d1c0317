"""The public vectors of the modern methods, and how figures are compared with them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

_VECTORS = json.loads((Path(__file__).parents[1] / "references" / "modern_fusion.json").read_text())["vectors"]
PRESENT = torch.tensor([[True, True, True], [True, False, True], [False, False, True], [True, True, False]])


def vector(name: str) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Tensor]]:
    """What goes in (weights too), parameters, and what comes out."""
    (found,) = [v for v in _VECTORS if v["id"] == name]
    given = {**found["inputs"], **found.get("weights", {})}
    return {k: read(x) for k, x in given.items()}, found["params"], {k: read(x) for k, x in found["outputs"].items()}


def read(x: Any) -> Tensor:
    return torch.from_numpy(np.array(x))  # through NumPy, so that floats are read in full


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got, want, atol=1e-9, rtol=1e-9)


def spoiled(x: Tensor, present: Tensor = PRESENT) -> Tensor:
    """NaN wherever a modality is absent."""
    x = x.clone()
    x[~present] = torch.nan
    return x
