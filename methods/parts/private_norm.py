"""A batch norm of its own for each modality, where the convolutions are shared."""

import torch
from torch import Tensor, nn

from methods.parts.distributed import rank_sum


class PrivateNorm(nn.Module):
    """Batch norm with scale, shift and statistics per modality; absent rows do not count."""

    def __init__(self, modalities: int, channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum = momentum
        self.eps = eps
        self.gamma = nn.Parameter(torch.ones(modalities, channels))
        self.beta = nn.Parameter(torch.zeros(modalities, channels))
        self.mean: Tensor
        self.variance: Tensor
        self.register_buffer("mean", torch.zeros(modalities, channels))
        self.register_buffer("variance", torch.ones(modalities, channels))

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        """`[M, B, C, H, W]` and `[M, B]` to the shape of the first."""
        mean, variance = self._measure(x, there) if self.training else (self.mean, self.variance)
        scale = self.gamma * (variance + self.eps).rsqrt()
        shift = self.beta - mean * scale
        return x * scale[:, None, :, None, None] + shift[:, None, :, None, None]

    def _measure(self, x: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance over the rows that are there, of all ranks, and a step of the running ones."""
        mask = there[:, :, None, None, None].to(x.dtype)
        count = rank_sum(there.sum(dim=1, keepdim=True)) * (x.shape[3] * x.shape[4])
        mean = rank_sum((x * mask).sum(dim=(1, 3, 4))) / count.clamp_min(1)
        centred = (x - mean[:, None, :, None, None]) * mask
        variance = rank_sum(centred.square().sum(dim=(1, 3, 4))) / count.clamp_min(1)
        # One value has no variance: such a modality keeps what it knew.
        known = count > 1
        with torch.no_grad():
            unbiased = variance * count / (count - 1).clamp_min(1)
            self.mean.copy_(torch.where(known, self.mean.lerp(mean.to(self.mean), self.momentum), self.mean))
            self.variance.copy_(
                torch.where(known, self.variance.lerp(unbiased.to(self.variance), self.momentum), self.variance)
            )
        return torch.where(known, mean, self.mean), torch.where(known, variance, self.variance)
