"""How far regularisers spread centres on a sphere, and the two floors of a retrieval dataset.

The spread experiment moves the centres alone (no data, no loss): it shows what a regulariser wants. The reading of the
paper that enlarges the largest distances is among them, as the negative control that it is.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from benchmark.errors import UsageError
from benchmark.studies._on_sphere import Objective, descent
from benchmark.studies._output import add_output, write_numbers
from datamodules.base import DataModule
from datamodules.registry import datasets
from methods import Recipe
from methods.functional import centers
from methods.parts.center_regularizers import Regularizer
from methods.parts.unseen_classes import normalized_mutual_information
from methods.skewed_mean import SkewedMean

# Minimised, each; the label says whether nearest (A) or farthest (B) pairs carry the force.
OBJECTIVES: dict[str, Objective | None] = {
    "none (random)": None,
    "A: r1, gamma 16": lambda W: centers.r1(W, 16.0),
    "A: r1, gamma 64": lambda W: centers.r1(W, 64.0),
    "A: r2, lam 32": lambda W: centers.r2(W, 32.0),
    "A: hard, K = 10 %": lambda W: centers.hard_skewed(W, 0.1),
    "A: hard, K = 1 %": lambda W: centers.hard_skewed(W, 0.01),
    "A: regularface": centers.regularface,
    "A: mhe, s 1": lambda W: centers.rooted_mhe(W, 1.0),
    "A: uniformface": centers.uniformface,
    "B: farthest, lam 1": lambda W: centers.farthest(W, 1.0),
    "B: farthest, lam 2": lambda W: centers.farthest(W, 2.0),
    "B: farthest, lam 4": lambda W: centers.farthest(W, 4.0),
    "B: r1, gamma -4": lambda W: centers.r1(W, -4.0),
}


@dataclass(frozen=True)
class Curve:
    """Spread of the centres against steps under one objective, means over seeds; the last entry is the end."""

    objective: str
    steps: list[int]
    min_distance: list[float]
    nearest_distance: list[float]
    same_share: float
    top_eigenvalue_share: float
    collapsed: bool


@dataclass(frozen=True)
class Floor:
    """Recall@K on unseen classes of something that learnt nothing."""

    name: str
    recall: dict[int, float]
    nmi: float | None


def spread(objective: Objective | None, W: Tensor, steps: int, watch: Sequence[int]) -> list[dict[str, float]]:
    """Minimise by Adam (0.05, cosine-decayed) with a retraction to the sphere; statistics at the watched steps."""
    W = F.normalize(W, dim=1)
    if objective is None:
        return [centers.center_statistics(W)] * len(watch)
    W.requires_grad_()
    move = descent(objective, W, 0.05, steps)
    seen = []
    for step in range(steps + 1):
        if step in watch:
            seen.append(centers.center_statistics(W))
        move()
    return seen


def spread_study(name: str, count: int, width: int, steps: int, seeds: int) -> Curve:
    """One objective from the same random centres per seed as every other."""
    watch = sorted({0, steps, *(round(steps * i / 30) for i in range(31))})
    runs = []
    for seed in range(seeds):
        W = torch.randn(count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        runs.append(spread(OBJECTIVES[name], W, steps, watch))

    def mean(key: str, at: int) -> float:
        return sum(run[at][key] for run in runs) / seeds

    return Curve(
        name,
        watch,
        [mean("min_distance", i) for i in range(len(watch))],
        [mean("nearest_distance", i) for i in range(len(watch))],
        mean("same_share", -1),
        mean("top_eigenvalue_share", -1),
        mean("collapsed", -1) >= 0.5,
    )


def plot_spread(curves: Sequence[Curve], path: Path) -> None:
    """Minimum and mean-nearest distance against steps, one line per objective."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for curve in curves:
        style = {"A": "-", "B": "--"}.get(curve.objective[0], ":")
        for ax, values in zip(axes, (curve.min_distance, curve.nearest_distance), strict=True):
            ax.plot(curve.steps, values, style, label=curve.objective)
    axes[0].set(xlabel="step", ylabel="distance", title="minimum distance of two centres")
    axes[1].set(xlabel="step", title="mean distance to the nearest centre")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    figure.savefig(path, dpi=110)


def floors(data: DataModule, seeds: int, embedding: int) -> list[Floor]:
    """What the test rows' own features retrieve, and what a network that was never trained does."""
    test = data.splits["test"]
    labels, inputs = test.target, {name: test.inputs[name][:] for name in data.task.names}
    raw = torch.cat([x.flatten(1).float() for x in inputs.values()], dim=1)
    known = [
        Floor("random ranking", {1: data.task.goal.trivial(data.splits["train"].target, labels, test.gallery)}, None),
        _floor("raw features", [raw], data),
    ]
    untrained = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        method = SkewedMean(data.task, Recipe(), embedding=embedding, regularizer=Regularizer("none")).eval()
        with torch.no_grad():
            rows = [method(batch.inputs, batch.present).fused for batch in data.test_dataloader()]
        untrained.append(torch.cat(rows))
    return [*known, _floor(f"untrained network, {seeds} seeds", untrained, data)]


def _floor(name: str, embeddings: Sequence[Tensor], data: DataModule) -> Floor:
    test, ks = data.splits["test"], data.task.ks
    scores = [data.task.goal.evaluate(x, test.target, test.gallery) for x in embeddings]
    nmi = [normalized_mutual_information(x, test.target) for x in embeddings]
    return Floor(name, {k: sum(s[f"recall_at_{k}"] for s in scores) / len(scores) for k in ks}, sum(nmi) / len(nmi))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `polymodal study centers`."""
    add_output(parser, "centers")
    parser.add_argument("--centers", type=int, default=100, help="number of centres")
    parser.add_argument("--width", type=int, default=8, help="dimensions of the sphere's space")
    parser.add_argument("--steps", type=int, default=1500, help="of the optimiser")
    parser.add_argument("--seeds", type=int, default=3, help="random starts, the same for every objective")
    parser.add_argument(
        "--floors",
        metavar="DATASET",
        help="instead, print the floors of a retrieval dataset: raw-feature nearest neighbour and untrained network",
    )
    parser.add_argument("--embedding", type=int, default=16, help="width of the untrained network's embedding")


def run(args: argparse.Namespace) -> int:
    """Print the table; write plot and `centers.json`, or the floors of a dataset."""
    args.out.mkdir(parents=True, exist_ok=True)
    if args.floors:
        return _run_floors(args)
    print(f"{args.centers} centres in {args.width} dimensions, {args.steps} steps, mean of {args.seeds} starts")
    print(f"{'objective':20} {'min':>6} {'nearest':>8} {'same':>6} {'top eigenvalue':>15}")
    curves = []
    for name in OBJECTIVES:
        curve = spread_study(name, args.centers, args.width, args.steps, args.seeds)
        curves.append(curve)
        print(
            f"{name:20} {curve.min_distance[-1]:6.3f} {curve.nearest_distance[-1]:8.3f} {curve.same_share:6.2f} "
            f"{curve.top_eigenvalue_share:15.3f}{'  collapsed' if curve.collapsed else ''}"
        )
    plot_spread(curves, args.out / "spread.png")
    write_numbers(args.out / "centers.json", curves)
    print(f"Plot and numbers are in {args.out}")
    return 0


def _run_floors(args: argparse.Namespace) -> int:
    data = datasets.get(args.floors)()
    assert isinstance(data, DataModule)
    if not (data.task.goal.ranked and data.task.goal.one_class):
        raise UsageError(f"{args.floors} is a {data.task.target} task; floors are those of retrieval tasks")
    measured = floors(data, args.seeds, args.embedding)
    print(f"{args.floors}: recall on unseen classes of what learnt nothing")
    print(f"{'floor':32}" + "".join(f"{f'R@{k}':>8}" for k in data.task.ks) + f"{'NMI':>8}")
    for floor in measured:
        cells = [floor.recall.get(k) for k in data.task.ks] + [floor.nmi]
        print(f"{floor.name:32}" + "".join(f"{'':>8}" if v is None else f"{v:8.3f}" for v in cells))
    write_numbers(args.out / f"floors-{args.floors}.json", measured)
    return 0
