"""What sampling centres saves and what it costs: time of a step and spread reached, against the sample.

The naive way takes R1 of the sampled centres alone; its logarithm makes a rarely drawn close pair cheap. The ratio form
(`centers.r1_sampled`) divides by a running normaliser instead. Both are compared with all centres, from equal starts.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from benchmark.studies._on_sphere import Objective, descent
from benchmark.studies._output import add_output, write_numbers
from methods.functional import centers

GAMMA = 16.0
SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)


@dataclass(frozen=True)
class Sampled:
    """Spread after training with a sample of the centres, means over seeds, and the time of one step."""

    form: str
    sample: int
    milliseconds: float
    min_distance: float
    nearest_distance: float


def objective(form: str, sample: int) -> Objective:
    """A fresh objective: the ratio form remembers its normaliser."""
    state: dict[str, Tensor] = {}

    def naive(W: Tensor) -> Tensor:
        return centers.r1(W[torch.randperm(len(W))[:sample]], GAMMA)

    def ratio(W: Tensor) -> Tensor:
        return centers.r1_sampled(W, GAMMA, sample, None, state)

    return {"all": lambda W: centers.r1(W, GAMMA), "naive": naive, "ratio": ratio}[form]


def train(form: str, sample: int, count: int, width: int, steps: int, seed: int) -> tuple[dict[str, float], float]:
    """Statistics of the centres after Adam (0.01, cosine-decayed, retraction to the sphere), and seconds per step."""
    torch.manual_seed(seed)
    W = F.normalize(torch.randn(count, width, dtype=torch.float64), dim=1).requires_grad_()
    move = descent(objective(form, sample), W, 0.01, steps)
    started = time.perf_counter()
    for _ in range(steps):
        move()
    return centers.center_statistics(W), (time.perf_counter() - started) / steps


def study(count: int, width: int, steps: int, seeds: int) -> list[Sampled]:
    """All centres, then both forms at every sample of at least two."""
    samples = sorted({max(2, round(share * count)) for share in SHARES})
    wanted = [("all", count), *((form, sample) for form in ("naive", "ratio") for sample in samples)]
    found = []
    for form, sample in wanted:
        runs = [train(form, sample, count, width, steps, seed) for seed in range(seeds)]
        spread = {key: sum(s[key] for s, _ in runs) / seeds for key in ("min_distance", "nearest_distance")}
        # The fastest run: what else the machine does only adds.
        found.append(Sampled(form, sample, 1e3 * min(seconds for _, seconds in runs), **spread))
    return found


def plot(found: list[Sampled], path: Path) -> None:
    """Spread and time of a step against the sample."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    spread, cost = figure.subplots(1, 2)
    whole = found[0]
    for ax, key, title in (
        (spread, "nearest_distance", "mean distance to the nearest centre"),
        (cost, "milliseconds", "milliseconds of a step"),
    ):
        ax.axhline(getattr(whole, key), color="black", linestyle=":", label="all centres")
        for form, style in (("naive", "--"), ("ratio", "-")):
            own = [one for one in found if one.form == form]
            ax.plot([one.sample for one in own], [getattr(one, key) for one in own], style, marker="o", label=form)
        ax.set(xlabel=f"centres drawn of {whole.sample}", title=title, xscale="log")
        drawn = sorted({one.sample for one in found[1:]})
        ax.set_xticks(drawn, map(str, drawn))
        ax.minorticks_off()  # their labels would overlap
    spread.legend()
    figure.savefig(path, dpi=110)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `polymodal study sampling`."""
    add_output(parser, "sampling")
    parser.add_argument("--centers", type=int, default=200, help="number of centres")
    parser.add_argument("--width", type=int, default=8, help="dimensions of the sphere's space")
    parser.add_argument("--steps", type=int, default=3000, help="of the optimiser")
    parser.add_argument("--seeds", type=int, default=3, help="random starts, the same for every sample")


def run(args: argparse.Namespace) -> int:
    """Print the table; write plot and `sampling.json`."""
    args.out.mkdir(parents=True, exist_ok=True)
    found = study(args.centers, args.width, args.steps, args.seeds)
    print(f"{args.centers} centres in {args.width} dimensions, {args.steps} steps, mean of {args.seeds} starts")
    print(f"{'form':8} {'sample':>7} {'ms/step':>8} {'min':>7} {'nearest':>8}")
    for one in found:
        print(
            f"{one.form:8} {one.sample:7} {one.milliseconds:8.3f} {one.min_distance:7.3f} {one.nearest_distance:8.3f}"
        )
    plot(found, args.out / "sampling.png")
    write_numbers(args.out / "sampling.json", found)
    print(f"Plot and numbers are in {args.out}")
    return 0
