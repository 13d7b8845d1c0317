"""One's own results beside published ones: what may stand there, and in one sentence why the rest may not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from leaderboard.record import Cell, Record

# What must be equal for two records of a dataset to be compared, in words.
_FACTS: Mapping[str, Callable[[Record], Any]] = {
    "the dataset's version": lambda r: r.cell.dataset_version,
    "the dataset's options": lambda r: r.cell.dataset_options,
    "the dataset's content": lambda r: (r.provenance.get("dataset_hash") or "")[:12],
    "the protocol (the code that trains and scores)": lambda r: r.cell.protocol[:12],
    "the metric": lambda r: r.cell.metric,
    "the split": lambda r: r.cell.split,
    "the precision": lambda r: r.cell.trainer.get("precision"),
}


class Shadowed(ValueError):
    """A method of one's own under a published name."""


def admit(own: Sequence[Record], published: Sequence[Record]) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """The records that may stand beside the published ones, and why the others may not.

    Raises:
        Shadowed: If a method has a published name but is another.
    """
    _refuse_shadows(own, published)
    known = {r.cell.id: r for r in published}
    entries = {_entry(r.cell) for r in published}
    usual = {d: _usual(several) for d, several in _by_dataset(published).items()}
    admitted: list[Record] = []
    aside: dict[str, list[Record]] = defaultdict(list)
    for record in own:
        twin = known.get(record.cell.id)
        if twin is not None:
            if record.status == "ok" and [c.score for c in record.conditions] != [c.score for c in twin.conditions]:
                aside["the published cell has other scores (another machine or other package versions)"].append(record)
            continue
        reason = _difference(record, usual.get(record.cell.dataset))
        if reason:
            aside[reason].append(record)
        elif _entry(record.cell) in entries:
            aside["it is published with other seeds or options, and one line is not made of two"].append(record)
        else:
            admitted.append(record)
    return tuple(admitted), tuple(_sentence(reason, records) for reason, records in aside.items())


def _refuse_shadows(own: Sequence[Record], published: Sequence[Record]) -> None:
    sources: dict[str, set[str]] = defaultdict(set)
    for r in published:
        sources[r.cell.label].add(r.cell.source)
    for r in own:
        theirs = sources.get(r.cell.label)
        if theirs and r.cell.source not in theirs:
            raise Shadowed(
                f"{r.cell.label} of your results is not the published {r.cell.label}: its code is another "
                f"({r.cell.source[:12]}, published {', '.join(sorted(s[:12] for s in theirs))}). Register your method "
                "under a name of its own"
            )


def _entry(cell: Cell) -> tuple[str, str, str, bool]:
    return cell.label, cell.track, cell.dataset, cell.tuning is None


def _by_dataset(records: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = defaultdict(list)
    for r in records:
        found[r.cell.dataset].append(r)
    return found


def _usual(records: Sequence[Record]) -> dict[str, Any]:
    """What the published records of a dataset have in common; of several, what most have."""
    done = [r for r in records if r.status == "ok"] or list(records)
    found = {name: _most(fact(r) for r in done) for name, fact in _FACTS.items()}
    default = [r.cell.recipe for r in done if r.cell.tuning is None]
    found["recipe"] = _most(default) if default else None
    found["corruptions"] = _most(r.cell.corruptions for r in done)
    return found


def _most(values: Any) -> Any:
    texts = Counter(msgspec.json.encode(v, order="sorted") for v in values)
    return msgspec.json.decode(texts.most_common(1)[0][0])


def _difference(record: Record, usual: Mapping[str, Any] | None) -> str:
    """Which part differs; empty if none does, or if nothing is published on the dataset."""
    if usual is None:
        return ""
    for name, fact in _FACTS.items():
        mine = fact(record)
        if mine != usual[name] and not (record.status == "failed" and not mine):
            return f"{name} differs: {mine!r}, published {usual[name]!r}"
    if record.cell.tuning is None and usual["recipe"] is not None and record.cell.recipe != usual["recipe"]:
        keys = sorted({*record.cell.recipe, *usual["recipe"]})
        differ = [k for k in keys if record.cell.recipe.get(k) != usual["recipe"].get(k)]
        parts = [f"{k} {record.cell.recipe.get(k)!r}, published {usual['recipe'].get(k)!r}" for k in differ]
        return f"the recipe differs: {'; '.join(parts)}"
    mine, theirs = record.cell.corruptions, usual["corruptions"]
    differ = [name for name in sorted(mine.keys() & theirs.keys()) if mine[name] != theirs[name]]
    return f"the corruptions differ: {', '.join(differ)}" if differ else ""


def _sentence(reason: str, records: Sequence[Record]) -> str:
    labels = sorted({r.cell.label for r in records})
    datasets = sorted({r.cell.dataset for r in records})
    some = ", ".join(labels[:4]) + ", ..." * (len(labels) > 4)
    return f"{len(records)} records of yours ({some} on {', '.join(datasets)}) are set aside: {reason}"
