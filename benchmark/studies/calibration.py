"""How often equals are said to differ: one method against itself, through the whole pipeline, 60 seeds, four datasets.

The seeds of one method are dealt at random into groups that play the methods of a board. Whatever the board then finds
is a false positive. The intervals of the table are over deals: the seeds themselves are one sample of sixty.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmark.studies import _null_cells
from benchmark.studies._output import add_output, write_numbers
from leaderboard.effect import Effect, average, judge
from leaderboard.hsu import with_the_best
from leaderboard.merge import BoardError
from leaderboard.moderated import Panel, panel
from leaderboard.stats import ALPHA, wilson
from leaderboard.summary import summarise

Floats = NDArray[np.float64]
SEEDS = (2, 3, 5, 10)
METHODS = 12
EVERY = "means over datasets"
POOLED = "single datasets, pooled"
BOUNDS = (0.03, 0.08)  # of false positives, from three seeds on
MOST_EXPELLED = 0.08
_BOUND_FROM = 3
_BOUND_PILLARS = ("clean", "robust")
_DRAWS = 2000  # of each board's quantile: thousands of boards are made
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9")


@dataclass(frozen=True)
class Rate:
    """How often something happened, with its 95 % (Wilson) interval."""

    hits: int
    trials: int

    @property
    def share(self) -> float:
        """Hits among trials."""
        return self.hits / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        """Of the true share, were the trials independent."""
        return wilson(self.hits, self.trials)

    def __add__(self, other: Rate) -> Rate:
        return Rate(self.hits + other.hits, self.trials + other.trials)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.share:.1%} [{low:.1%}, {high:.1%}]"


@dataclass(frozen=True)
class Outcome:
    """What was found among equals.

    Attributes:
        seeds: Of each method.
        methods: On each board: as many as the seeds allow, twelve at most.
        differ: Pairs of methods said to differ, each seed in one pair at most.
        expelled: Boards on which someone was said not to be the best.
    """

    pillar: str
    dataset: str
    seeds: int
    methods: int
    differ: Rate
    expelled: Rate

    @property
    def bounded(self) -> bool:
        """Whether the bounds apply: two seeds are too few for promises."""
        return self.seeds >= _BOUND_FROM and self.pillar in _BOUND_PILLARS

    @property
    def holds(self) -> bool:
        """Whether both shares may be within their bounds: chance alone breaks none."""
        low, high = self.differ.interval
        return low <= BOUNDS[1] and high >= BOUNDS[0] and self.expelled.interval[0] <= MOST_EXPELLED


def calibrate(pillar: str, values: Mapping[str, Floats], seeds: int, boards: int) -> list[Outcome]:
    """Deal the seeds of each dataset into methods, again and again, and count what is found.

    Args:
        pillar: Its name.
        values: Dataset -> what rows add to the score, `[seeds, rows]`, of one method.
        seeds: Of each method.
        boards: How many deals.

    Returns:
        One outcome per dataset and, when there are several, one for all of them pooled and one for means over all.
    """
    rng = np.random.default_rng(seeds)
    fewest = min(len(x) for x in values.values())
    methods = _methods(fewest, seeds)
    places = [*values, EVERY] if len(values) > 1 else list(values)
    differ, expelled = dict.fromkeys(places, 0), dict.fromkeys(places, 0)
    for _ in range(boards):
        panels = {dataset: board(x, deal(len(x), methods, seeds, rng)) for dataset, x in values.items()}
        for place in places:
            own = list(panels.values()) if place == EVERY else [panels[place]]
            names = list(own[0].methods)
            differ[place] += sum(effect.p <= ALPHA for effect in _pairs(own, names))
            expelled[place] += not all(c.best for c in with_the_best(own, names, draws=_DRAWS))
    pairs = boards * (methods // 2)
    found = [Outcome(pillar, p, seeds, methods, Rate(differ[p], pairs), Rate(expelled[p], boards)) for p in places]
    return [*found, _pooled(found[:-1])] if len(values) > 1 else found


def _pooled(outcomes: Sequence[Outcome]) -> Outcome:
    differ, expelled = outcomes[0].differ, outcomes[0].expelled
    for o in outcomes[1:]:
        differ, expelled = differ + o.differ, expelled + o.expelled
    return replace(outcomes[0], dataset=POOLED, differ=differ, expelled=expelled)


def any_line(values: Mapping[str, Mapping[str, Floats]], seeds: int, trials: int) -> Rate:
    """How often a method compared with itself shows a win or loss on any line, every pillar and dataset being one."""
    rng = np.random.default_rng(seeds)
    every = [x for own in values.values() for x in own.values()]
    fewest = min(len(x) for x in every)
    hits = 0
    for _ in range(trials):
        order = deal(fewest, _methods(fewest, seeds), seeds, rng)  # one for all: the pillars are of the same cells
        boards = [board(x, order) for x in every]
        lines = judge([effect for own in boards for effect in _pairs([own], list(own.methods)[:2])])
        hits += any(line.verdict != "tie" for line in lines)
    return Rate(hits, trials)


def deal(number: int, methods: int, seeds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Which of `number` seeds each method gets, none twice: `[methods, seeds]`."""
    return rng.permutation(number)[: methods * seeds].reshape(methods, seeds)


def board(values: Floats, order: NDArray[np.int64]) -> Panel:
    """A board of equals, from what rows add to the score of each seed."""
    return panel({f"m{i:02d}": summarise(values[own]) for i, own in enumerate(order)})


def _methods(number: int, seeds: int) -> int:
    methods = min(METHODS, number // seeds)
    if methods < 2:
        raise ValueError(f"Expected at least {2 * seeds} seeds for two methods of {seeds}, but got {number}")
    return methods


def _pairs(panels: Sequence[Panel], names: Sequence[str]) -> list[Effect]:
    """Differences of neighbours, mean over datasets."""
    several = zip(names[::2], names[1::2], strict=False)
    return [average([panel.difference(a, b) for panel in panels]) for a, b in several]


def table(outcomes: Sequence[Outcome], lines: Mapping[int, Rate]) -> str:
    """Markdown; outside the bounds in bold."""
    text = [
        "| pillar | dataset | seeds | methods | said to differ | someone expelled |",
        "|---|---|---|---|---|---|",
    ]
    for o in outcomes:
        mark = "**" if o.bounded and not o.holds else ""
        shares = f"{mark}{o.differ}{mark} | {mark}{o.expelled}{mark}"
        text.append(f"| {o.pillar} | {o.dataset} | {o.seeds} | {o.methods} | {shares} |")
    text += ["", "| seeds | a win or loss on any line (Holm) |", "|---|---|"]
    text += [f"| {seeds} | {rate} |" for seeds, rate in lines.items()]
    return "\n".join(text) + "\n"


def plot(outcomes: Sequence[Outcome], path: Path) -> None:
    """False positives and expulsions against the number of seeds, a column per pillar, a line per dataset."""
    pillars = list(dict.fromkeys(o.pillar for o in outcomes))
    places = list(dict.fromkeys(o.dataset for o in outcomes))
    figure = Figure(figsize=(1 + 3.4 * len(pillars), 6), layout="constrained")
    panels = figure.subplots(2, len(pillars), sharex=True, sharey="row", squeeze=False)
    for column, pillar in zip(panels.T, pillars, strict=True):
        for axes, what in zip(column, ("differ", "expelled"), strict=True):
            for i, place in enumerate(places):
                own = [o for o in outcomes if (o.pillar, o.dataset) == (pillar, place)]
                _curve(axes, own, what, i - len(places) / 2, COLOURS[i % len(COLOURS)])
            axes.axhspan(*(BOUNDS if what == "differ" else (0, MOST_EXPELLED)), color="0.92", zorder=0)
            axes.axhline(ALPHA, color="0.5", lw=0.8, ls=":")
            axes.set(xscale="log", xticks=SEEDS, xticklabels=[str(n) for n in SEEDS], ylim=(0, None))
            axes.minorticks_off()
        column[0].set_title(pillar)
        column[1].set_xlabel("seeds of each method")
    panels[0, 0].set_ylabel("pairs of equals said to differ")
    panels[1, 0].set_ylabel("boards of equals expelling someone")
    panels[0, 0].legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=130)


def _curve(axes: Axes, outcomes: Sequence[Outcome], what: str, shift: float, colour: str) -> None:
    rates: list[Rate] = [getattr(o, what) for o in outcomes]
    share = np.array([r.share for r in rates])
    ends = np.array([r.interval for r in rates]).T
    x = np.array([o.seeds for o in outcomes]) * 1.02**shift  # side by side, or the bars hide each other
    error = np.abs(ends - share)
    axes.errorbar(x, share, error, color=colour, marker="o", ms=3, lw=1, elinewidth=0.8, label=outcomes[0].dataset)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `polymodal study calibration`."""
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("results/studies/calibration/cells"),
        help="folder of the cells; those that are missing are run",
    )
    add_output(parser, "calibration")
    parser.add_argument("--seeds", type=int, default=60, help="cells per dataset")
    parser.add_argument("--first-seed", type=int, default=0, help="of the cells: seeds that nothing was chosen by")
    parser.add_argument("--boards", type=int, default=200, help="deals per dataset, pillar and number of seeds")
    parser.add_argument("--workers", type=int, help="worker processes; 0 runs in this one (default: one per core)")
    parser.add_argument("--no-run", action="store_true", help="take the records of the folder as they are")


def run(args: argparse.Namespace) -> int:
    """Run what is missing; print and write table, picture and numbers; 1 if a bound does not hold."""
    try:
        if not args.no_run:
            _null_cells.make(args.results, args.seeds, args.workers, print, args.first_seed)
        values = _null_cells.read(args.results)
    except BoardError as error:
        print(error)
        return 2
    fewest = min(len(x) for own in values.values() for x in own.values())
    sizes = [n for n in SEEDS if 2 * n <= fewest]
    if not sizes:
        print(f"{fewest} seeds cannot be dealt into two methods of {SEEDS[0]}")
        return 2
    outcomes = [o for pillar, own in values.items() for n in sizes for o in calibrate(pillar, own, n, args.boards)]
    lines = {n: any_line(values, n, args.boards) for n in sizes}
    args.out.mkdir(parents=True, exist_ok=True)
    text = table(outcomes, lines)
    print(text)
    (args.out / "calibration.md").write_text(text, encoding="utf-8")
    write_numbers(args.out / "calibration.json", {"outcomes": outcomes, "any_line": lines})
    plot(outcomes, args.out / "calibration.png")
    outside = [o for o in outcomes if o.bounded and not o.holds]
    print(f"{len(outside)} of {sum(o.bounded for o in outcomes)} bounded lines are outside their bounds (bold).")
    print(f"Table, picture and numbers are in {args.out}")
    return 1 if outside else 0
