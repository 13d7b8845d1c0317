"""Counter-based noise: a draw is a pure function of (key, row, position), whatever the batch, thread or device.

splitmix64 of (key, row) gives one stream per row; hashing the stream with a counter gives its words. All is integer
arithmetic and table look-up. Normals are read from a table of `erfinv` made once on the CPU, because computed they may
round differently in a SIMD lane, in a loop's tail and on a GPU: so a row's noise is bit-equal at any batch size, row
order and thread count, and the same on every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

import torch
from torch import Tensor

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
# (shift, multiplier) of splitmix64's finaliser (Steele, Lea & Flood 2014); the last step has no multiplier.
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
# Words hashed at a time: 128 KiB stay in the cache, and below the size from which PyTorch starts threads.
_BLOCK = 1 << 14
_BITS = 16  # per normal: four to a word; the table's extreme is 4.3 standard deviations
_drawn: ContextVar[dict[Hashable, Tensor] | None] = ContextVar("drawn", default=None)


@contextmanager
def remembered() -> Iterator[None]:
    """Within it nothing is drawn twice: the severities of a corruption scale one draw, which is kept until the end."""
    token = _drawn.set({})
    try:
        yield
    finally:
        _drawn.reset(token)


def splitmix64(word: int) -> int:
    """The reference in exact integers: one output of the generator whose state is `word`."""
    z = (word + _GOLDEN) & _WORD
    for shift, multiplier in _STEPS:
        z = (z ^ (z >> shift)) * multiplier & _WORD
    return z


def words(key: int, row: Tensor, count: int, stream: int = 0) -> Tensor:
    """`count` 64-bit words per row.

    Args:
        key: Which noise; 64 bits.
        row: `[B]` integer position of each row in its split.
        stream: Tells independent draws of one corruption apart.

    Returns:
        `[B, count]` int64, all 64 bits random. Word i of a row does not depend on `count`.
    """
    state = _hash_(row.to(torch.int64) + 0)
    state = _hash_(state.bitwise_xor_(_signed(splitmix64((key + stream * _GOLDEN) & _WORD))))
    counter = torch.arange(count, dtype=torch.int64, device=row.device).mul_(_signed(_GOLDEN))
    return _hash_(state[:, None] + counter)


def uniforms(key: int, row: Tensor, shape: tuple[int, ...], stream: int = 0) -> Tensor:
    """`[B, *shape]` float32 uniforms in [0, 1), multiples of 2^-24."""
    count = math.prod(shape)

    def draw(rows: Tensor) -> Tensor:
        halves = words(key, rows, -(-count // 2), stream).view(torch.int32)[:, :count]
        return (halves >> 8).bitwise_and_(0xFFFFFF).to(torch.float32).mul_(2.0**-24)

    return _once(("uniform", key, stream), draw, row, shape)


def integers(key: int, row: Tensor, shape: tuple[int, ...], high: int, stream: int = 0) -> Tensor:
    """`[B, *shape]` int64 in [0, high); the modulo's bias is below `high` / 2^63."""

    def draw(rows: Tensor) -> Tensor:
        return words(key, rows, math.prod(shape), stream).bitwise_and_((1 << 63) - 1).remainder_(high)

    return _once(("integer", high, key, stream), draw, row, shape)


def normals(key: int, row: Tensor, shape: tuple[int, ...], stream: int = 0) -> Tensor:
    """`[B, *shape]` float32 standard normals, at the midpoints of 2^16 equiprobable intervals."""
    count = math.prod(shape)
    table = _quantiles(row.device)

    def draw(rows: Tensor) -> Tensor:
        quarters = words(key, rows, -(-count // 4), stream).view(torch.int16)
        index = quarters.to(torch.int32).add_(1 << (_BITS - 1))
        return table.index_select(0, index.view(-1)).view(index.shape)[:, :count]

    return _once(("normal", key, stream), draw, row, shape)


def _once(what: tuple[Hashable, ...], draw: Callable[[Tensor], Tensor], row: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`_in_blocks`, or a copy of what it gave before, which the caller may change."""
    drawn = _drawn.get()
    if drawn is None or row.device.type != "cpu":  # a GPU draws faster than it could be asked for the rows
        return _in_blocks(draw, row, shape)
    identity = (*what, shape, row.numpy().tobytes())
    if identity not in drawn:
        drawn[identity] = _in_blocks(draw, row, shape)
    return drawn[identity].clone()


def _in_blocks(draw: Callable[[Tensor], Tensor], row: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`draw` of all rows, some at a time on the CPU, so that the passes over a block do not leave the cache."""
    tall = max(1, _BLOCK * 4 // max(1, math.prod(shape)))
    if len(row) <= tall or row.device.type != "cpu":
        return draw(row).reshape(len(row), *shape)
    first = draw(row[:tall])
    out = first.new_empty(len(row), first.shape[1])
    out[:tall] = first
    for start in range(tall, len(row), tall):
        out[start : start + tall] = draw(row[start : start + tall])
    return out.view(len(row), *shape)


@lru_cache
def _quantiles(device: torch.device) -> Tensor:
    """The inverse normal distribution at the midpoints, scaled to unit variance; made on the CPU for every device."""
    midpoints = (torch.arange(1 << _BITS, dtype=torch.float64) + 0.5) / (1 << _BITS)
    table = torch.erfinv(2 * midpoints - 1)
    return (table / table.square().mean().sqrt()).to(torch.float32).to(device)


def _hash_(z: Tensor) -> Tensor:
    """`splitmix64` of every int64 of `z`, in place; signed arithmetic wraps, shifts are made logical by masks."""
    z.add_(_signed(_GOLDEN))
    scratch = torch.empty_like(z)
    for shift, multiplier in _STEPS:
        torch.bitwise_right_shift(z, shift, out=scratch)
        z.bitwise_xor_(scratch.bitwise_and_((1 << (64 - shift)) - 1))
        if multiplier != 1:
            z.mul_(_signed(multiplier))
    return z


def _signed(word: int) -> int:
    """The int64 with the bits of an unsigned word."""
    return word - (1 << 64) if word >> 63 else word
