"""`polymodal try FILE.py`: a method of one's own checked, run on three small datasets, and placed among the others."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
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
    rest = f"--results {results} --plugin {arguments.file}"
    print(f"Next: polymodal why {labels[0]} {CONTROL} {rest}" + " --with reference" * bool(published))
    if published:
        print(f"      polymodal run reference --methods {','.join(names)} {rest}    every published dataset and seed")
    return 0


def _published() -> set[str]:
    """The datasets on which the results that come with Polymodal have the control."""
    import pyarrow.parquet as pq

    if not REFERENCE.is_file():
        return set()
    # Two columns of the file, which is checked when the board is made: all of it takes seconds to read.
    table = pq.read_table(REFERENCE, columns=["label", "dataset"])
    pairs = zip(table.column("label").to_pylist(), table.column("dataset").to_pylist(), strict=True)
    return {dataset for label, dataset in pairs if label == CONTROL}


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
    import torch

    from benchmark.conformance import check_method

    # As in workers: threads are of no use to models of a few rows, and wait for each other where others compute.
    torch.set_num_threads(1)
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
    from leaderboard.board import build
    from leaderboard.merge import gather

    wanted = sorted({f"{cell.dataset}@{cell.dataset_version}" for cell in plan.cells})
    evidence = gather([results], wanted, beside=published)
    tracks = {record.cell.label: record.cell.track for record in evidence.records if record.cell.label in labels}
    boards = {track: build(evidence, track) for track in sorted(set(tracks.values()))}
    said = []
    for label in labels:
        if label not in tracks:
            said.append(f"{label} has no place: {'; '.join(evidence.notes)}")
        else:
            board = boards[tracks[label]]
            said += [f"{label} ({board.track} track)", *_scores(evidence, label), *_places(board, label)]
            said.append(_basis(evidence, label))
    return said


def _basis(evidence: Evidence, label: str) -> str:
    """What the places rest on: published methods have more seeds than were run here."""
    seeds: dict[str, set[int]] = defaultdict(set)
    datasets: set[str] = set()
    for record in evidence.records:
        seeds[record.cell.label].add(record.cell.seed)
        if record.cell.label == label:
            datasets.add(record.cell.dataset)
    own, others = len(seeds[label]), len(seeds[CONTROL])
    beside = f", beside {others} of {CONTROL}" if others != own else ""
    where = f"on each of {len(datasets)} datasets" if len(datasets) > 1 else "on one dataset"
    return f"  All this is of {own} seed{'s' * (own > 1)} {where}{beside}."


def _scores(evidence: Evidence, label: str) -> list[str]:
    """A line per dataset: the method, the control, the best single modality and the trivial predictor."""
    scores: dict[tuple[str, str], list[float]] = defaultdict(list)
    trivial: dict[str, tuple[str, float | None, bool]] = {}
    for record in evidence.records:
        cell = record.cell
        scores[cell.label, cell.dataset].append(record.clean)
        trivial[cell.dataset] = (cell.metric, record.trivial, cell.higher_is_better)
    means = {pair: fmean(own) for pair, own in scores.items()}
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
