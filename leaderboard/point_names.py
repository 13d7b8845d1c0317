"""Names beside the points of a chart: none covers a point or another name."""

# The keyword arguments of matplotlib have no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

_NEAR = 2.0  # points between a name and its dot; further off a line leads to it
_RINGS = (_NEAR, 9.0, 18.0, 28.0, 40.0, 54.0, 70.0, 90.0)
_ANGLES = tuple(sorted(range(0, 360, 15), key=lambda a: abs(np.sin(np.radians(a)))))  # beside a dot reads best

Box = tuple[float, float, float, float]


def name_points(axes: Axes, at: np.ndarray, sizes: np.ndarray, names: Mapping[int, str]) -> None:
    """Write names beside points, or further off with a line where it is crowded; what finds no place is not named.

    To be called last: places are those of the axes as they are laid out now.

    Args:
        axes: Of the chart.
        at: `[N, 2]`, the points.
        sizes: `[N]`, their areas as `scatter` has them.
        names: Position of a point -> what is written.
    """
    figure = axes.get_figure()
    assert isinstance(figure, Figure)  # no chart here is a panel of panels
    figure.draw_without_rendering()
    scale = figure.dpi / 72  # pixels of a point
    centres, radii = axes.transData.transform(at), np.sqrt(sizes) / 2 * scale
    taken: list[Box] = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(centres, radii, strict=True)]
    room = axes.get_window_extent()
    inside: Box = (room.x0, room.y0, room.x1, room.y1)
    for i, name in names.items():
        text = _written(axes, at[i], name, radii[i] / scale)
        own = Text.get_window_extent(text)  # of the words alone, without the line
        for ring, (x, y) in _places(radii[i], own.width, own.height, scale):
            box = _around(centres[i][0] + x, centres[i][1] + y, own.width, own.height)
            if _within(box, inside) and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                text.xyann = (x / scale, y / scale)
                if ring == _NEAR and text.arrow_patch is not None:
                    text.arrow_patch.set_visible(False)
                break
        else:
            text.remove()


def _written(axes: Axes, at: Sequence[float] | np.ndarray, name: str, radius: float) -> Annotation:
    line = {"arrowstyle": "-", "color": "0.35", "lw": 0.5, "shrinkA": 0, "shrinkB": radius}
    text = axes.annotate(name, (at[0], at[1]), xytext=(0, 0), textcoords="offset points", fontsize=7, ha="center",
                         va="center", arrowprops=line)  # fmt: skip
    text.set_in_layout(False)  # the axes stay where the names were placed in them
    return text


def _places(radius: float, wide: float, high: float, scale: float) -> Iterator[tuple[float, tuple[float, float]]]:
    """Rings around a dot, the nearest first: which, and the offset of the middle of a name in pixels."""
    for ring in _RINGS:
        gap = radius + ring * scale
        for angle in np.radians(_ANGLES):
            x, y = float(np.cos(angle)), float(np.sin(angle))
            yield ring, (x * (gap + wide / 2), y * (gap + high / 2))


def _around(x: float, y: float, wide: float, high: float) -> Box:
    return (x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)


def _within(box: Box, room: Box) -> bool:
    return box[0] >= room[0] and box[1] >= room[1] and box[2] <= room[2] and box[3] <= room[3]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and one[2] > other[0] and one[1] < other[3] and one[3] > other[1]
