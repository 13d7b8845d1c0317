"""Pretrained image encoders: timm models and the image towers of open_clip."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.encoders.base import Encoder, EncoderName
from datamodules.encoders.clip_models import load_clip
from datamodules.encoders.weights import find_weights, timm_config
from datamodules.spec import Modality


class ImageEncoder(Encoder):
    """An image encoder with its preprocessing, on tensors.

    The whole image is resized to the encoder's input size: the usual centre crop would cut off what a dataset of fixed
    size has put there on purpose. Grey images are repeated to three channels.
    """

    def __init__(self, modality: Modality, tokens: bool) -> None:
        super().__init__()
        self.tokens = tokens
        self.shape = modality.shape
        # A standardised image is taken to span two standard deviations each way, as corruptions do.
        self.low, self.high = modality.range or (-2.0, 2.0)

    def see(self, size: Sequence[int], mean: Sequence[float], std: Sequence[float], interpolation: str) -> None:
        """Take over the preprocessing of the encoder's configuration."""
        self.size = tuple(size)[-2:]
        self.mode = interpolation if interpolation in ("bilinear", "bicubic") else "bicubic"
        self.mean, self.std = tuple(mean), tuple(std)
        self.transform = f"range {self.low}..{self.high}, {self.mode} {self.size}, mean {self.mean}, std {self.std}"

    def prepare(self, x: Tensor) -> Tensor:
        """`[B, C, H, W]` in the modality's range -> what the network was trained on."""
        x = (x.float() - self.low) / (self.high - self.low)
        x = x.expand(-1, 3, -1, -1)
        if tuple(x.shape[2:]) != self.size:
            x = F.interpolate(x, self.size, mode=self.mode, antialias=True, align_corners=False)
        x = x.clamp(0, 1)  # bicubic overshoots
        mean, std = (torch.tensor(v, dtype=x.dtype, device=x.device).view(1, 3, 1, 1) for v in (self.mean, self.std))
        return (x - mean) / std

    def forward(self, x: Tensor) -> Tensor:
        x = self.prepare(x)
        return self.map(x) if self.tokens else self.pooled(x)

    def map(self, x: Tensor) -> Tensor:
        """`[B, D, h, w]`: the last map of the network, or its patch tokens on their grid."""
        raise NotImplementedError

    def pooled(self, x: Tensor) -> Tensor:
        """`[B, D]`."""
        raise NotImplementedError

    def train(self, mode: bool = True) -> ImageEncoder:
        super().train(mode)
        for module in self.modules():  # running statistics stay: a row's features depend on that row only
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.train(False)
        return self

    def probe(self) -> torch.Size:
        device = next(self.parameters()).device
        with torch.no_grad():
            return self(torch.zeros(1, *self.shape, device=device)).shape[1:]


class TimmEncoder(ImageEncoder):
    """An image model of timm; with tokens kept, a convolutional one sees images larger than its own as they are."""

    def __init__(self, name: EncoderName, modality: Modality, load: bool) -> None:
        super().__init__(modality, name.tokens)
        import timm
        from timm.data import resolve_model_data_config

        timm_config(name)
        path = find_weights(name) if load else None
        self.net: Any = timm.create_model(name.model, pretrained=False, num_classes=0)
        if path is not None:
            _load_timm(self.net, path, name)
        config = resolve_model_data_config(self.net)
        size = config["input_size"]
        # A convolutional net takes any size: the map of a larger image is finer (448 pixels: 14 x 14 cells).
        is_free = not self.net.pretrained_cfg.get("fixed_input_size", False)
        if name.tokens and is_free and min(modality.shape[1:]) > max(size[1:]):
            size = modality.shape
        self.see(size, config["mean"], config["std"], config["interpolation"])

    def map(self, x: Tensor) -> Tensor:
        return self.net.forward_intermediates(x, indices=1, norm=True, output_fmt="NCHW", intermediates_only=True)[-1]

    def pooled(self, x: Tensor) -> Tensor:
        return self.net(x)


class ClipImageEncoder(ImageEncoder):
    """The image tower of an open_clip model."""

    def __init__(self, name: EncoderName, modality: Modality, load: bool) -> None:
        super().__init__(modality, name.tokens)
        model, published = load_clip(name, load)
        self.net: Any = model.visual
        config = {**self.net.preprocess_cfg, **published}
        size = config["size"]
        size = (size, size) if isinstance(size, int) else size
        self.see(size, config["mean"], config["std"], config["interpolation"])

    def map(self, x: Tensor) -> Tensor:
        found = self.net.forward_intermediates(
            x, indices=1, normalize_intermediates=True, intermediates_only=True, output_fmt="NCHW"
        )
        return found["image_intermediates"][-1]

    def pooled(self, x: Tensor) -> Tensor:
        return self.net(x)


def _load_timm(net: nn.Module, path: Path, name: EncoderName) -> None:
    from safetensors.torch import load_file

    state = load_file(path)
    # timm's own conversion of older checkpoints and of other input sizes, kept beside each model.
    convert = getattr(sys.modules[type(net).__module__], "checkpoint_filter_fn", None)
    if convert is not None:
        state = convert(state, net)
    lost = sorted(set(net.state_dict()) - set(state))
    if lost:
        raise ValueError(f"{path} does not hold the weights of {name}: {lost[0]} is missing")
    try:
        net.load_state_dict(state, strict=False)  # a classifier we do not need may be left over
    except RuntimeError as error:
        raise ValueError(
            f"{path} does not hold the weights of {name}: {str(error).splitlines()[-1].strip()}"
        ) from error
