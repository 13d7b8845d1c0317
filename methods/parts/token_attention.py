"""Attention between the tokens of modalities, any of which may be absent or padded."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from methods.parts.encoders import Tokens


class Attend(nn.Module):
    """Multi-head attention that is zero, not NaN, for a row with nothing to look at."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, dropout=dropout, batch_first=True)

    def forward(self, query: Tensor, keys: Tensor, visible: Tensor) -> Tensor:
        """`[B, Lq, D], [B, Lk, D], [B, Lk] -> [B, Lq, D]`."""
        some = visible.any(dim=1)
        hidden = ~one_visible(visible)
        found, _ = self.attention(query, keys, keys, key_padding_mask=hidden, need_weights=False)
        return found * some[:, None, None].to(found.dtype)


def visible_tokens(tokens: Tokens, present: Tensor) -> Tensor:
    """`[B, L]`: tokens that are no padding, of the rows `[B]` that have the modality."""
    here = present.unsqueeze(1).expand(-1, tokens.x.shape[1])
    return here if tokens.mask is None else here & tokens.mask


def one_visible(visible: Tensor) -> Tensor:
    """The same, with the first token visible where none is: attention over nothing would be NaN."""
    first = torch.arange(visible.shape[1], device=visible.device) == 0
    return visible | (first & ~visible.any(dim=1, keepdim=True))


def with_positions(x: Tensor) -> Tensor:
    """Tokens `[B, L, D]` plus small sinusoidal positions: attention by itself does not see order."""
    length, width = x.shape[1:]
    position = torch.arange(length, device=x.device, dtype=x.dtype).unsqueeze(1)
    rate = torch.exp(torch.arange(0, width, 2, device=x.device, dtype=x.dtype) * (-9.21 / width))
    angles = position * rate
    return x + torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width] * 0.1


def encoder_layer(width: int, heads: int, dropout: float = 0.0) -> nn.TransformerEncoderLayer:
    """A pre-norm self-attention layer, as in `transformer`."""
    return nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=dropout, batch_first=True, norm_first=True)


def check_heads(heads: int, width: int) -> None:
    """Raise ValueError unless the heads can share the width."""
    if width % heads:
        raise ValueError(f"`heads` must divide the width {width}, got {heads}")
