"""From results to the records one board may compare: nothing unreadable, nothing of two versions averaged."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from leaderboard import not_applicable
from leaderboard.beside import Shadowed, admit
from leaderboard.light import Lighten
from leaderboard.outcomes import Given
from leaderboard.record import Record
from leaderboard.rows import Source
from leaderboard.shown import shown as spelt
from leaderboard.store import Reading, Store
from leaderboard.variance_prior import Prior, Priors

if TYPE_CHECKING:
    from leaderboard.export import Export

CONTROL = "concat"
_CLOCKS = 86_400.0  # seconds by which the clocks of two machines may differ


class BoardError(ValueError):
    """A board that would not be honest: the message says which files or names, and what to do."""


@dataclass(frozen=True)
class Evidence:
    """The records of a board.

    Attributes:
        records: Of successful cells, one per (method, track, dataset, seed), sorted by these.
        failed: Cells that failed and that no later cell replaces.
        stores: Cell id -> where its rows are known from: the folder its predictions are in, or an export.
        notes: What was set aside, and why; shown under every table.
        not_applicable: (label, dataset) -> why the method was not run there.
        priors: Of the variance over seeds, frozen with reference results; where there are none they are fitted to the
            methods of the board.
        control: Label of the method that all are compared with.
    """

    records: tuple[Record, ...]
    failed: tuple[Record, ...]
    stores: dict[str, Source]
    notes: tuple[str, ...]
    not_applicable: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    priors: Priors = field(default_factory=dict[str, Mapping[str, Prior]])
    control: str = CONTROL


def gather(
    sources: Sequence[str | Path],
    datasets: Sequence[str] | None = None,
    skip_invalid: bool = False,
    setting: Setting | None = None,
    beside: Sequence[str | Path] = (),
    cells: Collection[str] | None = None,
    light: bool = False,
) -> Evidence:
    """Read and merge results.

    Args:
        sources: Results folders, exports (`.parquet`) and tables (`.csv`); a cell found in several counts once.
        datasets: Only these; `name@version` asks for a version other than the one with the most records.
        skip_invalid: Leave unreadable files out with a note instead of refusing.
        setting: Methods at their defaults, or tuned; None: the defaults, unless all are tuned.
        beside: Published exports that `sources` are to stand beside: what was not measured as they were is set aside,
            and the variance that is usual over seeds is theirs.
        cells: Only these of `sources`; None: all.
        light: Keep of each record what a board reads.

    Raises:
        BoardError: If a folder is missing or empty, a file cannot be trusted, or a dataset is not there.
    """
    found, reasons, notes = _read(sources, skip_invalid, Lighten() if light else None)
    found = [pair for pair in found if cells is None or pair[0].cell.id in cells]
    priors: Priors = {}
    exports: list[Export] = []
    if beside:
        exports = [_export(Path(path)) for path in beside]
        found, more = _admitted(found, [(r, export.kept) for export in exports for r in export.records])
        notes += more
        reasons |= {pair: reason for export in exports for pair, reason in export.reasons.items()}
    found, more = _one_setting(found, setting)
    notes += more
    if found and beside:
        shown = "default" if found[0][0].cell.tuning is None else "tuned"
        priors = {d: own for export in exports for d, own in export.priors(shown, "plain").items()}
    control = _control(found)
    found, more = _one_version(found, datasets)
    notes += more
    chosen, more = _one_configuration(found)
    notes += more
    records = tuple(r for r, _ in chosen if r.status == "ok")
    failed = tuple(r for r, _ in chosen if r.status == "failed")
    if not records and not failed:
        raise BoardError(f"no records in {_names(sources)}. Run `polymodal run` first, or name the results folder.")
    stores = {r.cell.id: source for r, source in chosen}
    return Evidence(records, failed, stores, tuple(notes), reasons, priors, control)


Found = list[tuple[Record, Source]]
Setting = Literal["default", "tuned"]


def _control(found: Found) -> str:
    """The method all are compared with: `concat`; in a table of other methods, its first."""
    labels = [r.cell.label for r, source in found if isinstance(source, Given)]
    return labels[0] if labels and all(r.cell.label != CONTROL for r, _ in found) else CONTROL


def _read(
    sources: Sequence[str | Path], skip_invalid: bool, made: Lighten | None
) -> tuple[Found, dict[tuple[str, str], str], list[str]]:
    """What is found, why methods were not run, and what is to be said of it."""
    by_cell: dict[str, tuple[Record, Source]] = {}
    reasons: dict[tuple[str, str], str] = {}
    invalid: list[str] = []  # a line each, whatever the files are called
    notes: list[str] = []
    for name in sources:
        source, reading, own = _open(Path(name), made)
        reasons |= own
        invalid += [spelt(f"{path}: {reason}") for path, reason in reading.invalid]
        for record in reading.records:
            other = by_cell.get(record.cell.id)
            if other is not None and _scores(other[0]) != _scores(record):
                notes.append(
                    f"cell {record.cell.id} differs between {other[1].folder} and {source.folder}; the newer is used"
                )
            # Of equals the one with predictions: an export has less to say.
            if other is None or (_finished(record), isinstance(source, Store)) > (
                _finished(other[0]),
                isinstance(other[1], Store),
            ):
                by_cell[record.cell.id] = (record, source)
    if invalid and not skip_invalid:
        raise BoardError(
            "these files cannot be trusted, and a board that leaves them out would average over holes:\n  "
            + "\n  ".join(invalid)
            + "\nRun `polymodal run` again to replace them, delete them, or give --skip-invalid to go on without them."
        )
    return list(by_cell.values()), reasons, notes + [f"left out: {line}" for line in invalid]


def _open(path: Path, made: Lighten | None) -> tuple[Source, Reading, dict[tuple[str, str], str]]:
    """A folder, an export or a table: where its rows are, its records, and why methods were not run."""
    if path.is_dir():
        store = Store(path)
        # By the code of `validate`: nothing it refuses is on a board.
        return store, store.trusted(made), not_applicable.read(path)
    if path.suffix == ".parquet" and path.is_file():
        export = _export(path)
        return export.kept, Reading(export.records, ()), export.reasons
    if path.suffix == ".csv" and path.is_file():
        from leaderboard.table import read_csv

        records, given = read_csv(path)
        return given, Reading(records, ()), {}
    raise BoardError(
        f"no results folder {path}. Run `polymodal run` first, or name a results folder, an export (.parquet) or a "
        "table of scores (.csv)."
    )


def _export(path: Path) -> Export:
    from leaderboard.export import InvalidExport, read  # here: a board of folders needs no pyarrow

    try:
        return read(path)
    except InvalidExport as error:
        raise BoardError(str(error)) from None


def _admitted(own: Found, published: Found) -> tuple[Found, list[str]]:
    try:
        admitted, notes = admit([r for r, _ in own], [r for r, _ in published])
    except Shadowed as error:
        raise BoardError(str(error)) from None
    if own and not admitted and notes:
        raise BoardError("nothing of yours can stand beside the published results:\n  " + "\n  ".join(notes))
    kept = {r.cell.id for r in admitted}
    return [*published, *(pair for pair in own if pair[0].cell.id in kept)], list(notes)


def _one_setting(found: Found, asked: Setting | None) -> tuple[Found, list[str]]:
    """Tuned methods among themselves, those at their defaults among themselves: never in one ranking."""
    by_setting: dict[Setting, Found] = {"default": [], "tuned": []}
    for record, store in found:
        by_setting["default" if record.cell.tuning is None else "tuned"].append((record, store))
    shown = asked or ("default" if by_setting["default"] else "tuned")
    other: Setting = "tuned" if shown == "default" else "default"
    aside = len(by_setting[other])
    note = f"{aside} records of the setting `{other}` are set aside (--setting {other} shows them)"
    return by_setting[shown], [note] if aside else []


def _one_version(found: Found, datasets: Sequence[str] | None) -> tuple[Found, list[str]]:
    """Per dataset the version (options, protocol, content) asked for, else the one most records have."""
    wanted = dict(_split_version(name) for name in datasets) if datasets else None
    by_name = _grouped(found, lambda r: r.cell.dataset)
    if wanted and (unknown := sorted(set(wanted) - set(by_name))):
        raise BoardError(f"no records on {', '.join(unknown)}. Datasets with records: {', '.join(sorted(by_name))}")
    kept: Found = []
    notes: list[str] = []
    for name, group in sorted(by_name.items()):
        if wanted is not None and name not in wanted:
            continue
        variants = _adopted(_grouped(group, Variant.of))
        asked = wanted.get(name) if wanted else None
        if asked is not None:
            variants = {k: v for k, v in variants.items() if k.version == asked}
            if not variants:
                raise BoardError(f"no records on version {asked} of {name}")
        main = max(variants, key=lambda k: (len(variants[k]), max(_finished(r) for r, _ in variants[k]), k))
        kept += variants[main]
        for other in sorted(set(variants) - {main}):
            notes.append(
                f"{name}: {len(variants[other])} records of {other} are set aside, the board shows {main}; they are "
                f"never averaged (--datasets {name}@{other.version} shows the others)"
            )
    return kept, notes


class Variant(NamedTuple):
    """What records of one dataset must have in common to be compared."""

    version: str
    options: str
    protocol: str
    content: str

    def __str__(self) -> str:
        options = "" if self.options == "{}" else f" with {self.options}"
        content = self.content and f", content {self.content}"
        return f"version {self.version}{options}, protocol {self.protocol}{content}"

    @classmethod
    def of(cls, record: Record) -> Variant:
        """The record's."""
        cell, content = record.cell, str(record.provenance.get("dataset_hash") or "")
        return cls(cell.dataset_version, _text(cell.dataset_options), cell.protocol[:12], content[:12])


def _adopted(variants: dict[Variant, Found]) -> dict[Variant, Found]:
    """Records that do not know the content they saw, as those of cells that failed early, join the largest they fit."""
    known = {k: list(v) for k, v in variants.items() if k.content}
    for key, own in variants.items():
        fits = [k for k in known if k[:-1] == key[:-1]]
        if not key.content:
            known.setdefault(max(fits, key=lambda k: (len(variants[k]), k)) if fits else key, []).extend(own)
    return known


def _one_configuration(found: Found) -> tuple[Found, list[str]]:
    """Of each method on each dataset only one configuration, one record per seed.

    The configuration with the recipe most methods of the dataset have, so that they are compared on equal terms; of
    several the newest. A record of the future has no say in that: or a clock that was wrong once would decide for ever.
    """
    chosen: Found = []
    notes: list[str] = []
    for dataset, here in sorted(_grouped(found, lambda r: r.cell.dataset).items()):
        by_method = _grouped(here, lambda r: (r.cell.label, r.cell.track))
        usual = Counter(recipe for own in by_method.values() for recipe in {_text(r.cell.recipe) for r, _ in own})
        aside: dict[str, int] = {}
        early: dict[str, int] = {}
        for (label, _), own in sorted(by_method.items()):
            configurations = _grouped(own, _configuration)
            best = max(configurations, key=lambda k: (usual[k[0]], max(_finished(r) for r, _ in configurations[k]), k))
            if len(configurations) > 1:
                early[label] = sum(_ended(r) > _latest() for r, _ in own)
                aside[label] = len(own) - len(configurations[best])
            for _, group in sorted(_grouped(configurations[best], lambda r: r.cell.seed).items()):
                chosen.append(max(group, key=lambda f: (_finished(f[0]), f[0].status == "ok", f[0].cell.id)))
        if aside:
            listed = ", ".join(f"{label} ({number})" for label, number in aside.items())
            notes.append(f"{dataset}: records of other recipes, options or sources are set aside: {listed}")
        if any(early.values()):
            listed = ", ".join(f"{label} ({number})" for label, number in early.items() if number)
            notes.append(f"{dataset}: records that a wrong clock dates to the future do not count as newest: {listed}")
    return sorted(chosen, key=lambda f: (f[0].cell.label, f[0].cell.track, f[0].cell.dataset, f[0].cell.seed)), notes


def recipe_notes(records: Iterable[Record]) -> tuple[str, ...]:
    """Datasets on which methods were trained with different recipes, and which settings differ."""
    notes: list[str] = []
    for name, group in sorted(_grouped([(r, None) for r in records], lambda r: r.cell.dataset).items()):
        recipes = [r.cell.recipe for r, _ in group]
        keys = sorted({k for recipe in recipes for k in recipe})
        differ = [k for k in keys if len({json.dumps(recipe.get(k), sort_keys=True) for recipe in recipes}) > 1]
        for key in differ:
            values = Counter(json.dumps(recipe.get(key)) for recipe in recipes)
            usual = values.most_common(1)[0][0]
            odd = sorted({r.cell.label for r, _ in group if json.dumps(r.cell.recipe.get(key)) != usual})
            more = ", ..." * (len(odd) > 5)
            notes.append(f"{name}: recipe differs in {key} (not {usual}) for {', '.join(odd[:5])}{more}")
    return tuple(notes)


def _grouped(found: Iterable[tuple[Record, Any]], key: Callable[[Record], Any]) -> dict[Any, list[tuple[Record, Any]]]:
    groups: dict[Any, list[tuple[Record, Any]]] = defaultdict(list)
    for item in found:
        groups[key(item[0])].append(item)
    return dict(groups)


def _configuration(record: Record) -> tuple[str, str]:
    cell = record.cell
    return _text(cell.recipe), _text([cell.options, cell.source, cell.corruptions])


def _text(facts: Any) -> str:
    return json.dumps(facts, sort_keys=True)


def _split_version(name: str) -> tuple[str, str | None]:
    head, _, version = name.partition("@")
    return head, version or None


def _finished(record: Record) -> float:
    """When a cell ended, in seconds; 0, older than any other, if no clock that is right can have said so."""
    ended = _ended(record)
    return ended if ended <= _latest() else 0.0


def _ended(record: Record) -> float:
    try:
        said = datetime.fromisoformat(str(record.provenance.get("finished")))
    except ValueError:
        return 0.0
    return (said if said.tzinfo else said.replace(tzinfo=UTC)).timestamp()


def _latest() -> float:
    return time.time() + _CLOCKS


def _scores(record: Record) -> list[tuple[str, float]]:
    return [(c.id, c.score) for c in record.conditions]


def _names(folders: Sequence[str | Path]) -> str:
    return ", ".join(str(f) for f in folders)
