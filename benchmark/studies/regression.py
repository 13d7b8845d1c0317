"""Do two modalities interact in your table? Nested regressions of a target on two columns and their product.

    polymodal study regression patients.csv --target outcome --a hb --b crp

H1 says that both add up (y = w0 + w1 a + w2 b), H2 that they interact (+ w3 a b). Every model has its coefficients with
95 % intervals, t and p values and R2, and is tested against the smaller one it contains. Columns are standardised, so
that a weight is the change of the target per deviation. Several columns a side (`--a hb,wbc`) become one number: their
first principal component (`--summary pca`), which knows one side alone, or the first canonical variates of both sides
(`--summary cca`), which are as correlated with each other as they can be.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from benchmark.errors import UsageError
from benchmark.studies._output import add_output, write_numbers
from datamodules.registry import did_you_mean
from leaderboard import interactions

Floats = NDArray[np.float64]
MODELS = {"a": ("a",), "b": ("b",), "H1: a + b": ("a", "b"), "H2: a + b + a b": ("a", "b", "a b")}
SMALLER = {"H1: a + b": ("a", "b"), "H2: a + b + a b": ("H1: a + b",)}
BANDS = (-1, 0, 1)  # deviations of b at which the picture shows the line over a


@dataclass(frozen=True)
class Weight:
    """One coefficient with its 95 % interval, and its t test against 0."""

    name: str
    estimate: float
    low: float
    high: float
    t: float
    p: float


@dataclass(frozen=True)
class Fit:
    """One ordinary least-squares model."""

    model: str
    weights: tuple[Weight, ...]
    r2: float
    adjusted_r2: float
    residual: float  # sum of squares
    freedom: int  # rows less coefficients


@dataclass(frozen=True)
class Nested:
    """F test of a model against a smaller one that it contains."""

    model: str
    smaller: str
    f: float
    p: float


def least_squares(y: Floats, columns: dict[str, Floats], model: str) -> Fit:
    """y on the columns and a constant.

    Raises:
        UsageError: If rows are too few, or a column is a combination of the others: its weight is anything.
    """
    try:
        found = interactions.least_squares(list(columns.values()), y)
    except ValueError as error:
        raise UsageError(f"{model}: {error}") from None
    t = found.w / np.maximum(found.se, np.finfo(float).tiny)
    numbers = np.column_stack([found.w, found.ci_low, found.ci_high, t, found.p]).tolist()
    weights = tuple(Weight(name, *row) for name, row in zip(("constant", *columns), numbers, strict=True))
    r2 = 1 - found.residual / float(((y - y.mean()) ** 2).sum())
    adjusted = 1 - (1 - r2) * (len(y) - 1) / found.freedom
    return Fit(model, weights, r2, adjusted, found.residual, found.freedom)


def compare(larger: Fit, smaller: Fit) -> Nested:
    """Whether the larger model explains more than its further weights would by chance."""
    more = smaller.freedom - larger.freedom
    f = (smaller.residual - larger.residual) / more / (larger.residual / larger.freedom)
    return Nested(larger.model, smaller.model, f, float(stats.f.sf(f, more, larger.freedom)))


def regressions(y: Floats, a: Floats, b: Floats) -> tuple[dict[str, Fit], list[Nested]]:
    """The nested models of standardised a and b."""
    columns = {"a": _standard(a), "b": _standard(b)}
    columns["a b"] = columns["a"] * columns["b"]
    fits = {model: least_squares(y, {name: columns[name] for name in names}, model) for model, names in MODELS.items()}
    return fits, [compare(fits[model], fits[one]) for model, others in SMALLER.items() for one in others]


def summarise(a: Floats, b: Floats, how: str) -> tuple[Floats, Floats, str]:
    """One number a side, and in words what it keeps."""
    if a.shape[1] == b.shape[1] == 1:
        return a[:, 0], b[:, 0], ""
    a, b = (np.column_stack([_standard(column) for column in side.T]) for side in (a, b))
    if how == "pca":
        (one, kept_a), (two, kept_b) = _component(a), _component(b)
        return one, two, f"first principal components: {kept_a:.0%} and {kept_b:.0%} of the variance"
    from sklearn.cross_decomposition import CCA

    found = CCA(n_components=1).fit_transform(a, b)
    one, two = (np.asarray(side, dtype=np.float64)[:, 0] for side in found)
    together = float(np.corrcoef(one, two)[0, 1])
    return one, two, f"first canonical variates: correlation {together:.3f} (of the rows they were fitted to)"


def _component(side: Floats) -> tuple[Floats, float]:
    _, values, axes = np.linalg.svd(side, full_matrices=False)
    axis = axes[0] * np.sign(axes[0][np.abs(axes[0]).argmax()])  # a component has no sign of its own
    return side @ axis, float(values[0] ** 2 / (values**2).sum())


def _standard(x: Floats) -> Floats:
    deviation = x.std()
    if not deviation > 0:
        raise UsageError("a column is constant: it tells nothing")
    return (x - x.mean()) / deviation


def plot(fit: Fit, y: Floats, a: Floats, b: Floats, labels: Sequence[str], path: Path) -> None:
    """The rows, and the line of H2 over a where b is low, usual and high: parallel lines do not interact."""
    w0, w1, w2, w3 = (weight.estimate for weight in fit.weights)
    a, b = _standard(a), _standard(b)
    figure = Figure(figsize=(6.5, 4.5), layout="constrained")
    ax = figure.subplots()
    shown = ax.scatter(a, y, c=b, s=12, alpha=0.6, cmap="viridis", vmin=-2, vmax=2)
    ends = np.array([a.min(), a.max()])
    for level in BANDS:
        ax.plot(ends, w0 + w1 * ends + (w2 + w3 * ends) * level, color=shown.to_rgba(np.array([level]))[0], linewidth=2)
    figure.colorbar(shown, label=f"{labels[1]}, deviations")
    p = fit.weights[-1].p
    ax.set(xlabel=f"{labels[0]}, deviations", ylabel=labels[2], title=f"product: {w3:+.3f}, p = {p:.2g}")
    figure.savefig(path, dpi=110)


def read_columns(file: Path, target: str, a: Sequence[str], b: Sequence[str]) -> tuple[Floats, Floats, Floats, int]:
    """y `[N]`, a `[N, A]` and b `[N, B]` of the rows that have all of them, and how many have not."""
    if not file.is_file():
        raise UsageError(f"there is no file {file}")
    table = pd.read_csv(file)
    for column in (target, *a, *b):
        if column not in table.columns:
            raise UsageError(f"{file}: no column {column!r}. {did_you_mean(column, tuple(map(str, table.columns)))}")
    chosen = table[[target, *a, *b]].apply(pd.to_numeric, errors="coerce")
    values = chosen.to_numpy(dtype=np.float64)
    if target in (*a, *b) or set(a) & set(b):
        raise UsageError("a column must be target, in --a or in --b, and not in two of them")
    for column, numbers in zip(chosen.columns, values.T, strict=True):
        if np.isnan(numbers).all():
            raise UsageError(f"{file}: column {column!r} must have numbers, and has none")
    complete = np.isfinite(values).all(axis=1)
    kept = values[complete]
    return kept[:, 0], kept[:, 1 : 1 + len(a)], kept[:, 1 + len(a) :], int((~complete).sum())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `polymodal study regression`."""
    parser.add_argument("file", type=Path, help="a CSV file with a header")
    parser.add_argument("--target", required=True, help="column to be explained")
    parser.add_argument("--a", required=True, help="column of the first modality, or several: hb,wbc")
    parser.add_argument("--b", required=True, help="column of the second modality, or several")
    parser.add_argument("--summary", choices=("pca", "cca"), default="pca", help="of several columns a side")
    add_output(parser, "regression")


def run(args: argparse.Namespace) -> int:
    """Print the models; write picture and `regression.json`."""
    a, b = args.a.split(","), args.b.split(",")
    y, left, right, dropped = read_columns(args.file, args.target, a, b)
    one, two, kept = summarise(left, right, args.summary)
    fits, nested = regressions(y, one, two)
    print(f"{args.target} on a = {args.a} and b = {args.b}, standardised: {len(y)} rows")
    if dropped:
        print(f"{dropped} rows without a number in one of the columns are left out")
    if kept:
        print(kept)
    for fit in fits.values():
        print(f"\n{fit.model}: R2 {fit.r2:.4f}, adjusted {fit.adjusted_r2:.4f}")
        print(f"  {'':10} {'weight':>10} {'95 % interval':>24} {'t':>9} {'p':>10}")
        for w in fit.weights:
            interval = f"[{w.low:.4f}, {w.high:.4f}]"
            print(f"  {w.name:10} {w.estimate:10.4f} {interval:>24} {w.t:9.2f} {w.p:10.2g}")
    print()
    for test in nested:
        print(f"{test.model} against {test.smaller}: F = {test.f:.2f}, p = {test.p:.2g}")
    args.out.mkdir(parents=True, exist_ok=True)
    plot(fits["H2: a + b + a b"], y, one, two, (args.a, args.b, args.target), args.out / "regression.png")
    write_numbers(args.out / "regression.json", {"fits": list(fits.values()), "nested": nested})
    print(f"Picture and numbers are in {args.out}")
    return 0
