"""An image as people know it, whatever range a dataset keeps its pixels in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from datamodules.spec import Modality

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import Tensor


def draw_image(axis: Axes, modality: Modality, value: Tensor, like: Tensor | None = None, **placement: Any) -> None:
    """Show `[C, H, W]` in colour, or its first channel in grey; `placement` is for `imshow`.

    Black and white are the ends of the modality's range, or of `like` (by default the image itself) where it has none.
    """
    like = value if like is None else like
    low, high = modality.range or (float(like.min()), float(like.max()))
    shown = ((value.float() - low) / max(high - low, 1e-12)).clamp(0, 1)
    if len(value) == 3:
        axis.imshow(shown.permute(1, 2, 0).numpy(), interpolation="nearest", **placement)
    else:
        axis.imshow(shown[0].numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest", **placement)
