"""An objective score of attention: how much of it lies on what is asked about, where the dataset knows the place.

One rule for discrete and continuous attention: the mass in each cell of the token grid, which of a density is its
integral over the cell. A cell is of the asked object if that covers a quarter of it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from lightning.fabric.utilities.apply_func import move_data_to_device
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from datamodules.base import DataModule, SplitName
from methods.base import Method, Tokens
from methods.functional.attention import cell_centers, gaussian_density, paraboloid_density
from methods.parts.attention import Attended
from methods.wrapper import Wrapper

COVERED = 0.25  # share of a cell's area from which on it is the object's
FINE = 8  # points per axis and cell at which a density is integrated
NOTHING = 1e-6  # mass of a cell that is looked at by rounding only


def attention_of(method: Method, tokens: dict[str, Tokens], present: Tensor) -> dict[str, Attended] | None:
    """What a method, or what it wraps, looks at in each modality; None if it does not attend to tokens."""
    while isinstance(method, Wrapper):
        method = method.base
    look: Any = getattr(method, "attention", None)
    if not callable(look) or isinstance(look, torch.nn.Module):
        return None
    return look(tokens, present)  # pyright: ignore[reportReturnType] - the contract of `polymodal attend`


def attention_scores(
    method: Method, datamodule: DataModule, split: SplitName, device: torch.device | None = None
) -> dict[str, float]:
    """Means over the rows of a split, as `attention/<modality>/<score>`; empty where nothing attends or is known.

    `asked` is the share of attention on the cells of what is asked about, `uniform` what uniform attention has there,
    `entropy` that of the cells' masses (1: uniform), `support` the share of cells that get any.
    """
    places = datamodule.places(split)
    if not places:
        return {}
    device = device or torch.device("cpu")
    method.to(device).train(False)
    sums: dict[str, Tensor] = {}
    rows = datamodule.ordered(split)
    with torch.inference_mode():
        for batch in rows:
            here = move_data_to_device(batch, device)
            attended = attention_of(method, method.tokenize(here.inputs, here.present), here.present)
            for name, one in (attended or {}).items():
                if name in places and len(one.grid) == 2:
                    for key, value in score_rows(one, places[name][batch.row].to(device)).items():
                        key = f"attention/{name}/{key}"
                        sums[key] = sums.get(key, torch.zeros((), device=device)) + value.sum()
    return {key: float(total) / rows.rows for key, total in sums.items()}


def score_rows(attended: Attended, place: Tensor) -> dict[str, Tensor]:
    """The scores of some rows, `[B]` each; `place` is `[B, H, W]` bool, where the asked object is."""
    mass = cell_masses(attended)
    cover = _averaged(place.float(), attended.grid)
    # An object smaller than that has the cell it covers most of.
    of_object = (cover >= cover.amax(dim=1, keepdim=True).clamp(max=COVERED)) & (cover > 0)
    p = mass / mass.sum(dim=1, keepdim=True).clamp_min(1e-12)
    entropy = -(p * p.clamp_min(1e-12).log()).sum(dim=1) / math.log(mass.shape[1])
    return {
        "asked": (mass * of_object).sum(dim=1),
        "uniform": of_object.float().mean(dim=1),
        "entropy": entropy,
        "support": (mass > NOTHING).float().mean(dim=1),
    }


def cell_masses(attended: Attended) -> Tensor:
    """`[B, L]`: the attention in each cell; what a density has outside of the image is in none."""
    if attended.mixture is None:
        return attended.weights.float()
    pi, mu, cov = (x.double() for x in attended.mixture)
    component = paraboloid_density if attended.shape == "paraboloid" else gaussian_density
    fine = tuple(FINE * n for n in attended.grid)
    height = component(cell_centers(fine).to(mu.device), mu, cov)  # [B, K, points]
    density = torch.where(pi.unsqueeze(-1) > 0, pi.unsqueeze(-1) * height, 0.0).sum(dim=1)
    mass = _averaged(density.unflatten(1, fine), attended.grid) / math.prod(attended.grid)
    # A component narrower than the points are apart is met by chance: there is never more than all of it.
    return (mass / mass.sum(dim=1, keepdim=True).clamp_min(1.0)).float()


def _averaged(x: Tensor, grid: tuple[int, ...]) -> Tensor:
    """`[B, H, W]` -> `[B, L]`: the mean over each cell of a grid."""
    return adaptive_avg_pool2d(x.unsqueeze(1), (grid[0], grid[1])).flatten(1)
