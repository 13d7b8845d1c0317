"""The shared encoders: what they see must reach their tokens, from the first step on."""

import pytest
import torch

from datamodules.spec import Modality
from methods.parts.encoders import build_encoder


@pytest.mark.parametrize(
    "modality",
    [
        Modality("photo", "image", (3, 48, 48)),
        Modality("large", "image", (3, 128, 128)),
        Modality("sound", "sequence", (64, 13)),
    ],
    ids=lambda modality: modality.name,
)
def test_tokens_of_an_untrained_encoder_differ_from_cell_to_cell(modality: Modality) -> None:
    """With torch's default convolutions biases outweigh the input: cells then make 4 to 13 % of the variance."""
    torch.manual_seed(0)
    encoder = build_encoder(modality, 64)
    # Blocks, as objects are: what is the same for all pixels of a cell does not average out.
    noise = torch.rand(8, *modality.shape)
    if modality.kind == "image":
        _, height, width = modality.shape
        inputs = noise.repeat_interleave(6, dim=2).repeat_interleave(6, dim=3)[..., :height, :width]
    else:
        inputs = noise.repeat_interleave(6, dim=1)[:, : modality.shape[0]]
    with torch.no_grad():
        x = encoder(inputs).x  # [B, L, D]
    share = x.var(dim=1).mean() / x.var(dim=(0, 1, 2))
    assert share.item() > 0.2
