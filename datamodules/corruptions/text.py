"""Corruptions of token ids `[B, L]`; token 0 is padding and stays where it is."""

from __future__ import annotations

import torch
from torch import Tensor

from datamodules.corruptions.registry import Draw, corruption


@corruption("token_drop", kinds=("text",), version=1)
def token_drop(x: Tensor, probability: float, draw: Draw) -> Tensor:
    """Tokens lost, each with a probability, and the gap closed; one token is always kept."""
    real, u = x != 0, draw.uniform(x.shape[1])
    kept = real & (u >= probability)
    # The one that survives the highest probabilities: no text becomes empty, and losses are nested in severity.
    survivor = torch.where(real, u, -1.0).argmax(dim=1, keepdim=True)
    last = torch.zeros_like(real).scatter(1, survivor, True) & real
    kept = torch.where(kept.any(dim=1, keepdim=True), kept, last)
    # What is kept moves up within the places that held a token, wherever the padding is.
    moved = torch.where(kept, x, 0).gather(1, _first(kept))
    return torch.zeros_like(x).scatter(1, _first(real), moved)


@corruption("token_swap", kinds=("text",), version=1)
def token_swap(x: Tensor, probability: float, draw: Draw) -> Tensor:
    """Tokens chosen with a probability change places among themselves, in a cycle: none is lost, none is copied."""
    chosen = (x != 0) & (draw.uniform(x.shape[1]) < probability)
    order = _first(chosen)
    count = chosen.sum(dim=1, keepdim=True)
    position = torch.arange(x.shape[1], device=x.device).expand_as(x)
    following = torch.where(position < count, (position + 1) % count.clamp(min=1), position)
    return torch.zeros_like(x).scatter(1, order, x.gather(1, order).gather(1, following))


@corruption("typo", kinds=("text",), version=1)
def typo(x: Tensor, probability: float, draw: Draw) -> Tensor:
    """Tokens slip, with a probability, to a neighbour in the alphabet of tokens."""
    tokens = draw.modality.vocabulary - 1
    slip = 2 * draw.integer(2, x.shape[1], stream=1) - 1
    return _where_drawn(x, (x - 1 + slip) % tokens + 1, probability, draw)


@corruption("token_replace", kinds=("text",), version=1)
def token_replace(x: Tensor, probability: float, draw: Draw) -> Tensor:
    """Tokens become, with a probability, any other token."""
    tokens = draw.modality.vocabulary - 1
    if tokens < 2:
        return x.clone()
    # An offset of 1 .. tokens-1 round the alphabet never lands on the token itself.
    offset = 1 + draw.integer(tokens - 1, x.shape[1], stream=1)
    return _where_drawn(x, (x - 1 + offset) % tokens + 1, probability, draw)


def _where_drawn(x: Tensor, other: Tensor, probability: float, draw: Draw) -> Tensor:
    """`other` at a share of the tokens, never at padding."""
    chosen = (x != 0) & (draw.uniform(x.shape[1]) < probability)
    return torch.where(chosen, other.to(x.dtype), x)


def _first(mask: Tensor) -> Tensor:
    """`[B, L]` positions, those where `mask` holds first, each group in order."""
    return (~mask).to(torch.uint8).argsort(dim=1, stable=True)
