"""Linear CCA as a layer: fitted by streaming over the training rows, identity before."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from methods.base import Encoded
from methods.functional.cca import StreamingCCA
from methods.functional.rows import no_autocast


class Alignment(nn.Module):
    """Map each modality's encoding to aligned coordinates, the most correlated first.

    The output is as wide as the input: beyond the fitted directions it is zero. Fitting never holds the data and gives
    the same answer whatever the batch size.

    Args:
        widths: Of each modality's encoding; narrower ones are padded with zeros to the widest.
        ridge: Relative to the mean variance of each view.
    """

    mean: Tensor
    projection: Tensor

    def __init__(self, widths: Sequence[int], ridge: float) -> None:
        super().__init__()
        self.widths = tuple(widths)
        self.ridge = ridge
        count, width = len(self.widths), max(self.widths)
        self.register_buffer("mean", torch.zeros(count, width))
        self.register_buffer("projection", torch.eye(width).repeat(count, 1, 1))

    def forward(self, z: Tensor) -> Tensor:
        """[B, M, W] -> [B, M, W]."""
        with no_autocast(z):
            return torch.einsum("bmi,mij->bmj", z.to(self.mean.dtype) - self.mean, self.projection)

    @torch.no_grad()
    def fit(self, stream: Iterable[Encoded], components: int) -> None:
        """Fit to a stream of encodings that this layer (the identity from now on) has passed through."""
        self.mean.zero_()
        self.projection.copy_(torch.eye(self.projection.shape[1]))
        moments = StreamingCCA()
        for batch in stream:
            rows = batch.z[batch.present.all(dim=1)]  # a covariance needs both sides of a row
            moments.partial_fit(*(rows[:, m, :width] for m, width in enumerate(self.widths)))
        ridge = moments.relative_ridge(self.ridge)
        cca = moments.finalize(min(components, moments.limit(ridge)), ridge)
        self.projection.zero_()
        for m, (mean, projection) in enumerate(zip(cca.means, cca.projections, strict=True)):
            self.mean[m, : len(mean)] = mean.to(self.mean)
            self.projection[m, : len(projection), : projection.shape[1]] = projection.to(self.projection)
