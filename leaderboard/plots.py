"""The charts of a board as PNG and SVG files, legible in a column of a paper (3.4 inches)."""

# The keyword arguments of matplotlib have no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from leaderboard import measures
from leaderboard.board import Board, Dataset, Row
from leaderboard.comparison import Comparison
from leaderboard.families import FAMILIES, OTHER
from leaderboard.point_names import name_points
from leaderboard.ranking import PILLARS
from leaderboard.robustness import LEVELS, curves
from leaderboard.shown import shortened, shown

# Wong's palette without yellow: told apart by colour-blind readers and on grey paper.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_DASHES = ("-", "--", ":", "-.")
_MARKERS = "osD^vP*X"
COLUMN = 3.4
_PANELS = 3  # side by side: across both columns
_STYLE: dict[Any, Any] = {  # matplotlib's own key type is not public
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "svg.fonttype": "none",
    "svg.hashsalt": "polymodal",
    "text.parse_math": False,  # a method's name is a name, dollars and all
}
_HIGHLIGHTED = 6


def save_plots(boards: Sequence[Board], folder: Path) -> list[Path]:
    """Write every chart that the boards have data for; the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with mpl.rc_context(_STYLE):
        for board in boards:
            for name, figure in figures(board).items():
                for suffix in ("png", "svg"):
                    path = folder / f"{board.track}-{_file_name(name)}.{suffix}"
                    metadata = {"Date": None} if suffix == "svg" else {}
                    figure.savefig(path, dpi=200, bbox_inches="tight", metadata=metadata)
                    written.append(path)
    return written


def figures(board: Board) -> dict[str, Figure]:
    """Name -> chart: clean against robust, advantages by pillar, severity curves per dataset, the attention audit."""
    found: dict[str, Figure | None] = {
        "clean-robust": scatter(board),
        "clean-robust-leaders": scatter(board, leaders_only=True),
        "audit": audit(board),
    }
    for pillar in PILLARS:
        found[f"advantage-{pillar}"] = advantages(board, pillar)
    for dataset in board.datasets:
        found[f"curves-{dataset.name}"] = severity_curves(board, dataset)
    return {name: figure for name, figure in found.items() if figure is not None}


def scatter(board: Board, cost: str = "parameters", leaders_only: bool = False) -> Figure | None:
    """Mean clean against mean robust score; ringed: the Pareto front of both and the cost.

    Args:
        board: Of a track.
        cost: The measure that sizes the dots.
        leaders_only: Zoomed to where a reader looks, which is crowded when all are shown; None if all are there.
    """
    points = [
        (row, clean, area, row.means[cost] or np.nan)
        for row in board.rows
        if (clean := row.means["clean"]) is not None and (area := row.means["area"]) is not None
    ]
    if len(points) < 2:
        return None
    at = np.array([p[1:3] for p in points])
    front = pareto(np.array([[x, y, -c] for _, x, y, c in points]))
    drawn = _leaders(at, front) if leaders_only else list(range(len(points)))
    if leaders_only and len(drawn) == len(points):
        return None
    figure, axes = _figure(COLUMN, 3.2)
    families = sorted({points[i][0].family for i in drawn})
    sizes = _sizes(np.array([p[3] for p in points]))
    for family in families:
        own = [i for i in drawn if points[i][0].family == family]
        axes.scatter(*at[own].T, s=sizes[own], color=_colour(family), alpha=0.75, linewidths=0, label=_short(family))
    ringed = [i for i in front if i in drawn]
    axes.scatter(*at[ringed].T, s=sizes[ringed], facecolors="none", edgecolors="black", linewidths=1.2)
    axes.set_xlabel("clean, chance-normalised")
    axes.set_ylabel("robust: area under the curves")
    if leaders_only:
        axes.set_title(f"{len(points) - len(drawn)} methods are further down or left", fontsize=7)
    _legend_below(figure, min(3, len(families)))
    names = {k: _short(points[i][0].label) for k, i in enumerate(drawn) if i in ringed}
    name_points(axes, at[drawn], sizes[drawn], names)
    return figure


def _leaders(at: np.ndarray, front: Sequence[int]) -> list[int]:
    """The better half, and who is on the front unless it is among the worst quarter; as on the page.

    Where most of what would be drawn is empty, those beyond the void are left out.
    """
    both = at.sum(axis=1)
    middle, low = np.median(both), np.quantile(both, 0.25)
    half = [i for i, value in enumerate(both) if value >= middle or (i in front and value >= low)]
    order = np.sort(both[half])
    gap = int(np.argmax(np.diff(order))) if len(half) > 1 else 0
    is_void = len(half) - gap > 3 and order[gap + 1] - order[gap] > (order[-1] - order[0]) / 2
    return [i for i in half if both[i] > order[gap]] if is_void else half


def pareto(points: np.ndarray) -> list[int]:
    """Rows that no other row equals or beats in every column and beats in one; rows with holes are on no front."""
    whole = np.isfinite(points).all(axis=1)
    front: list[int] = []
    for i in np.flatnonzero(whole):
        others = points[whole]
        beaten = (others >= points[i]).all(axis=1) & (others > points[i]).any(axis=1)
        if not beaten.any():
            front.append(int(i))
    return front


def severity_curves(board: Board, dataset: Dataset) -> Figure | None:
    """Normalised score against severity, one panel per corrupted modality, the leading methods in colour."""
    rows = [r for r in board.rows if r.entries[dataset.name].status == "ok"]
    modalities = [k for k in dataset.modalities if any(k == key[0] for key in dataset.curves)]
    if not modalities or not rows:
        return None
    figure, panels = _panels(len(modalities))
    leading = _leading(board, rows)
    for axes, modality in zip(panels, modalities, strict=True):
        for row in rows:
            line = _mean_curve(row, dataset, modality)
            if line is None:
                continue
            dashes = leading.get(row.label)
            if dashes is None:
                axes.plot(range(LEVELS + 1), line, color="0.8", lw=0.6)
            else:
                style: dict[str, Any] = {"color": _colour(row.family), "ls": dashes, "lw": 1.5, "zorder": 3}
                axes.plot(range(LEVELS + 1), line, label=_short(row.label), **style)
        axes.set_title(f"{shown(modality)} corrupted", fontsize=8)
        axes.set_xlabel("severity")
    panels[0].set_ylabel(f"{shown(dataset.metric)}, normalised")
    _legend_below(figure, min(3, len(panels) * 2), panels[0])
    figure.suptitle(shown(dataset.name), fontsize=9)
    return figure


def _mean_curve(row: Row, dataset: Dataset, modality: str) -> list[float] | None:
    """Mean over the common corruptions of a modality and over seeds."""
    found = [
        [measures.normalise(a, record) for a in curves(record)[key]]
        for record in row.entries[dataset.name].records
        for key in dataset.curves
        if key[0] == modality and key in curves(record)
    ]
    return list(np.mean(found, axis=0)) if found else None


def advantages(board: Board, pillar: str) -> Figure | None:
    """The advantage over the control with its interval; filled: may be the best of its league."""
    standings = sorted(
        (s for r in board.rows if (s := r.standings.get(pillar))), key=lambda s: (-s.advantage, s.method)
    )
    if len(standings) < 2:
        return None
    families = {r.label: r.family for r in board.rows}
    figure, axes = _figure(COLUMN, max(1.6, 0.7 + 0.16 * len(standings)))
    for y, s in enumerate(standings):
        colour = _colour(families[s.method])
        if s.low is not None and s.high is not None:
            axes.hlines(y, s.low, s.high, color=colour, lw=3, alpha=0.35)
        axes.plot([s.advantage], [y], "o", color=colour, mfc=colour if s.best else "white", ms=4)
    axes.axvline(0, color="0.3", lw=0.8)
    axes.set_xlabel(f"{pillar} advantage over {board.control} (95 %)")
    axes.set_yticks(range(len(standings)), [_short(s.method) for s in standings], fontsize=7)
    axes.set_ylim(len(standings) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    return figure


def audit(board: Board) -> Figure | None:
    """Correlation of each weight with the severity applied to its modality, for methods that weigh modalities."""
    found: list[tuple[str, dict[str, list[float]]]] = []
    for row in board.rows:
        own: dict[str, list[float]] = {}
        for entry in row.entries.values():
            for modality, value in (measures.audit(entry.records) if entry.records else {}).items():
                own.setdefault(modality, []).append(value)
        if own:
            found.append((row.label, own))
    if not found:
        return None
    families = {r.label: r.family for r in board.rows}
    figure, axes = _figure(COLUMN, max(1.8, 1.0 + 0.18 * len(found)))
    names = sorted({m for _, own in found for m in own})
    for i, modality in enumerate(names):
        marker = _MARKERS[i % len(_MARKERS)]
        axes.plot([], [], marker, color="0.3", ms=4, label=_short(modality))
        for y, (label, own) in enumerate(found):
            values = own.get(modality, [])
            axes.plot(values, [y] * len(values), marker, color=_colour(families[label]), ms=4, alpha=0.8)
    axes.axvline(0, color="0.4", lw=0.8)
    axes.set_xlim(-1.05, 1.05)
    axes.set_yticks(range(len(found)), [_short(label) for label, _ in found], fontsize=7)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlabel("correlation of weight with severity")
    _legend_below(figure, 3)
    return figure


def _legend_below(figure: Figure, columns: int, axes: Axes | None = None) -> None:
    """Under the axes, where it covers nothing; once, though every panel has the lines."""
    handles, labels = (axes or figure.axes[0]).get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=7)


def _leading(board: Board, rows: Sequence[Row]) -> dict[str, str]:
    """The leaders of the pillars and concat, with a dash that tells those of one family apart; the rest stays grey."""
    labels = [r.label for r in rows if r.entries and r.method]
    ranked = [m for p in PILLARS for m in [s.method for s in board.order(p) if s.method in labels][:2]]
    chosen = list(dict.fromkeys([*ranked, *(m for m in (board.control,) if m in labels), *labels]))[:_HIGHLIGHTED]
    families = {r.label: r.family for r in rows}
    kin = {m: [other for other in chosen if families[other] == families[m]].index(m) for m in chosen}
    return {m: _DASHES[at % len(_DASHES)] for m, at in kin.items()}


def _short(name: str) -> str:
    return shortened(shown(name), 24)


def _colour(family: str) -> str:
    return FAMILIES.get(family, OTHER)


def _sizes(cost: np.ndarray) -> np.ndarray:
    logs = np.log10(np.where(cost > 0, cost, np.nan))
    if not np.isfinite(logs).any():
        return np.full(len(cost), 40.0)
    low, high = np.nanmin(logs), np.nanmax(logs)
    return np.nan_to_num(20 + 100 * (logs - low) / max(high - low, 1e-9), nan=20.0)


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _panels(number: int) -> tuple[Figure, list[Axes]]:
    """One column wide for one panel, two for more, in rows of three."""
    across, down = min(number, _PANELS), -(-number // _PANELS)
    figure = Figure(figsize=(COLUMN if number == 1 else 2 * COLUMN + 0.2, 0.7 + 2.0 * down), layout="constrained")
    every = list(figure.subplots(down, across, sharey=True, squeeze=False).flat)
    for spare in every[number:]:
        spare.remove()
    return figure, every[:number]


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)


def save_comparison(found: Comparison, stem: Path) -> list[Path]:
    """Write the forest plot of a comparison as PNG and SVG."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with mpl.rc_context(_STYLE):
        figure = forest(found)
        for suffix in ("png", "svg"):
            path = stem.parent / f"{stem.name}.{suffix}"
            figure.savefig(path, dpi=200, bbox_inches="tight", metadata={"Date": None} if suffix == "svg" else {})
            written.append(path)
    return written


def forest(found: Comparison) -> Figure:
    """Paired differences with their intervals; colour says whether seeds and rows suffice to tell."""
    lines = [d for d in found.differences if d.kind != "condition"]
    figure, axes = _figure(5.6, 0.9 + 0.2 * len(lines))
    colours = {"win": COLOURS[2], "loss": COLOURS[1], "tie": "0.55"}
    for i, d in enumerate(lines):
        if np.isfinite(d.high):
            axes.plot([d.low, d.high], [i, i], color=colours[d.verdict], lw=2, solid_capstyle="round")
        axes.plot([d.difference], [i], "o", color=colours[d.verdict], ms=4)
        if i and d.dataset != lines[i - 1].dataset:
            axes.axhline(i - 0.5, color="0.8", lw=0.8)
    axes.axvline(0, color="0.3", lw=0.8)
    axes.set_yticks(range(len(lines)), [shown(f"{d.dataset}: {d.what}") for d in lines], fontsize=7)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(shown(f"{found.b} better  ←  difference of score  →  {found.a} better"))
    return figure
