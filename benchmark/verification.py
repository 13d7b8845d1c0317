"""Whether a submission is what it says: every cell held against the plan, the data and the code at hand."""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmark.again import run_again
from benchmark.build import build_dataset
from benchmark.errors import UsageError, printable
from benchmark.matrix import Choice, read
from benchmark.plan import make_plan
from benchmark.submission import PLUGINS, RECORDS, against_manifest, read_manifest
from benchmark.tune import SHARED
from datamodules.base import DataModule
from datamodules.registry import load_plugin
from leaderboard.record import Cell, Record
from leaderboard.store import Store
from methods.registry import methods

# What tuning may choose, and the number of parameters that follows from it.
_TUNED = ("recipe", "options", "parameters", "tuning", "label")


@dataclass(frozen=True)
class CellVerdict:
    """A cell of a submission, and what is wrong with it; nothing, if it is accepted."""

    cell: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Verification:
    """What is to be thought of a submission.

    Attributes:
        folder_problems: What is wrong with it as a whole: files, missing cells.
        rerun: Cells that were trained again.
    """

    cells: tuple[CellVerdict, ...]
    folder_problems: tuple[str, ...]
    rerun: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether nothing is wrong."""
        return not self.folder_problems and not any(v.problems for v in self.cells)


def verify(
    folder: Path, matrix: str = "reference", rerun: int = 0, seed: int = 0, published: Sequence[Record] = ()
) -> Verification:
    """Check a submission. The code of its plugins is run.

    Args:
        folder: Of `polymodal submit`.
        matrix: What it must be complete for.
        rerun: How many cells to train again.
        seed: Of their choice.
        published: Records it must not be a copy of.

    Raises:
        UsageError: If it is no submission, or does not plan.
    """
    manifest = read_manifest(folder)
    problems: dict[str, list[str]] = defaultdict(list)  # by cell
    whole: list[str] = []
    for path, problem in against_manifest(folder, manifest).items():
        name = Path(path)
        if name.parts[:1] == (RECORDS,) and name.suffix in (".json", ".npz"):
            problems[name.stem].append(f"{path} {problem}")
        else:
            whole.append(f"{path} {problem}")
    for plugin in sorted((folder / PLUGINS).glob("*.py")):
        load_plugin(plugin)
    store = Store(folder / RECORDS)
    for verdict in store.verify():
        if verdict.status != "ok":
            problems[verdict.path.stem].append(verdict.problem or "the cell failed")
    records = [r for r in store.scan().records if r.status == "ok"]
    planned = _planned(matrix, manifest.methods)
    for record in records:
        problems[record.cell.id] += _against_plan(record.cell, planned)
        problems[record.cell.id] += against_data(record, store)
    whole += _missing(records, planned)
    for cell, problem in (*_copies(records, store), *_copied(records, published)):
        problems[cell].append(problem)
    sound = [r for r in records if not problems[r.cell.id]]
    chosen = random.Random(seed).sample(sound, min(rerun, len(sound)))
    for record in chosen:
        with tempfile.TemporaryDirectory() as again:
            if problem := run_again(record, Path(again)).problem:
                problems[record.cell.id].append(problem)
    # Its files are called what whoever sent it called them.
    cells = tuple(
        CellVerdict(printable(cell), tuple(map(printable, dict.fromkeys(found))))
        for cell, found in sorted(problems.items())
    )
    return Verification(cells, tuple(map(printable, whole)), tuple(r.cell.id for r in chosen))


Planned = Mapping[tuple[str, str, int], Cell]
"""By registered name and options at the matrix's values, dataset and seed: what a complete submission has."""


def _planned(matrix: str, names: Sequence[str]) -> Planned:
    base = read(matrix)
    unknown = [name for name in names if name not in methods.names()]
    if unknown:
        raise UsageError(f"the submission says it has {', '.join(unknown)}, but no plugin of it registers that name")
    given = {c.name: c for c in base.methods}
    chosen = tuple(given.get(name, Choice(name, where="submission")) for name in names)
    plan = make_plan(replace(base, methods=chosen, baselines=False))
    return {(c.label, c.dataset, c.seed): c for c in plan.cells}


def _against_plan(cell: Cell, planned: Planned) -> Iterator[str]:
    """How a cell differs from what the matrix plans."""
    twin = planned.get((cell.label, cell.dataset, cell.seed))
    if twin is None and cell.tuning is not None:  # an option that was tuned is in the label
        fits = [
            c for (_, d, s), c in planned.items() if (d, s) == (cell.dataset, cell.seed) and c.method == cell.method
        ]
        twin = fits[0] if len(fits) == 1 else None
    if twin is None:
        yield f"the matrix has no cell of {cell.label} on {cell.dataset} with seed {cell.seed}"
        return
    for name in Cell.__struct_fields__:
        mine, theirs = getattr(cell, name), getattr(twin, name)
        if mine == theirs or name in ("trainer",) or (cell.tuning is not None and name in _TUNED):
            continue
        yield f"{_WORDS.get(name, name)} changed: {_changes(mine, theirs)}"
    if cell.trainer.get("precision") != twin.trainer.get("precision"):
        yield f"precision changed: {cell.trainer.get('precision')}, planned {twin.trainer.get('precision')}"
    if cell.tuning is not None:
        fixed = [k for k in twin.recipe if k not in SHARED and cell.recipe.get(k) != twin.recipe[k]]
        if fixed:
            yield f"the recipe changed in what tuning does not choose: {', '.join(fixed)}"


_WORDS = {
    "recipe": "the recipe",
    "options": "the options",
    "protocol": "the protocol (the code that trains and scores)",
    "source": "the method's code",
    "corruptions": "the corruptions",
    "conditions": "the conditions",
}


def _changes(mine: Any, theirs: Any) -> str:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        keys = [k for k in sorted({*mine, *theirs}) if mine.get(k) != theirs.get(k)]
        return ", ".join(f"{k} {mine.get(k)!r}, planned {theirs.get(k)!r}" for k in keys)
    if isinstance(mine, tuple):
        return f"{len(mine)} of them, planned {len(theirs)}"
    return f"{mine!r:.20}, planned {theirs!r:.20}"


def against_data(record: Record, store: Store) -> Iterator[str]:
    """Whether the predictions were scored on the rows of the dataset at hand."""
    cell = record.cell
    datamodule = _dataset(cell)
    split = datamodule.splits[cell.split]
    said = record.provenance.get("dataset_hash")
    if said != datamodule.content_hash:
        yield f"the data is another: {str(said)[:12]}, at hand {datamodule.content_hash[:12]}"
    try:
        arrays = store.predictions(cell.id, {"target", "row"})
    except (OSError, ValueError):
        return  # said by the store
    target = split.target.numpy()
    own = arrays.get("target", np.empty(0))
    if own.shape != target.shape or not np.array_equal(own, target):
        yield "the targets beside the predictions are not those of the dataset"
    if not np.array_equal(arrays.get("row", np.empty(0)), np.arange(len(target))):
        yield "the rows of the predictions are not those of the test split"
    trivial = datamodule.task.goal.trivial(datamodule.splits["train"].target, split.target, split.gallery)
    if record.trivial is None or abs(record.trivial - float(trivial)) > 1e-6:
        yield f"the trivial score changed: {record.trivial}, at hand {float(trivial):.6g}"


_loaded: dict[str, DataModule] = {}


def _dataset(cell: Cell) -> DataModule:
    key = msgspec.json.encode([cell.dataset, cell.dataset_options], order="sorted").decode()
    if key not in _loaded:
        _loaded.clear()  # cells come sorted: one dataset at a time is enough
        _loaded[key] = build_dataset(cell.dataset, cell.dataset_options)
    return _loaded[key]


def _missing(records: Sequence[Record], planned: Planned) -> list[str]:
    """What a complete submission would have, per setting that it has."""
    found = []
    for tuned in (False, True):
        own = [r.cell for r in records if (r.cell.tuning is not None) == tuned]
        if tuned and not own:
            continue
        here = {(c.method if tuned else c.label, c.dataset, c.seed) for c in own}
        wanted = {((c.method if tuned else label), d, s) for (label, d, s), c in planned.items()}
        gaps: dict[tuple[str, str], list[int]] = defaultdict(list)
        for label, dataset, seed in sorted(wanted - here):
            gaps[label, dataset].append(seed)
        word = "tuned, " if tuned else ""
        found += [f"{word}missing: {m} on {d}, seed {', '.join(map(str, seeds))}" for (m, d), seeds in gaps.items()]
    return found


def _copies(records: Sequence[Record], store: Store) -> Iterator[tuple[str, str]]:
    """Cells of one submission with the same predictions and probabilities: no two trainings give that."""
    seen: dict[str, str] = {}
    for record in records:
        try:
            arrays = store.predictions(record.cell.id)
        except (OSError, ValueError):
            continue
        digest = hashlib.sha256(record.cell.dataset.encode())
        for name in sorted(arrays):
            digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
        first = seen.setdefault(digest.hexdigest(), record.cell.id)
        if first != record.cell.id:
            yield record.cell.id, f"has the predictions of {first}: a copied record"


def _copied(records: Sequence[Record], published: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Cells whose scores under every condition are those of a published cell of another method."""
    known = {(r.cell.dataset, _scores(r)): r.cell for r in published if r.status == "ok" and len(r.conditions) > 10}
    for record in records:
        twin = known.get((record.cell.dataset, _scores(record)))
        if twin is not None and twin.id != record.cell.id:
            yield record.cell.id, f"has the scores of the published {twin.id} under every condition: a copied record"


def _scores(record: Record) -> tuple[float, ...]:
    return tuple(c.score for c in record.conditions)
