"""How to integrate RBFs under a truncated paraboloid: error against time of six rules in two dimensions.

The densities are those that attention over a 14 x 14 grid meets, from one cell to a uniform map and a thin diagonal;
RBFs are the 10 x 10 of the thesis. "published" is the angular rule with the angles of the published code, whose first
and last are the same one; "angular" has each angle once; "chord" is ours; "jacobi" is the product rule that other
alphas use; "grid" sums over the square around the support; "random" draws points of the density.
"""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from benchmark.studies._output import add_output, write_numbers
from methods.functional.attention import grid_paraboloid_expectation, paraboloid_density, rbf_axes, tensor_grid
from methods.functional.entmax import entmax_expectation

AXES = rbf_axes((10, 10))
EXACT = 2048  # chords of the reference: far beyond where the rule has converged
NODES = {1: (8, 16, 32, 64, 128, 256), 2: (8, 16, 32, 64)}  # of rules along a line, and over an area: squared
# Deviations along two axes, and the angle of the first, of the densities.
DENSITIES = {
    "one cell": (0.001, 0.001, 0.0),
    "a spot": (0.05, 0.05, 0.0),
    "an object": (0.15, 0.1, 0.4),
    "uniform": (0.289, 0.289, 0.0),
    "a row": (0.3, 0.02, 0.0),
    "a diagonal": (0.4, 0.002, math.pi / 4),
}


@dataclass(frozen=True)
class Point:
    """One rule with so many nodes: the largest error over densities, relative to the largest value, and its time."""

    rule: str
    nodes: int
    error: float
    milliseconds: float


def densities() -> tuple[Tensor, Tensor]:
    """Means `[6, 2]` and covariances `[6, 2, 2]` in float64."""
    covs = []
    for a, b, angle in DENSITIES.values():
        turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        covs.append(turn.double() @ torch.diag(torch.tensor([a * a, b * b], dtype=torch.float64)) @ turn.double().T)
    return torch.tensor([[0.45, 0.55]], dtype=torch.float64).repeat(len(covs), 1), torch.stack(covs)


def angular(mu: Tensor, cov: Tensor, var: float, angles: Tensor, weight: Tensor) -> Tensor:
    """r = h int st F d angle (thesis, A.22, in its stable form), for isotropic RBFs: `[B, N]`."""
    root = torch.linalg.cholesky(6 * cov)
    around = torch.stack([angles.cos(), angles.sin()])  # [2, n]
    b = (root @ around).unsqueeze(1)  # [B, 1, 2, n]
    d = (tensor_grid(AXES) - mu.unsqueeze(1)).unsqueeze(-1)  # [B, N, 2, 1]
    norm = b.square().sum(dim=2)
    s, r0 = (var / norm).sqrt(), (b * d).sum(dim=2) / norm
    cross = b[:, :, 0] * d[:, :, 1] - b[:, :, 1] * d[:, :, 0]
    area = root.diagonal(dim1=1, dim2=2).prod(dim=1).view(-1, 1, 1)
    st = s * area / var * torch.exp(-cross.square() / (2 * var * norm)) / math.sqrt(2 * math.pi)
    high, low = (1 - r0) / s, -r0 / s
    e = (torch.erf(high / math.sqrt(2)) - torch.erf(low / math.sqrt(2))) / 2
    q1, q0 = (s * torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi) for x in (high, low))
    first = r0 * e + q0 - q1
    second = s * s * e + r0 * first - q1
    third = 2 * s * s * first + r0 * second - q1
    return 2 / (math.pi * area.squeeze(-1)) * (st * (first - third) * weight).sum(dim=-1)


def _rbfs(points: Tensor, var: float) -> Tensor:
    """Every RBF at points `[..., 2]`: `[..., N]`."""
    far = (points.unsqueeze(-2) - tensor_grid(AXES)).square().sum(dim=-1)
    return torch.exp(far / (-2 * var)) / (2 * math.pi * var)


def _published(mu: Tensor, cov: Tensor, var: float, nodes: int) -> Tensor:
    angles = torch.linspace(0, 2 * math.pi, nodes, dtype=mu.dtype)  # the first and the last are one
    return angular(mu, cov, var, angles, torch.full_like(angles, 2 * math.pi / nodes))


def _angular(mu: Tensor, cov: Tensor, var: float, nodes: int) -> Tensor:
    angles = torch.arange(nodes, dtype=mu.dtype) * (2 * math.pi / nodes)
    return angular(mu, cov, var, angles, torch.full_like(angles, 2 * math.pi / nodes))


def _chord(mu: Tensor, cov: Tensor, var: float, nodes: int) -> Tensor:
    return grid_paraboloid_expectation(mu, cov, AXES[0], AXES[1], var, nodes)


def _jacobi(mu: Tensor, cov: Tensor, var: float, nodes: int) -> Tensor:
    return entmax_expectation(mu, cov, AXES, (var, var), 2.0, nodes)


def _grid(mu: Tensor, cov: Tensor, var: float, nodes: int) -> Tensor:
    half = (6 * cov.diagonal(dim1=1, dim2=2)).sqrt()  # [B, 2], the box around the support
    steps = (torch.arange(nodes, dtype=mu.dtype) + 0.5) * (2 / nodes) - 1
    t = mu.unsqueeze(1) + tensor_grid((steps, steps)) * half.unsqueeze(1)
    p = paraboloid_density(t, mu, cov) * (2 / nodes) ** 2 * half.prod(dim=1, keepdim=True)
    return (p.unsqueeze(1) @ _rbfs(t, var)).squeeze(1)


def _random(mu: Tensor, cov: Tensor, var: float, nodes: int) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    count = nodes * nodes
    # |u|^2 of the density (1 - |u|^2) on the disk is 1 - sqrt(U).
    radius = (1 - torch.rand(count, generator=draw, dtype=mu.dtype).sqrt()).sqrt()
    angle = 2 * math.pi * torch.rand(count, generator=draw, dtype=mu.dtype)
    u = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    t = mu.unsqueeze(1) + u @ torch.linalg.cholesky(6 * cov).mT
    return _rbfs(t, var).mean(dim=1)


Rule = Callable[[Tensor, Tensor, float, int], Tensor]
RULES: dict[str, Rule] = {
    "chord": _chord,
    "angular": _angular,
    "published": _published,
    "jacobi": _jacobi,
    "grid": _grid,
    "random": _random,
}
AREA = ("jacobi", "grid", "random")


def errors(rule: Rule, nodes: int, var: float) -> dict[str, float]:
    """The largest error of each density's RBFs, relative to the largest of them."""
    mu, cov = densities()
    exact, found = _chord(mu, cov, var, EXACT), rule(mu, cov, var, nodes)
    worst = (found - exact).abs().amax(dim=1) / exact.amax(dim=1)
    return dict(zip(DENSITIES, worst.tolist(), strict=True))


def measure(name: str, nodes: int, var: float, repeats: int) -> Point:
    """Error, and the fastest of some runs over the densities: other work on the machine only adds."""
    mu, cov = densities()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        RULES[name](mu, cov, var, nodes)
        times.append(time.perf_counter() - started)
    return Point(name, nodes, max(errors(RULES[name], nodes, var).values()), 1e3 * min(times))


def plot(points: list[Point], path: Path) -> None:
    """Error against time, a line a rule."""
    figure = Figure(figsize=(7, 5), layout="constrained")
    ax = figure.subplots()
    for name in RULES:
        own = [point for point in points if point.rule == name]
        ax.plot([p.milliseconds for p in own], [max(p.error, 1e-16) for p in own], marker="o", label=name)
    ax.set(xlabel="milliseconds, 6 densities and 100 RBFs", ylabel="largest relative error", xscale="log", yscale="log")
    ax.legend()
    figure.savefig(path, dpi=110)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `polymodal study integration`."""
    add_output(parser, "integration")
    parser.add_argument("--variance", type=float, default=0.001, help="of the RBFs (0.001 in the thesis)")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs, of which the fastest counts")


def run(args: argparse.Namespace) -> int:
    """Print the table; write plot and `integration.json`."""
    args.out.mkdir(parents=True, exist_ok=True)
    wanted = [(name, nodes) for name in RULES for nodes in NODES[2 if name in AREA else 1]]
    points = [measure(name, nodes, args.variance, args.repeats) for name, nodes in wanted]
    print(f"RBFs of variance {args.variance}; the largest relative error over {len(DENSITIES)} densities")
    print(f"{'rule':10} {'nodes':>6} {'error':>10} {'ms':>9}")
    for point in points:
        print(f"{point.rule:10} {point.nodes:6} {point.error:10.1e} {point.milliseconds:9.2f}")
    plot(points, args.out / "integration.png")
    write_numbers(args.out / "integration.json", points)
    print(f"Plot and numbers are in {args.out}")
    return 0
