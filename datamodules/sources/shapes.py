"""Scenes of coloured shapes at different depths, rendered as an RGB image and a depth map.

Scenes are drawn with NumPy's PCG64 and rendered by additions, products and square roots alone, which IEEE fixes to the
last bit, so that the same pixels come out on every machine. The square roots are NumPy's: torch takes those of many
values from a library whose last bit depends on the processor.
"""

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from datamodules.sources.files import write_whole
from datamodules.sources.folders import cache_folder

SIZE = 48
SHAPES = ("circle", "square", "triangle", "diamond")
COLOURS = ("red", "green", "blue", "yellow", "magenta", "cyan")
_PALETTE = torch.tensor(
    [[0.9, 0.1, 0.1], [0.1, 0.8, 0.1], [0.15, 0.25, 0.95], [0.9, 0.85, 0.1], [0.85, 0.15, 0.8], [0.1, 0.8, 0.85]]
)
_CELLS = 3  # objects stand in different cells of a 3x3 board
_LEVELS = 8  # and at different levels of depth
_CHUNK = 100  # scenes painted at once: their pixels stay in the processor's cache


class Scenes(NamedTuple):
    """N scenes of up to K objects; lengths in pixels, depth 0 (near) to 1 (far).

    Attributes:
        there: `[N, K]` bool, which objects exist.
        centre: `[N, K, 2]`, row and column.
        light: `[N, 4]`: brightness, its slope down and across, background grey.
        noise: Seed of the pixel noise.
    """

    there: Tensor
    centre: Tensor
    radius: Tensor
    shape: Tensor
    colour: Tensor
    depth: Tensor
    light: Tensor
    noise: int


def distinct(rng: np.random.Generator, rows: int, choices: int, count: int) -> Tensor:
    """`count` different numbers below `choices` for every row, in random order: `[rows, count]`."""
    return torch.from_numpy(rng.random((rows, choices)).argsort(axis=1)[:, :count].copy())


def draw_scenes(
    rng: np.random.Generator, there: Tensor, colour: Tensor, radius: tuple[float, float] = (4.5, 7.5)
) -> Scenes:
    """Random places, sizes, shapes, depths and light for objects whose presence and colour `[N, K]` are given."""
    rows, count = there.shape

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.from_numpy(rng.random((rows, *shape))).float() * (high - low) + low

    cell = distinct(rng, rows, _CELLS**2, count)
    pitch = SIZE / _CELLS
    corner = torch.stack([cell // _CELLS, cell % _CELLS], dim=-1).float()
    centre = (corner + 0.5) * pitch + uniform(-2.0, 2.0, count, 2)
    level = distinct(rng, rows, _LEVELS, count)
    nearest = torch.where(there, level, _LEVELS).argmin(dim=1, keepdim=True)
    # One object stands well before the others: which one it is can be seen without comparing all pairs.
    first = torch.arange(count) == nearest
    depth = torch.where(first, 0.1 + 0.02 * level, 0.45 + 0.045 * level) + uniform(0.0, 0.02, count)
    light = torch.cat([uniform(0.65, 1.0, 1), uniform(-0.3, 0.3, 2), uniform(0.05, 0.3, 1)], dim=1)
    shape = torch.from_numpy(rng.integers(0, len(SHAPES), (rows, count)))
    noise = int(rng.integers(0, 2**31))
    return Scenes(there, centre, uniform(*radius, count), shape, colour, depth, light, noise)


def render(scenes: Scenes) -> tuple[Tensor, Tensor]:
    """RGB `[N, 3, 48, 48]` and depth `[N, 1, 48, 48]`, both uint8."""
    parts = [_render(_rows(scenes, i, i + _CHUNK)) for i in range(0, len(scenes.there), _CHUNK)]
    rgb, depth = (torch.cat(part) for part in zip(*parts, strict=True))
    rng = np.random.default_rng(scenes.noise)
    return _noisy(rgb, rng, 16), _noisy(depth, rng, 6)


def of_colour(image: Tensor, colour: Tensor) -> Tensor:
    """The pixels of the objects of one colour in each scene: `[N, 48, 48]` bool, from `[N, 3, 48, 48]` uint8."""
    x = image.float() / 255
    palette = _PALETTE / _root(_PALETTE.square().sum(dim=1, keepdim=True))
    nearest = torch.stack([(x * c[:, None, None]).sum(dim=1) for c in palette]).argmax(dim=0)
    coloured = x.amax(dim=1) - x.amin(dim=1) > 0.2  # the background is grey, and its noise less than that
    return coloured & (nearest == colour[:, None, None])


def cached(name: str, build: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors of `build`, kept in the cache folder under `name`; rebuilt when the file is not what was written.

    `name` must change with what `build` makes: it carries the recorded hash of the rows, not only their version.
    """
    folder = cache_folder() / "shapes"
    found = _read(folder, name)
    if found is not None:
        return found
    tensors = build()
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **{key: value.numpy() for key, value in tensors.items()})
    write_whole(folder / f"{name}.npz", file.getvalue())
    write_whole(folder / f"{name}.sha256", hashlib.sha256(file.getvalue()).hexdigest().encode())
    return tensors


def _read(folder: Path, name: str) -> dict[str, Tensor] | None:
    stored, digest = folder / f"{name}.npz", folder / f"{name}.sha256"
    if not stored.is_file() or not digest.is_file():
        return None
    if hashlib.sha256(stored.read_bytes()).hexdigest() != digest.read_text():
        return None
    with np.load(stored, allow_pickle=False) as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays.files}


def _rows(scenes: Scenes, start: int, stop: int) -> Scenes:
    tensors = {key: value[start:stop] for key, value in scenes._asdict().items() if isinstance(value, Tensor)}
    return scenes._replace(**tensors)


def _root(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sqrt(x.numpy()))


def _inside(shape: str, dy: Tensor, dx: Tensor, r: Tensor) -> Tensor:
    """How far inside a shape of radius r each pixel is; negative outside."""
    if shape == "circle":
        return r - _root(dx * dx + dy * dy)
    if shape == "square":
        return 0.85 * r - torch.maximum(dx.abs(), dy.abs())
    if shape == "triangle":  # equilateral, point upwards: three half-planes at 0.6 r from the centre
        return 0.6 * r - torch.maximum(dy, 0.8660254 * dx.abs() - 0.5 * dy)
    return 0.70710678 * (1.15 * r - dx.abs() - dy.abs())  # diamond


def _render(scenes: Scenes) -> tuple[Tensor, Tensor]:
    """Paint from far to near; values in [0, 1]."""
    n, count = scenes.there.shape
    axis = torch.arange(SIZE, dtype=torch.float32) + 0.5
    y, x = axis[:, None], axis[None, :]
    rgb = scenes.light[:, 3, None, None, None].repeat(1, 3, SIZE, SIZE)
    depth = (0.85 + 0.1 * (1 - y / SIZE)).repeat(n, 1, SIZE)  # a wall that leans away
    order = scenes.depth.argsort(dim=1, descending=True)
    for rank in range(count):
        for number, shape in enumerate(SHAPES):
            k = order[:, rank]
            every = torch.arange(n)
            rows = every[scenes.there[every, k] & (scenes.shape[every, k] == number)]
            k = k[rows]
            centre = scenes.centre[rows, k]
            radius = scenes.radius[rows, k, None, None]
            inside = _inside(shape, y - centre[:, 0, None, None], x - centre[:, 1, None, None], radius)
            cover = (inside + 0.5).clamp_(0, 1).unsqueeze(1)
            paint = _PALETTE[scenes.colour[rows, k]][:, :, None, None]
            rgb[rows] += (paint - rgb[rows]) * cover
            depth[rows] = torch.where(inside > 0, scenes.depth[rows, k, None, None], depth[rows])
    slope = scenes.light[:, 1, None, None] * (y / SIZE - 0.5) + scenes.light[:, 2, None, None] * (x / SIZE - 0.5)
    lit = scenes.light[:, 0, None, None] * (1 + slope)
    return rgb * lit.unsqueeze(1), depth.unsqueeze(1)


def _noisy(image: Tensor, rng: np.random.Generator, amplitude: int) -> Tensor:
    """Round to 256 levels and add triangular noise: integers only."""
    noise = rng.integers(0, amplitude + 1, (2, *image.shape), dtype=np.uint8).astype(np.int16)
    level = (image.clamp(0, 1) * 255).round().to(torch.int16)
    return (level + torch.from_numpy(noise[0] - noise[1])).clamp_(0, 255).to(torch.uint8)
