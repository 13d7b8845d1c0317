"""`polymodal try FILE.py`: a method of one's own checked, run on three small datasets, and placed among the others."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from benchmark.arguments import RESULTS, use_data

if TYPE_CHECKING:
    from benchmark.plan import Plan
    from leaderboard.board import Board
    from leaderboard.merge import Evidence

SEEDS = 2
DATASETS = ("digit_halves", "interactions_xor", "multi_digits")
CONTROL = "concat"
_PILLARS = {"clean": "on clean rows", "robust": "under corruption", "missing": "with modalities missing"}
_VERDICTS = {"win": "better", "tie": "not to be told apart", "loss": "worse"}


def run(arguments: argparse.Namespace) -> int:
    """Check, run and place the methods of a plugin; arguments are those of `polymodal try`."""
    # Workers load what is a plugin of the run.
    arguments = argparse.Namespace(**{**vars(arguments), "plugin": [*arguments.plugin, str(arguments.file)]})
    use_data(arguments)
    names = _registered(arguments.file)
    failed = [name for name in names if not _passes(name)]
    if failed:
        print("Not run: a method that breaks the contract gives numbers that mean nothing.")
        return 1
    published = _published()
    # Cells of the default matrix may be there already; those of the published one are nobody's but the file's.
    results = arguments.results or (f"{RESULTS}/try-{arguments.file.stem}" if published else RESULTS)
    plan, code = _train(names, arguments, results, "reference" if published else "quick")
    labels = sorted({cell.label for cell in plan.cells if cell.method in names})
    if code or not labels:
        for skipped in plan.not_applicable:
            print(f"{skipped.label} on {skipped.dataset}: {skipped.reason}", file=sys.stderr)
        return code or 1
    print("", *_sentences(plan, labels, results, published), sep="\n")
    rest = f" --results {results}" * (results != RESULTS) + " --with reference" * bool(published)
    print(f"Next: polymodal why {labels[0]} {CONTROL}{rest} --plugin {arguments.file}")
    return 0


def _published() -> list[Path]:
    """The results that come with Polymodal, if they have the control on all datasets that are tried."""
    from leaderboard.export import read
    from leaderboard.reference import REFERENCE

    if not REFERENCE.is_file():
        return []
    have = {record.cell.dataset for record in read(REFERENCE).records if record.cell.label == CONTROL}
    return [REFERENCE] if have >= set(DATASETS) else []


def _registered(path: Path) -> list[str]:
    """The methods of a plugin file.

    Raises:
        ValueError: If it has none.
    """
    from datamodules.registry import load_plugin
    from methods.registry import methods

    module = load_plugin(path)
    names = [entry.name for entry in methods.entries() if entry.origin.startswith(f"{module.__name__}.")]
    if not names:
        raise ValueError(f'{path} registers no method: decorate its class with @register("name") of `methods`')
    return names


def _passes(name: str) -> bool:
    from benchmark.conformance import check_method

    results = check_method(name)
    wrong = [result for result in results if not result.passed]
    for result in [*wrong, *(r for r in results if r.warning)]:
        print(f"{'warning' if result.passed else 'FAIL'}: {result}")
    print(f"{name}: {len(results) - len(wrong)} checks of the contract pass, {len(wrong)} fail")
    return not wrong


def _train(names: list[str], arguments: argparse.Namespace, results: str, matrix: str) -> tuple[Plan, int]:
    """Every cell of the methods, and of the baselines where nobody has published them, that has no record yet."""
    from benchmark.executors.foreground import execute, exit_code
    from benchmark.matrix import read, with_arguments
    from benchmark.plan import make_plan
    from leaderboard.not_applicable import remember
    from leaderboard.store import Store

    wanted = with_arguments(
        read(matrix),
        method_names=names if matrix == "reference" else [*names, CONTROL],
        dataset_names=DATASETS,
        seeds=arguments.seeds or SEEDS,
    )
    plan, store = make_plan(wanted), Store(results)
    for fault in plan.faulty:
        print(f"failed to plan: {fault}", file=sys.stderr)
    store.prepare()
    remember(store.folder, {(n.label, n.dataset): n.reason for n in plan.not_applicable})
    todo = [cell for cell in plan.cells if store.done(cell.id) is None]
    print(f"{len(plan.cells)} cells, {len(plan.cells) - len(todo)} of them done already", file=sys.stderr)
    outcome = execute(todo, store, arguments)
    return plan, exit_code(outcome) or int(bool(plan.faulty))


def _sentences(plan: Plan, labels: list[str], results: str, published: list[Path]) -> list[str]:
    from leaderboard.board import build_all
    from leaderboard.merge import gather

    wanted = sorted({f"{cell.dataset}@{cell.dataset_version}" for cell in plan.cells})
    evidence = gather([results], wanted, beside=published)
    boards = build_all(evidence)
    said = []
    for label in labels:
        own = [board for board in boards if any(row.label == label for row in board.rows)]
        if not own:
            said.append(f"{label} has no place: {'; '.join(evidence.notes)}")
        for board in own:
            said += [f"{label} ({board.track} track)", *_scores(evidence, label), *_places(board, label)]
    return said


def _scores(evidence: Evidence, label: str) -> list[str]:
    """A line per dataset: the method, the control, the best single modality and the trivial predictor."""
    means: dict[tuple[str, str], float] = {}
    trivial: dict[str, tuple[str, float | None, bool]] = {}
    for record in evidence.records:
        cell = record.cell
        own = [r.clean for r in evidence.records if (r.cell.label, r.cell.dataset) == (cell.label, cell.dataset)]
        means[cell.label, cell.dataset] = fmean(own)
        trivial[cell.dataset] = (cell.metric, record.trivial, cell.higher_is_better)
    lines = []
    for dataset, (metric, floor, higher) in sorted(trivial.items()):
        if (label, dataset) not in means:
            continue
        singles = {n: mean for (n, d), mean in means.items() if d == dataset and n.startswith("unimodal")}
        parts = [f"{CONTROL} {means[CONTROL, dataset]:.3f}"] if (CONTROL, dataset) in means else []
        if singles:
            best = (max if higher else min)(singles, key=singles.__getitem__)
            parts.append(f"best single modality {singles[best]:.3f} ({best})")
        parts += [] if floor is None else [f"trivial {floor:.3f}"]
        lines.append(f"  {dataset}: {metric} {means[label, dataset]:.3f}; {', '.join(parts)}.")
    return lines


def _places(board: Board, label: str) -> list[str]:
    """A line per pillar: the advantage over the control, and the place among all that have results here."""
    lines = []
    for pillar, words in _PILLARS.items():
        order = board.order(pillar)
        own = next((s for s in order if s.method == label), None)
        if own is not None:
            half = "" if own.high is None else f" ±{own.high - own.advantage:.3f}"
            lines.append(
                f"  {words.capitalize()} its advantage over {CONTROL} is {own.advantage:+.3f}{half} on {own.on} of "
                f"{own.of} datasets: {_VERDICTS[own.verdict]}. Number {own.place} of the {len(order)} methods with "
                "results here."
            )
    if not board.ranked:
        lines.append("  A smoke test: so few seeds give scores and intervals, and a number is no rank.")
    return lines
