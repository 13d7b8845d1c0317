"""Why a fusion wins on a dataset: how much two modalities share, hold alone, and tell only together about the label.

Frozen features of each modality are clustered and the partial information decomposition of the clusters and the label
is estimated: redundancy, what is unique to either, synergy, in bits. Clusters are fitted on training rows and counted
on held-out ones (validation and test), and the same with shuffled labels says how much of it is chance. On the
interaction tasks the exact values stand beside the estimate. A regression with a product term on one number per
modality is the classical second opinion.

Features that one modality learnt alone cannot know what matters only together: `--features joint` takes those that
concat learnt, `--features raw` the principal components of the inputs.
"""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from torch import Tensor

from benchmark.arguments import add_json, at_least
from benchmark.chosen_dataset import add_dataset_options, chosen_dataset
from benchmark.errors import UsageError
from benchmark.matrix import read
from benchmark.options import plain, resolve
from benchmark.studies._interaction_truth import exact_joint
from benchmark.studies._modality_features import HELD_OUT, Features, Floats, Source, features_of
from benchmark.studies._output import add_output, write_numbers
from datamodules.base import DataModule
from datamodules.registry import datasets, did_you_mean
from leaderboard.interactions import interaction_regression
from leaderboard.merge import gather
from methods.functional.information import pid

ATOMS = ("R", "U1", "U2", "S")
TOLERANCE = 1e-5  # bits by which an iteration of the decomposition may still change it
QUARTILES = (0.25, 0.5, 0.75)  # a regression target is cut there, for the decomposition


@dataclass(frozen=True)
class Term:
    """The product term of one regression: is the effect of one summary another where the other is larger?"""

    response: str
    weight: float
    low: float
    high: float
    p: float

    @property
    def interacts(self) -> bool:
        """Whether the interval excludes zero."""
        return not self.low <= 0 <= self.high


@dataclass(frozen=True)
class Findings:
    """What the study found, in bits.

    Attributes:
        source: Which features were clustered, and `why`.
        estimate: R, U1, U2, S and their sum I12.
        exact: The same for the signals of an interaction task, or None.
        shuffled: The estimate with shuffled labels, one entry per shuffle.
        agreement: Share of the estimated information that is where the exact decomposition has it.
        terms: Product terms, one per class (against all others) or one for a regression target; `terms_why_not` if
            they cannot be estimated.
        version: Of the dataset.
        scores: Method -> clean score of every seed, from the records; `scores_of` says how their rows differ.
        command: That makes the same numbers again; "" if no command made them.
    """

    dataset: str
    modalities: tuple[str, str]
    source: Source
    why: str
    clusters: int
    rows: int
    unimodal: dict[str, float]
    trivial: float
    estimate: dict[str, float]
    exact: dict[str, float] | None
    shuffled: tuple[dict[str, float], ...]
    agreement: float | None
    terms: tuple[Term, ...]
    terms_why_not: str
    metric: str
    bayes: float | None
    version: str
    scores: dict[str, list[float]] = field(default_factory=dict)
    scores_of: str = ""
    command: str = ""

    @property
    def chance(self) -> float:
        """Mean total of the shuffled labels."""
        return float(np.mean([s["I12"] for s in self.shuffled]))


def study(
    data: DataModule,
    dataset: str,
    pair: tuple[str, str],
    recipe: Mapping[str, Any],
    *,
    features: Source | None = None,
    clusters: int | None = None,
    shuffles: int = 10,
    seed: int = 0,
) -> Findings:
    """Decompose what two modalities of a dataset know of its label.

    Args:
        recipe: Of the networks whose features are clustered.
        features: Where they come from; None takes those that one modality learns alone, unless neither learns anything.
        clusters: Per modality; None takes as many as classes, but 8 to 20.
        shuffles: Of the held-out labels.
    """
    labels = _labels(data)
    trivial = data.task.goal.trivial(data.splits["train"].target, data.splits["test"].target)
    source, why, chosen = features_of(data, dataset, pair, recipe, features, seed)
    number = clusters or min(20, max(8, int(labels.max()) + 1))
    first, second = (_clusters(f, number, seed) for f in chosen)
    estimate = _decompose(_joint(first, second, labels))
    rng = np.random.default_rng(seed)
    shuffled = tuple(_decompose(_joint(first, second, rng.permutation(labels))) for _ in range(shuffles))
    joint = exact_joint(data, pair)
    exact = None if joint is None else _decompose(joint)
    terms, why_not = _terms(data, chosen, pair)
    return Findings(
        dataset,
        pair,
        source,
        why,
        number,
        len(labels),
        {name: f.accuracy for name, f in zip(pair, chosen, strict=True) if f.accuracy is not None},
        trivial,
        estimate,
        exact,
        shuffled,
        None if exact is None else agreement(estimate, exact),
        terms,
        why_not,
        data.task.metric,
        data.task.bayes,
        data.task.version,
    )


def agreement(estimate: Mapping[str, float], exact: Mapping[str, float]) -> float | None:
    """Overlap of the shares of both decompositions, 1 when they are proportional; None where there is nothing."""
    mine, truth = ({a: max(0.0, d[a]) for a in ATOMS} for d in (estimate, exact))
    if min(sum(mine.values()), sum(truth.values())) < 1e-3:
        return None
    return sum(min(mine[a] / sum(mine.values()), truth[a] / sum(truth.values())) for a in ATOMS)


# ---- decomposition ------------------------------------------------------------------------------------------------


def _labels(data: DataModule) -> NDArray[np.int64]:
    """The held-out labels; a regression target by quartile of the training rows."""
    target = torch.cat([data.splits[split].target for split in HELD_OUT])
    if data.task.goal.numeric:
        edges = data.splits["train"].target.flatten().double().quantile(torch.tensor(QUARTILES, dtype=torch.float64))
        target = torch.bucketize(target.flatten().double(), edges)
    return target.numpy().astype(np.int64)


def _clusters(features: Features, number: int, seed: int) -> NDArray[np.int64]:
    """The cluster of each held-out row: centres by k-means on the training rows."""
    spread = features.train.std(axis=0).max() or 1.0  # one scale for all: a feature's variance is what it has to say
    model = KMeans(number, n_init=4, random_state=seed).fit(features.train / spread)  # pyright: ignore[reportArgumentType]
    return np.asarray(model.predict(features.held_out / spread), dtype=np.int64)


def _joint(first: NDArray[np.int64], second: NDArray[np.int64], labels: NDArray[np.int64]) -> Tensor:
    """Share of the rows in each pair of clusters and class, `[X1, X2, Y]`."""
    counts = np.zeros((first.max() + 1, second.max() + 1, labels.max() + 1))
    np.add.at(counts, (first, second, labels), 1)
    return torch.from_numpy(counts / counts.sum())


def _decompose(joint: Tensor) -> dict[str, float]:
    # What the iteration leaves of zero has either sign.
    return {name: max(0.0, float(value)) for name, value in pid(joint, TOLERANCE).items()}


# ---- regression with a product ------------------------------------------------------------------------------------


def _terms(data: DataModule, features: Sequence[Features], pair: tuple[str, str]) -> tuple[tuple[Term, ...], str]:
    """The product terms of the held-out rows, or the reason why there are none."""
    a, b = (_summary(f) for f in features)
    if abs(np.corrcoef(a, b)[0, 1]) > 0.999:
        return (), f"the summaries of {pair[0]} and {pair[1]} are the same number"
    target = torch.cat([data.splits[split].target for split in HELD_OUT])
    if data.task.goal.numeric:
        responses = {"target": target.flatten().double().numpy()}
    else:
        names = data.task.class_names or tuple(map(str, range(data.task.num_outputs)))
        responses = {name: (target == c).double().numpy() for c, name in enumerate(names) if (target == c).any()}
    level = 1 - 0.05 / len(responses)  # Bonferroni: the intervals hold together
    terms = []
    for name, y in responses.items():
        try:
            fitted = interaction_regression(a, b, y, level)  # pyright: ignore[reportArgumentType] - arrays are sequences
        except ValueError as error:
            return (), str(error)
        terms.append(Term(name, *(float(fitted[key][3]) for key in ("w", "ci_low", "ci_high", "p"))))
    return tuple(terms), ""


def _summary(features: Features) -> Floats:
    """One number per held-out row: the first principal component, in units of its deviation, of training rows."""
    model = PCA(1, svd_solver="full").fit(features.train)
    direction = np.asarray(model.components_)[0]
    sign = np.sign(direction[np.abs(direction).argmax()])  # of an axis it is arbitrary
    return sign * model.transform(features.held_out)[:, 0] / (model.transform(features.train).std() or 1.0)


# ---- figure and table ---------------------------------------------------------------------------------------------


def plot(findings: Findings, path: Path) -> None:
    """The decomposition beside the scores of the methods."""
    figure = Figure(figsize=(10, max(3.4, 0.9 + 0.2 * len(findings.scores))), layout="constrained")
    left, right = figure.subplots(1, 2)
    _plot_atoms(findings, left)
    _plot_scores(findings, right)
    figure.suptitle(f"{findings.dataset}: {findings.modalities[0]} and {findings.modalities[1]}", fontsize=11)
    figure.savefig(path, dpi=130)


def _plot_atoms(findings: Findings, axes: Axes) -> None:
    at = np.arange(len(ATOMS))
    shuffled = np.array([[s[a] for a in ATOMS] for s in findings.shuffled])
    bars: list[tuple[str, list[float], str]] = [("estimate", [findings.estimate[a] for a in ATOMS], "#0072B2")]
    if findings.exact is not None:
        bars.append(("exact", [findings.exact[a] for a in ATOMS], "#009E73"))
    bars.append(("shuffled labels", shuffled.mean(axis=0).tolist(), "0.6"))
    width = 0.8 / len(bars)
    for i, (label, values, colour) in enumerate(bars):
        axes.bar(at + (i - (len(bars) - 1) / 2) * width, values, width, label=label, color=colour)
    axes.set_xticks(at, [name.replace(" of ", "\n") for name in _names(findings).values()])
    axes.set_ylabel("bits about the label")
    axes.set_title(f"information in {findings.clusters} clusters of {findings.source} features", fontsize=9)
    axes.legend(frameon=False, fontsize=8)


def _plot_scores(findings: Findings, axes: Axes) -> None:
    axes.set_title("methods", fontsize=9)
    if not findings.scores:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no records of this dataset:\npolymodal run, then --results DIR", ha="center", va="center")
        return
    ordered = sorted(findings.scores.items(), key=lambda item: np.mean(item[1]))
    for i, (_, values) in enumerate(ordered):
        axes.plot(values, [i] * len(values), "o", color="#0072B2", ms=3, alpha=0.4)
        axes.plot([np.mean(values)], [i], "|", color="#0072B2", ms=9, mew=2)
    axes.axvline(findings.trivial, color="0.5", lw=1, ls=":", label="trivial")
    if findings.bayes is not None:
        axes.axvline(findings.bayes, color="#009E73", lw=1, ls="--", label="best possible")
    axes.set_yticks(range(len(ordered)), [label for label, _ in ordered], fontsize=7)
    axes.set_xlabel(f"{findings.metric} (points: seeds)")
    axes.legend(frameon=False, fontsize=8)


def _names(findings: Findings) -> dict[str, str]:
    a, b = findings.modalities
    return {"R": "redundant", "U1": f"unique of {a}", "U2": f"unique of {b}", "S": "synergy"}


def _lines(findings: Findings) -> list[str]:
    """The table for the terminal."""
    alone = ", ".join(f"{name} {value:.3f}" for name, value in findings.unimodal.items())
    lines = [
        f"{findings.dataset}: {findings.modalities[0]} and {findings.modalities[1]}, {findings.rows:,} held-out rows, "
        f"{findings.clusters} clusters of {findings.source} features ({findings.why})"
    ]
    lines += [f"held-out accuracy alone: {alone} (trivial {findings.trivial:.3f})"] if alone else []
    lines += ["", f"{'bits':24}{'estimate':>10}{'share':>8}{'exact':>10}{'shuffled':>10}"]
    total = findings.estimate["I12"]
    for key, name in {**_names(findings), "I12": "all"}.items():
        value, chance = findings.estimate[key], [s[key] for s in findings.shuffled]
        exact = "" if findings.exact is None else f"{findings.exact[key]:.4f}"
        share = value / total if total else math.nan
        noise = "  no more than chance" if value <= max(chance) else ""
        lines.append(f"{name:24}{value:10.4f}{share:8.0%}{exact:>10}{np.mean(chance):10.4f}{noise}")
    if findings.agreement is not None:
        lines.append(f"{findings.agreement:.0%} of the estimated information is where the exact decomposition has it")
    lines.append(f"all / shuffled: {total / findings.chance if findings.chance else math.inf:.1f}")
    lines += ["", "product term of the first principal components, identity scale, joint 95 % intervals:"]
    lines += [
        f"  {t.response:16}{t.weight:+8.3f}  [{t.low:+.3f}, {t.high:+.3f}]{'  interact' if t.interacts else ''}"
        for t in findings.terms
    ]
    lines += [f"  not estimated: {findings.terms_why_not}"] if findings.terms_why_not else []
    if findings.scores:
        lines += ["", f"scores on rows of other options: {findings.scores_of}"] if findings.scores_of else []
        lines += ["", f"{'method':40}{findings.metric:>10}{'seeds':>7}"]
        ordered = sorted(findings.scores.items(), key=lambda item: -np.mean(item[1]))
        lines += [f"{label:40}{np.mean(values):10.4f}{len(values):7}" for label, values in ordered]
    return lines


# ---- command ------------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `polymodal study interactions`."""
    parser.add_argument("dataset", help="a multiclass (or one-dimensional regression) dataset")
    parser.add_argument("--modalities", metavar="A,B", help="which two, where the dataset has more")
    parser.add_argument("--features", choices=("unimodal", "joint", "raw"), help="what is clustered (default unimodal)")
    parser.add_argument("--raw", dest="features", action="store_const", const="raw", help="the same as --features raw")
    parser.add_argument("--clusters", type=int, help="per modality (default: as many as classes, but 8 to 20)")
    parser.add_argument("--shuffles", type=at_least(1), default=10, help="of the labels, for the control")
    parser.add_argument("--seed", type=int, default=0, help="of training, clusters and shuffles")
    parser.add_argument("--matrix", default="core", metavar="FILE",
                        help="whose recipe trains the features, and whose options of the dataset are taken where it "
                             "names it (default: core)")  # fmt: skip
    add_dataset_options(parser, matrix=False)
    parser.add_argument("--results", metavar="DIR", help="records whose scores are shown beside")
    add_output(parser, "interactions")
    add_json(parser, "print the numbers instead of the table")


def run(args: argparse.Namespace) -> int:
    """Print the table; write figure and numbers."""
    data = chosen_dataset(args.dataset, args.matrix if args.matrix != "core" else None, args.settings)
    pair = _pair(data, args.modalities)
    _check(data, args)
    scores, scores_of = _scores(args.results, args.dataset, data.suffix)
    matrix = read(args.matrix)
    recipe = {**matrix.recipe, **matrix.recipes.get(args.dataset, {})}
    asked = {"features": args.features, "clusters": args.clusters, "shuffles": args.shuffles, "seed": args.seed}
    findings = study(data, args.dataset, pair, recipe, **asked)
    findings = replace(findings, scores=scores, scores_of=scores_of, command=_command(args))
    text = write_numbers(args.out / f"{args.dataset}.json", findings)
    plot(findings, args.out / f"{args.dataset}.png")
    print(text if args.json else "\n".join([*_lines(findings), "", f"Figure and numbers are in {args.out}"]))
    return 0


def _command(args: argparse.Namespace) -> str:
    """What was typed, without what changes no number."""
    given = [("--modalities", args.modalities), ("--features", args.features), ("--clusters", args.clusters)]
    given += [("--shuffles", args.shuffles), ("--seed", args.seed), ("--matrix", args.matrix)]
    given += [("--set", setting) for setting in args.settings or ()]
    options = [str(part) for option in given if option[1] is not None for part in option]
    return shlex.join(["polymodal", "study", "interactions", args.dataset, *options])


def _pair(data: DataModule, asked: str | None) -> tuple[str, str]:
    names = data.task.names if asked is None else tuple(asked.split(","))
    for name in names:
        if name not in data.task.names:
            raise UsageError(f"{data.task.name} has no modality {name!r}. {did_you_mean(name, data.task.names)}")
    if len(set(names)) != 2:
        raise UsageError(f"name two of the modalities {', '.join(data.task.names)} by --modalities A,B")
    return names[0], names[1]


def _check(data: DataModule, args: argparse.Namespace) -> None:
    task = data.task
    if not task.goal.classifies and not (task.goal.numeric and task.num_outputs == 1):
        raise UsageError(f"{task.name} is a {task.target} task; the study needs one class or number per row")
    if args.clusters is not None and not 2 <= args.clusters <= 50:
        raise UsageError(f"--clusters must be 2 to 50, got {args.clusters}")


def _scores(folder: str | None, dataset: str, suffix: str) -> tuple[dict[str, list[float]], str]:
    """Clean score of each seed of each method, and what options of their rows are not the defaults."""
    if folder is None:
        return {}, ""
    defaults = {key: plain(value) for key, value in resolve(dataset, datasets.get(dataset), {}, dataset).items()}
    scores: dict[str, list[float]] = {}
    other: dict[str, Any] = {}
    for record in gather([folder], [dataset + suffix]).records:
        scores.setdefault(record.cell.label, []).append(record.clean)
        other |= {key: value for key, value in record.cell.dataset_options.items() if defaults.get(key, value) != value}
    return scores, ", ".join(f"{key} = {value}" for key, value in other.items())
