"""A value of a dataset as people know it, whatever its kind and range; what all pictures share."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from datamodules.base import DataModule, Skeleton
from datamodules.rows.as_recorded import Original
from datamodules.spec import Modality

LINES = 8  # channels of a sequence up to which each is a line, and not a band of a spectrogram
FRAMES = 5  # of a skeleton
FEW = 24  # numbers of a vector that are drawn apart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
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


def draw_value(
    axis: Axes,
    modality: Modality,
    value: Tensor,
    datamodule: DataModule,
    like: Tensor | None = None,
    *,
    width: int = 16,
    fontsize: float = 6,
) -> None:
    """Show an input of any kind.

    Args:
        like: Its scale of colours and heights is taken, so that a change from it is seen as one.
        width: Letters in a line of a text.
        fontsize: Of a text.
    """
    bare(axis)
    scale = value if like is None else like
    low, high = float(scale.min()), float(scale.max())
    match modality.kind:
        case "image":
            draw_image(axis, modality, value, like)
        case "sequence" | "vector" if (body := datamodule.skeleton(modality.name, value)) is not None:
            draw_skeleton(axis, body)
        case "sequence" if value.shape[1] <= LINES:
            draw_curves(axis, value, low, high)
        case "sequence":
            # Time runs to the right, the lowest band or coefficient is at the bottom: a spectrogram as usual.
            style: Any = {"origin": "lower", "cmap": "magma", "interpolation": "nearest"}
            axis.imshow(value.float().T.numpy(), aspect="auto", vmin=low, vmax=high, **style)
        case "vector":
            # A few numbers are told apart by gaps; of many, gaps would be all that is seen.
            axis.bar(range(len(value)), value.numpy(), width=0.7 if len(value) <= FEW else 1.0, color="#33608c")
            axis.axhline(0, color="#999999", linewidth=0.5)
            if like is not None:
                axis.set_ylim(min(2 * low, -0.1), max(2 * high, 0.1))
        case "text":
            draw_words(axis, datamodule.spell(modality.name, value), width, fontsize)


def draw_recorded(axis: Axes, recorded: Original, width: int, fontsize: float) -> None:
    """Show what an input was made of."""
    bare(axis)
    match recorded:
        case str():
            draw_words(axis, recorded, width, fontsize)
        case Skeleton():
            draw_skeleton(axis, recorded)
        case _:
            draw_curves(axis, recorded, float(recorded.min()), float(recorded.max()))


def draw_words(axis: Axes, words: str, width: int, fontsize: float) -> None:
    """A text, its lines of `width` letters."""
    for side in axis.spines.values():
        side.set_visible(False)
    centred: Any = {"ha": "center", "va": "center", "transform": axis.transAxes}
    axis.text(0.5, 0.5, textwrap.fill(words, width), fontsize=fontsize, parse_math=False, **centred)


def draw_curves(axis: Axes, value: Tensor, low: float, high: float) -> None:
    """A line for each channel of `[T, C]`, time to the right."""
    axis.plot(value.float().numpy(), linewidth=0.6)
    axis.set_ylim(low - 0.05 * (high - low) - 1e-6, high + 0.05 * (high - low) + 1e-6)


def draw_skeleton(axis: Axes, body: Skeleton) -> None:
    """A few frames side by side, from the front, the first at the left."""
    frames = torch.linspace(0, len(body.joints) - 1, min(FRAMES, len(body.joints))).long()
    joints = body.joints[frames].double()
    width = 1.1 * float(joints[..., 0].max() - joints[..., 0].min())
    for place, pose in enumerate(joints):
        for a, b in body.bones:
            across, up = pose[[a, b], 0] + place * width, pose[[a, b], 1]
            axis.plot(across.numpy(), up.numpy(), color="#33608c", linewidth=0.9)
    axis.set_aspect("equal", adjustable="datalim")


def bare(axis: Axes) -> None:
    """Axes without ticks."""
    axis.set_xticks([])
    axis.set_yticks([])


def save(figure: Figure, path: Path) -> Path:
    """Write a PNG; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")
    return path
