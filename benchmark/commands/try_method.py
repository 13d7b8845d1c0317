"""`polymodal try FILE.py`: a method of one's own checked, run on three small datasets, and placed among the others."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from benchmark.arguments import RESULTS, use_data
from leaderboard.reference import REFERENCE

if TYPE_CHECKING:
    from benchmark.plan import Plan
    from leaderboard.board import Board
    from leaderboard.merge import Evidence

SEEDS = 2
DATASETS = ("digit_halves", "interactions_xor", "multi_digits_hard")
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
    # A folder of its own: cells of the published recipes would not stand beside those of other matrices.
    results = arguments.results or f"{RESULTS}/try-{arguments.file.stem}"
    published = _published()
    plan, code = _train(names, arguments, results, published)
    labels = sorted({cell.label for cell in plan.cells if cell.method in names})
    if code or not labels:
        for skipped in plan.not_applicable:
            print(f"{skipped.label} on {skipped.dataset}: {skipped.reason}", file=sys.stderr)
        return code or 1
    beside = [REFERENCE] if published else []
    print("", *_sentences(plan, labels, results, beside), sep="\n")
    rest = f" --results {results}" + " --with reference" * bool(published)
    print(f"Next: polymodal why {labels[0]} {CONTROL}{rest} --plugin {arguments.file}")
    return 0


def _published() -> set[str]:
    """The datasets on which the results that come with Polymodal have the control."""
    from leaderboard.export import read

    if not REFERENCE.is_file():
        return set()
    return {record.cell.dataset for record in read(REFERENCE).records if record.cell.label == CONTROL}


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


def _train(
    names: list[str], arguments: argparse.Namespace, results: str, published: Collection[str]
) -> tuple[Plan, int]:
    """Every cell of the methods, and of the baselines where nobody has published them, that has no record yet."""
    from benchmark.executors.foreground import execute, exit_code
    from leaderboard.not_applicable import remember
    from leaderboard.store import Store

    plan, store = _planned(names, arguments.seeds or SEEDS, published), Store(results)
    for fault in plan.faulty:
        print(f"failed to plan: {fault}", file=sys.stderr)
    store.prepare()
    remember(store.folder, {(n.label, n.dataset): n.reason for n in plan.not_applicable})
    todo = [cell for cell in plan.cells if store.done(cell.id) is None]
    print(f"{len(plan.cells)} cells, {len(plan.cells) - len(todo)} of them done already", file=sys.stderr)
    outcome = execute(todo, store, arguments)
    return plan, exit_code(outcome) or int(bool(plan.faulty))


def _planned(names: list[str], seeds: int, published: Collection[str]) -> Plan:
    """Published datasets by the published recipe, where the others stand already; the rest beside the control."""
    from benchmark.matrix import read, with_arguments
    from benchmark.plan import Plan, make_plan

    parts = (
        ("reference", names, [name for name in DATASETS if name in published]),
        ("quick", [*names, CONTROL], [name for name in DATASETS if name not in published]),
    )
    plans = [
        make_plan(with_arguments(read(matrix), method_names=wanted, dataset_names=datasets, seeds=seeds))
        for matrix, wanted, datasets in parts
        if datasets
    ]
    return Plan(
        tuple(cell for plan in plans for cell in plan.cells),
        tuple(refused for plan in plans for refused in plan.not_applicable),
        faulty=tuple(dict.fromkeys(fault for plan in plans for fault in plan.faulty)),
    )


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
