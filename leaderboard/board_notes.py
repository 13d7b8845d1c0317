"""What a board says under its table: what was set aside, what could not be done, and what to take with care."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from leaderboard import pillars
from leaderboard.convergence import training_notes
from leaderboard.merge import Evidence, recipe_notes
from leaderboard.panels import Side
from leaderboard.record import Record
from leaderboard.robustness import Baselines, curves


def notes(
    evidence: Evidence,
    here: Sequence[Record],
    failed: Sequence[Record],
    sides: Mapping[str, Side],
    baselines: Mapping[str, Baselines],
    control: str,
) -> list[str]:
    """Everything, each thing once; what concerns several datasets names them together.

    Args:
        evidence: What was gathered.
        here: The records of the track.
        failed: Its failures.
        sides: Its datasets.
        baselines: Theirs.
        control: The method all are compared with.
    """
    found = [*evidence.notes, *recipe_notes(here)]
    found += sorted({f"{r.cell.label} on {r.cell.dataset}: seed {r.cell.seed} failed: {_error(r)}" for r in failed})
    found += _collapsed(here)
    found += training_notes(here)
    found += _partial(here, evidence)
    said: dict[str, list[str]] = defaultdict(list)
    for name, side in sorted(sides.items()):
        records = [r for r in here if r.cell.dataset == name]
        if dropped := {c for r in records for c in curves(r)} - side.curves:
            listed = ", ".join(f"{c} on {k}" for k, c in sorted(dropped))
            found.append(f"{name}: robust is over the {len(side.curves)} curves of {control}; not in it: {listed}")
        if not side.normal:
            said["no trivial score in the records, so nothing is normalised or ranked there"].append(name)
        elif control not in side.panels["clean"].methods:
            said[f"the control {control} has no result, so nobody has an advantage there"].append(name)
        if not side.by_row:
            said["predictions are missing or not of the same rows, so intervals there are over seeds only"].append(name)
        if not baselines[name].validated:
            said["no validation scores of the unimodal baselines, so the best is chosen on the test split"].append(name)
        if weak := _weak(side, records, control):
            said[f"too near chance to have something to lose, so not placed in robust: {_some(weak)}"].append(name)
        found += _seeds(name, records, said)
    every = sorted(sides)
    return found + [
        f"{'every dataset' if names == every else ', '.join(names)}: {text}" for text, names in said.items()
    ]


def _error(record: Record) -> str:
    return f"{record.error.type}: {record.error.message}" if record.error else "no reason given"


def _collapsed(here: Iterable[Record]) -> list[str]:
    found = {
        (r.cell.label, r.cell.dataset, k) for r in here for k, v in r.summary.items() if k.endswith("_collapsed") and v
    }
    return [f"{label} on {n}: {k.replace('_', ' ')}" for label, n, k in sorted(found)]


def _partial(here: Sequence[Record], evidence: Evidence) -> list[str]:
    """How to see methods that were run on a part of the datasets beside the others on that part."""
    every = sorted({r.cell.dataset for r in here})
    ran: dict[str, set[str]] = defaultdict(set)
    for r in here:
        if r.cell.method != "unimodal":  # one for each modality that there is
            ran[r.cell.label].add(r.cell.dataset)
    parts: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for label, own in sorted(ran.items()):
        if any(n not in own and (label, n) not in evidence.not_applicable for n in every):
            parts[tuple(sorted(own))].append(label)
    return [
        f"{_some(labels)}: run on {len(own)} of {len(every)} datasets; `--datasets {','.join(own)}` compares all "
        "methods on these alone"
        for own, labels in parts.items()
    ]


def _weak(side: Side, records: Sequence[Record], control: str) -> list[str]:
    swept = side.panels.get("drop")
    if swept is None or control not in swept.methods:
        return []
    return sorted(swept.methods.keys() - pillars.strong(side.panels["clean"], records[0].trivial or 0.0, control))


def _seeds(name: str, records: Sequence[Record], said: Mapping[str, list[str]]) -> list[str]:
    number: dict[str, int] = defaultdict(int)
    for r in records:
        number[r.cell.label] += 1
    most = max(number.values(), default=0)
    if most == 1:
        said["one seed, so no interval knows how much seeds differ"].append(name)
    less = sorted(m for m, n in number.items() if n < most)
    return [f"{name}: fewer than {most} seeds for {_some(less)}"] if less else []


def _some(labels: Sequence[str]) -> str:
    return ", ".join(labels[:6]) + ", ..." * (len(labels) > 6)
