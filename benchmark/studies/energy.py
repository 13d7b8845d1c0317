"""What EMMA's potential sees: experiment 1 (four 2-D manifolds) and experiment 2 (noisy and unseen digits).

The study also measures the paper's own normal/abnormal classifier, the sign of the Laplacian, and says what came out:
it does not separate abnormal points from normal ones, it separates them the wrong way round.
"""

import argparse
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import Tensor

from benchmark.studies._output import add_output, write_numbers
from methods.parts.energy_attention import DenoisingAutoencoder

SIGMA = 0.3
POINTS = 2000
NOISES = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
DECADES = 1e3  # of the largest value to the smallest that a log scale shows


def _line(u: Tensor) -> Tensor:
    t = 6 * u - 3
    return torch.stack([t, t / 2], -1)


def _sinus(u: Tensor) -> Tensor:
    t = 2 * math.pi * u
    return torch.stack([t - math.pi, t.sin()], -1)


def _circle(u: Tensor) -> Tensor:
    t = 2 * math.pi * u
    return 3 * torch.stack([t.cos(), t.sin()], -1)


def _spiral(u: Tensor) -> Tensor:
    t = 2 * math.pi * u
    return t.sqrt().unsqueeze(-1) * torch.stack([t.cos(), t.sin()], -1)


MANIFOLDS: dict[str, Callable[[Tensor], Tensor]] = {
    "line": _line,
    "sinus": _sinus,
    "circle": _circle,
    "spiral": _spiral,
}


@dataclass(frozen=True)
class Separation:
    """AUROC of three scores, abnormal against normal points, and the share of abnormal ones that eta calls normal."""

    potential: float
    reconstruction: float
    laplacian: float
    eta_normal: float


@dataclass(frozen=True)
class DigitStudy:
    """Experiment 2 for one autoencoder size and training noise, means over seeds.

    Attributes:
        auroc: Of V, clean against noisy zeros, per noise level.
        baseline: The same for the squared distance to the training mean.
        laplacian: The same for minus the Laplacian.
        mean: Mean V, first clean, then per noise level; `spread` is its standard deviation over images.
        digits: Mean V of each digit 0-9, `digits_spread` likewise.
        unseen: AUROC of V, each of the digits 1-9 against held-out zeros; `unseen_baseline` of the trivial score.
        eta_normal: Share of clean zeros, of each noise level and of each other digit that the paper's classifier calls
            normal.
    """

    source: str
    hidden: int
    sigma: float
    noises: tuple[float, ...]
    auroc: list[float]
    baseline: list[float]
    laplacian: list[float]
    mean: list[float]
    spread: list[float]
    digits: list[float]
    digits_spread: list[float]
    unseen: list[float]
    unseen_baseline: list[float]
    eta_normal: list[float]


def fit(
    data: Tensor, hidden: int, sigma: float, *, steps: int, batch: int, lr: float, seed: int
) -> DenoisingAutoencoder:
    """Train a denoising autoencoder on raw (not standardised) features with fresh noise in every step."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        dae = DenoisingAutoencoder(data.shape[1], hidden, sigma)
    with torch.no_grad():
        dae.visible_bias.add_(data.mean(0))
    optimizer = torch.optim.Adam(dae.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        m = data[torch.randint(len(data), (batch,), generator=generator)]
        optimizer.zero_grad()
        dae.denoising_loss(m, torch.randn(m.shape, generator=generator)).mean().backward()
        optimizer.step()
        schedule.step()
    return dae.requires_grad_(False)


def auroc(normal: Tensor, abnormal: Tensor) -> float:
    """Probability that an abnormal score exceeds a normal one."""
    labels = torch.cat([torch.zeros(len(normal)), torch.ones(len(abnormal))])
    return float(roc_auc_score(labels.numpy(), torch.cat([normal, abnormal]).numpy()))


def _rows_far_from(manifold: Callable[[Tensor], Tensor], generator: torch.Generator) -> Tensor:
    """Uniform points of [-5, 5]^2 at a distance of more than 0.5."""
    reference = manifold(torch.linspace(0, 1, 4000))
    points = 10 * torch.rand(4 * POINTS, 2, generator=generator) - 5
    return points[torch.cdist(points, reference).amin(1) > 0.5][:POINTS]


def _separation(dae: DenoisingAutoencoder, normal: Tensor, abnormal: Tensor) -> Separation:
    def error(m: Tensor) -> Tensor:
        return (dae.reconstruct(m) - m).square().sum(-1)

    return Separation(
        auroc(dae.potential(normal), dae.potential(abnormal)),
        auroc(error(normal), error(abnormal)),
        auroc(-dae.laplacian(normal), -dae.laplacian(abnormal)),
        (dae.eta(abnormal) > 0).double().mean().item(),
    )


def manifold_study(name: str, seed: int, steps: int = 4000) -> tuple[DenoisingAutoencoder, dict[str, Separation]]:
    """Experiment 1 on one manifold: separation of far, noisy and central points from points on it."""
    generator = torch.Generator().manual_seed(1000 + seed)
    manifold = MANIFOLDS[name]
    train, test = manifold(torch.rand(2, POINTS, generator=generator))
    dae = fit(train, 8, SIGMA, steps=steps, batch=100, lr=1e-2, seed=seed)
    abnormal = {"far": _rows_far_from(manifold, generator)}
    for level in (0.3, 1.0):
        abnormal[f"noise {level:g}"] = test + level * torch.randn(test.shape, generator=generator)
    if name == "circle":
        # Where the reconstruction error vanishes though nothing normal is near: the paper's case for a potential.
        abnormal["centre"] = 0.05 * torch.randn(200, 2, generator=generator)
    return dae, {kind: _separation(dae, test, points) for kind, points in abnormal.items()}


def mean_separation(runs: Sequence[Separation]) -> Separation:
    """Field-wise mean over seeds."""
    rows = torch.tensor([list(asdict(run).values()) for run in runs], dtype=torch.float64)
    return Separation(*rows.mean(0).tolist())


def digit_study(
    source: str, images: Tensor, labels: Tensor, train: int, hidden: int, sigma: float, seeds: int, steps: int = 2000
) -> DigitStudy:
    """Experiment 2: train on `train` zeros, score held-out zeros under noise and the other digits."""
    runs = [digit_run(images, labels, train, hidden, sigma, seed, steps) for seed in range(seeds)]
    mean = {key: torch.tensor([run[key] for run in runs], dtype=torch.float64).mean(0).tolist() for key in runs[0]}
    return DigitStudy(source=source, hidden=hidden, sigma=sigma, noises=NOISES, **mean)


def digit_run(
    images: Tensor, labels: Tensor, train: int, hidden: int, sigma: float, seed: int, steps: int = 2000
) -> dict[str, list[float]]:
    """One autoencoder of experiment 2; the keys are those of `DigitStudy`."""
    generator = torch.Generator().manual_seed(1000 + seed)
    zeros = images[labels == 0]
    zeros = zeros[torch.randperm(len(zeros), generator=generator)]
    seen, held = zeros[:train], zeros[train:]
    dae = fit(seen, hidden, sigma, steps=steps, batch=64, lr=5e-3, seed=seed)
    centre = seen.mean(0)

    def distance(m: Tensor) -> Tensor:
        return (m - centre).square().sum(-1)

    # Several draws per image: with one, the AUROC of 58 images is uncertain by .05.
    many = held.repeat(max(1, 1000 // len(held)), 1)
    noisy = [many + level * torch.randn(many.shape, generator=generator) for level in NOISES]
    others = [images[labels == digit] for digit in range(1, 10)]
    V = [dae.potential(x) for x in (held, *noisy)]
    V_digits = [V[0], *(dae.potential(x) for x in others)]
    return {
        "auroc": [auroc(V[0], v) for v in V[1:]],
        "baseline": [auroc(distance(held), distance(x)) for x in noisy],
        "laplacian": [auroc(-dae.laplacian(held), -dae.laplacian(x)) for x in noisy],
        "mean": [v.mean().item() for v in V],
        "spread": [v.std().item() for v in V],
        "digits": [v.mean().item() for v in V_digits],
        "digits_spread": [v.std().item() for v in V_digits],
        "unseen": [auroc(V[0], v) for v in V_digits[1:]],
        "unseen_baseline": [auroc(distance(held), distance(x)) for x in others],
        "eta_normal": [(dae.eta(x) > 0).double().mean().item() for x in (held, *noisy, *others)],
    }


def plot_manifolds(daes: dict[str, DenoisingAutoencoder], path: Path) -> None:
    """Vector field, potential and reconstruction norm of each manifold, side by side, both on a log scale."""
    figure = Figure(figsize=(11, 3.4 * len(daes)), layout="constrained")
    axes = figure.subplots(len(daes), 3, squeeze=False)
    axis = torch.linspace(-5, 5, 101)
    grid = torch.cartesian_prod(axis, axis)
    coarse = torch.cartesian_prod(axis[::5], axis[::5])
    for (name, dae), row in zip(daes.items(), axes, strict=True):
        curve = MANIFOLDS[name](torch.linspace(0, 1, 400))
        force = dae.reconstruct(coarse) - coarse
        row[0].quiver(*coarse.T.numpy(), *force.T.numpy(), angles="xy")
        potential, norm = dae.potential(grid), (dae.reconstruct(grid) - grid).norm(dim=-1)
        # A potential is known up to a constant: from its lowest point it has a logarithm.
        for ax, values in ((row[1], potential - potential.min()), (row[2], norm)):
            top = values.max().item()
            drawn = ax.contourf(
                *(axis, axis, values.clamp_min(top / DECADES).reshape(101, 101).T.numpy()),
                levels=torch.logspace(math.log10(top / DECADES), math.log10(top), 31).tolist(),
                norm=LogNorm(top / DECADES, top),
                extend="both",  # rounding of the outermost levels
            )
            figure.colorbar(drawn, ax=ax, format="%.2g")
        for ax, title in zip(row, ("r(m) - m", "V(m) above its lowest", "|r(m) - m|"), strict=True):
            ax.plot(*curve.T.numpy(), color="tab:red", linewidth=1)
            ax.set(title=f"{name}: {title}", aspect="equal", xlim=(-5, 5), ylim=(-5, 5))
    figure.savefig(path, dpi=110)


def plot_digits(study: DigitStudy, path: Path) -> None:
    """Potential against noise and of each digit, on a log scale with bands of two standard deviations."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    levels, mean, spread = (0.0, *study.noises), torch.tensor(study.mean), torch.tensor(study.spread)
    digits, digits_spread = torch.tensor(study.digits), torch.tensor(study.digits_spread)
    # A potential is known up to a constant: from one deviation below the lowest band it has a logarithm.
    mean, digits = mean - (mean - 3 * spread).min(), digits - (digits - 3 * digits_spread).min()
    left.plot(levels, mean, marker="o")
    left.fill_between(levels, mean - 2 * spread, mean + 2 * spread, alpha=0.3)
    left.set(xlabel="standard deviation of the noise", title="held-out zeros under noise")
    right.errorbar(range(10), digits, yerr=2 * digits_spread, fmt="o", capsize=3)
    right.set(xlabel="digit (trained on 0 only)", xticks=range(10), title="unseen digits")
    for ax in (left, right):
        ax.set(ylabel="potential V, from below its lowest band", yscale="log")
    figure.suptitle(f"{study.source}: H={study.hidden}, sigma={study.sigma:g}")
    figure.savefig(path, dpi=110)


def read_mnist(root: Path) -> tuple[Tensor, Tensor]:
    """The 70,000 MNIST digits as rows in [0, 1] and their labels."""
    from torchvision.datasets import MNIST  # only when MNIST is asked for: torchvision is slow to import

    parts = [MNIST(str(root), train=train, download=False) for train in (True, False)]
    images = torch.cat([part.data for part in parts]).flatten(1).float() / 255
    return images, torch.cat([part.targets for part in parts])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `polymodal study energy`."""
    add_output(parser, "energy")
    parser.add_argument("--seeds", type=int, default=3, help="autoencoders per setting")
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("POLYMODAL_DATA") or None,
        help="folder with MNIST/raw; default: POLYMODAL_DATA",
    )


def run(args: argparse.Namespace) -> int:
    """Run both experiments, print their tables, and write figures and `energy.json`."""
    args.out.mkdir(parents=True, exist_ok=True)
    separations = _run_manifolds(args.seeds, args.out)
    pixels, classes = load_digits(return_X_y=True)
    images, labels = torch.tensor(pixels).float() / 16, torch.tensor(classes)
    studies = [
        digit_study("digits", images, labels, 120, h, s, args.seeds) for h, s in ((64, 0.1), (64, 0.3), (128, 0.3))
    ]
    if args.data is None or not (args.data / "MNIST" / "raw").is_dir():
        print("MNIST left out: set POLYMODAL_DATA or pass --data with a folder that holds MNIST/raw.\n")
    else:
        # All of MNIST's 6,903 zeros but 980, as many as its test split has; one seed, since it takes minutes.
        studies.append(digit_study("mnist", *read_mnist(args.data), 5923, 784, 0.3, seeds=1))
    _report_digits(studies, args.out)
    write_numbers(args.out / "energy.json", {"manifolds": separations, "digits": studies})
    print(f"Figures and numbers are in {args.out}")
    return 0


def _run_manifolds(seeds: int, out: Path) -> dict[str, dict[str, Separation]]:
    daes: dict[str, DenoisingAutoencoder] = {}
    table: dict[str, dict[str, Separation]] = {}
    print(f"Experiment 1: AUROC against points on the manifold, mean of {seeds} seeds")
    print(f"{'manifold':9} {'abnormal':9} {'V':>6} {'|r-m|^2':>8} {'-lap V':>7} {'eta says normal':>16}")
    for name in MANIFOLDS:
        runs = [manifold_study(name, seed) for seed in range(seeds)]
        daes[name] = runs[0][0]
        table[name] = {kind: mean_separation([found[kind] for _, found in runs]) for kind in runs[0][1]}
        for kind, s in table[name].items():
            print(
                f"{name:9} {kind:9} {s.potential:6.3f} {s.reconstruction:8.3f} {s.laplacian:7.3f} {s.eta_normal:16.2f}"
            )
    plot_manifolds(daes, out / "manifolds.png")
    worst, best = min(t["far"].potential for t in table.values()), max(t["far"].laplacian for t in table.values())
    print(
        f"Far from the manifold V separates (at least {worst:.3f}); minus the Laplacian is at most {best:.3f}", end=": "
    )
    print(
        "the paper's classifier anti-separates.\n" if best < 0.5 else "the paper's classifier was not refuted here.\n"
    )
    return table


def _report_digits(studies: Sequence[DigitStudy], out: Path) -> None:
    print("Experiment 2: AUROC, clean against noisy zeros")
    print(f"{'':32}" + "".join(f"{level:8g}" for level in NOISES))
    for s in studies:
        title = f"{s.source} H={s.hidden} sigma={s.sigma:g}"
        for what, values in (("V", s.auroc), ("distance to mean", s.baseline), ("-lap V", s.laplacian)):
            print(f"{title:22} {what:9.9}" + "".join(f"{v:8.3f}" for v in values))
        print(f"{title:22} mean V clean {s.mean[0]:.2f}, noisy " + ", ".join(f"{v:.2f}" for v in s.mean[1:]))
        hardest = min(range(9), key=s.unseen.__getitem__)
        print(f"{title:22} unseen digits: V >= {s.unseen[hardest]:.3f} (digit {hardest + 1})", end=", ")
        print(f"distance to mean >= {min(s.unseen_baseline):.3f}; eta calls at least {min(s.eta_normal):.0%} normal")
        plot_digits(s, out / f"{s.source}-h{s.hidden}-sigma{s.sigma:g}.png")
    print()
