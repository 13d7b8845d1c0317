"""Attention maps: what each method looked at, side by side on one picture."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from benchmark.attention import attention_of
from benchmark.pictures.drawing import bare, draw_image, draw_value, save
from datamodules.base import DataModule
from datamodules.encoders.features import Features
from datamodules.spec import Batch, Modality
from methods.base import Method
from methods.functional.attention import Mixture, cell_centers, gaussian_density, paraboloid_density, support_ellipse
from methods.parts.attention import Attended

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FRAME = 96  # points per axis on which densities are drawn
EXTENT = (0, 1, 1, 0)  # the unit square of the densities, first row on top
LINE, EDGE = "#00e5ff", "#ffffff"


class Seen(NamedTuple):
    """What one method answered on some rows, and what it looked at in each modality."""

    label: str
    answers: tuple[str, ...]
    attention: dict[str, Attended]


def look(method: Method, batch: Batch, label: str) -> Seen:
    """Run a trained method on a batch.

    Raises:
        ValueError: If it does not attend to tokens.
    """
    with torch.inference_mode():
        out = method(batch.inputs, batch.present)
        attention = attention_of(method, out.tokens, batch.present)
    if attention is None:
        raise ValueError(f"{label} has no attention over tokens to draw (it has no `attention(tokens, present)`)")
    return Seen(label, tuple(answer(method.task.class_names, x) for x in out.logits), attention)


def answer(names: tuple[str, ...], logits: Tensor) -> str:
    """The answer in words, where outputs have names."""
    if logits.numel() == 1:
        return f"{logits.item():.3g}"
    best = int(logits.argmax())
    return names[best] if names else str(best)


def draw_sheet(datamodule: DataModule, rows: list[int], seen: list[Seen], path: Path) -> Path:
    """Write a PNG: a line per row and attended modality, the input first and then a column per method."""
    from matplotlib.figure import Figure  # not pyplot: a figure of our own needs no display and leaves no global state

    if isinstance(datamodule, Features):  # people look at inputs, not at features
        datamodule = datamodule.base
    task = datamodule.task
    batch = datamodule.ordered("test").take(torch.tensor(rows))
    shown = [m for m in task.modalities if any(m.name in s.attention for s in seen)]
    lines = [(position, modality) for position in range(len(rows)) for modality in shown]
    heights = [2.1 if modality.kind == "image" else 1.1 for _, modality in lines]
    size = (2.1 * (1 + len(seen)), sum(heights) + 0.45 * len(rows) + 0.3)
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    axes = figure.subplots(len(lines), 1 + len(seen), squeeze=False, height_ratios=heights)
    for (position, modality), line in zip(lines, axes, strict=True):
        value = batch.inputs[modality.name][position]
        first = modality is shown[0]
        draw_value(line[0], modality, value, datamodule, width=26, fontsize=7)
        line[0].set_ylabel(f"{modality.name} {rows[position]}", fontsize=7)
        if first:
            line[0].set_title(_caption(datamodule, batch, position), fontsize=7)
        for axis, one in zip(line[1:], seen, strict=True):
            if first:
                axis.set_title(f"{one.label}\nsays {one.answers[position]}", fontsize=7)
            if modality.name in one.attention:
                _draw_attention(axis, modality, value, datamodule, one_row(one.attention[modality.name], position))
            else:
                axis.axis("off")
    return save(figure, path)


def one_row(attended: Attended, position: int) -> Attended:
    """The attention of one row, without its batch axis."""
    mixture = attended.mixture
    return attended._replace(
        weights=attended.weights[position],
        scores=None if attended.scores is None else attended.scores[position],
        mixture=None if mixture is None else Mixture(*(x[position].double() for x in mixture)),
    )


def density(attended: Attended, points: Tensor) -> Tensor:
    """The density of one row at `points [P, D]`: the sum of its weighted components."""
    assert attended.mixture is not None
    pi, mu, cov = attended.mixture
    component = paraboloid_density if attended.shape == "paraboloid" else gaussian_density
    return pi @ component(points, mu, cov)


def _caption(datamodule: DataModule, batch: Batch, position: int) -> str:
    task = datamodule.task
    spelt = [datamodule.spell(name, batch.inputs[name][position]) for name in task.names]
    truth = textwrap.fill(f"answer: {task.goal.spell(batch.target[position])}", 34)
    return "\n".join([*(textwrap.fill(text, 34) for text in spelt if text), truth])


def _draw_attention(axis: Axes, modality: Modality, value: Tensor, datamodule: DataModule, attended: Attended) -> None:
    bare(axis)
    if len(attended.grid) == 2:
        draw_image(axis, modality, value, extent=EXTENT)
        _draw_map(axis, attended)
    else:
        _draw_curve(axis, attended)
        if modality.kind == "text" and attended.grid == modality.shape:  # an encoder may have tokens of its own
            count = int((value != 0).sum())
            labels = [datamodule.spell(modality.name, value[i : i + 1]).rstrip("?") for i in range(count)]
            centres = [(i + 0.5) / attended.grid[0] for i in range(count)]
            axis.set_xticks(centres, labels, fontsize=5, rotation=45)


def _draw_map(axis: Axes, attended: Attended) -> None:
    """Discrete cells as a veil over what is not attended to; densities as contours, supports as thick ellipses."""
    if attended.mixture is None:
        veil = attended.weights.reshape(attended.grid).float()
        veil = 0.85 * (1 - veil / veil.max().clamp_min(1e-12))
        axis.imshow(torch.zeros(attended.grid).numpy(), extent=EXTENT, cmap="gray", alpha=veil.numpy())
        return
    height = density(attended, cell_centers((FRAME, FRAME))).reshape(FRAME, FRAME)
    ticks = ((torch.arange(FRAME) + 0.5) / FRAME).numpy()
    levels = (torch.linspace(0.1, 0.9, 5, dtype=height.dtype) * height.max()).numpy()
    axis.contour(ticks, ticks, height.numpy(), levels=levels, colors=LINE, linewidths=0.8)
    pi, mu, cov = attended.mixture
    for k in range(len(pi)):
        if pi[k] <= 0:
            continue
        if attended.shape == "paraboloid":
            edge = support_ellipse(mu[k], cov[k])
            axis.plot(edge[:, 1].numpy(), edge[:, 0].numpy(), color=EDGE, linewidth=2.2)
        if len(pi) > 1:
            # A dot as well: a component on one cell alone is too narrow for a contour.
            y, x, weight = float(mu[k, 0]), float(mu[k, 1]), float(pi[k])
            axis.plot(x, y, "o", color=LINE, markeredgecolor="#000000", markersize=3 + 6 * weight)
            axis.text(x, y - 0.04, f"{weight:.2f}", color=EDGE, fontsize=6, ha="center", va="bottom")
    axis.set_xlim(0, 1)
    axis.set_ylim(1, 0)


def _draw_curve(axis: Axes, attended: Attended) -> None:
    """Probabilities of the tokens as bars over time, a density as a curve."""
    length = attended.grid[0]
    centres = ((torch.arange(length) + 0.5) / length).numpy()
    bars = attended.weights if attended.scores is None else attended.scores
    axis.bar(centres, bars.float().numpy(), width=0.9 / length, color="#9aa7b5")
    if attended.mixture is not None:
        points = cell_centers((8 * FRAME,))
        # Divided by the number of tokens: then the curve's height is what a bar of that density would have.
        axis.plot(points[:, 0].numpy(), (density(attended, points) / length).numpy(), color="#0077aa", linewidth=1.4)
    axis.set_xlim(0, 1)
