"""A submission: the records, predictions and code of a method in one folder, with a manifest of their hashes."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path, PurePosixPath

import msgspec

from benchmark.errors import UsageError
from leaderboard import not_applicable
from leaderboard.publish import publish
from leaderboard.record import Record
from leaderboard.store import Store

MANIFEST = "manifest.json"
RECORDS, PLUGINS, EXPORT = "records", "plugins", "results.parquet"
FORMAT = 1
_NAME = re.compile(r"[a-z0-9][a-z0-9_\-]*")


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a submission says of itself.

    Attributes:
        licence: Under which the code and the results may be used and published.
        methods: Registered names.
        files: Path within the folder -> SHA-256; every file but this one.
    """

    format: int
    name: str
    licence: str
    made: str
    polymodal: str
    methods: tuple[str, ...]
    files: dict[str, str]


def submit(
    results: Path, name: str, output: Path, plugins: Sequence[Path], licence: str, methods: Sequence[str] | None = None
) -> Manifest:
    """Collect a submission.

    Args:
        results: Folder of the records.
        name: Of the submission.
        output: Folder to make.
        plugins: Source files of methods that are not registered by us.
        licence: Of the code and results.
        methods: Only these registered names; None: all of the folder.

    Raises:
        UsageError: If something is missing, or a record cannot be trusted.
    """
    from methods.registry import methods as registry

    if not _NAME.fullmatch(name):
        raise UsageError(f"--name must be of letters, digits, - and _, got {name!r}")
    if output.exists() and any(output.iterdir()):
        raise UsageError(f"{output} is not empty: a submission is a folder of its own")
    records = _records(results, methods)
    foreign = sorted({r.cell.method for r in records} - set(registry.names()))
    if foreign and not plugins:
        raise UsageError(f"{', '.join(foreign)} is not registered by Polymodal: give its source with --plugin FILE")
    (output / RECORDS).mkdir(parents=True)
    (output / PLUGINS).mkdir()
    store = Store(results)
    for record in records:
        for suffix in (".json", ".npz"):
            shutil.copyfile(store.path(record.cell.id, suffix), output / RECORDS / f"{record.cell.id}{suffix}")
    labels = {r.cell.label for r in records}
    reasons = {pair: why for pair, why in not_applicable.read(results).items() if pair[0].partition("[")[0] in labels}
    if reasons:
        not_applicable.remember(output / RECORDS, reasons)
    for plugin in plugins:
        shutil.copyfile(plugin, output / PLUGINS / plugin.name)
    (output / "LICENCE.txt").write_text(
        f"The source files in `{PLUGINS}/` and the results in this folder are published under: {licence}\n"
    )
    publish([output / RECORDS], output / EXPORT)
    manifest = Manifest(
        FORMAT,
        name,
        licence,
        datetime.now(UTC).isoformat(timespec="seconds"),
        version("polymodal"),
        tuple(sorted({r.cell.method for r in records})),
        {path: _hash(output / path) for path in files(output)},
    )
    (output / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=1))
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a submission.

    Raises:
        UsageError: If there is none, or it is none.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise UsageError(f"{folder} is no submission: it has no {MANIFEST}. `polymodal submit` makes one")
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise UsageError(f"{path} is no manifest of a submission: {error}") from None
    if found.format != FORMAT:
        raise UsageError(f"{path} is of format {found.format}, this version reads {FORMAT}")
    return found


def against_manifest(folder: Path, manifest: Manifest) -> dict[str, str]:
    """File -> how it is not the one that was submitted; nothing outside the folder is touched."""
    here = set(files(folder))
    found = dict.fromkeys(here - manifest.files.keys(), "is not in the manifest")
    for path, digest in manifest.files.items():
        parts = PurePosixPath(path)
        if parts.is_absolute() or ".." in parts.parts:
            found[path] = "is no path within the submission"
        elif path not in here:
            found[path] = "is in the manifest, but not here"
        elif _hash(folder / path) != digest:
            found[path] = "is not the file that was submitted: its hash is another"
    return found


def files(folder: Path) -> list[str]:
    """The files of a submission but for the manifest, links refused.

    Raises:
        UsageError: If one is a link, which may lead anywhere.
    """
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise UsageError(f"{path} is a link: a submission has files of its own")
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != MANIFEST and not path.name.startswith("."):
            found.append(name)
    return found


def _records(results: Path, methods: Sequence[str] | None) -> list[Record]:
    if not results.is_dir():
        raise UsageError(f"no results folder {results}")
    store = Store(results)
    wrong = [v for v in store.verify() if v.status == "invalid"]
    if wrong:
        listed = "\n  ".join(f"{v.path.name}: {v.problem}" for v in wrong[:5])
        raise UsageError(f"{len(wrong)} files of {results} cannot be trusted:\n  {listed}")
    records = [r for r in store.scan().records if methods is None or r.cell.method in methods]
    failed = [r.cell.id for r in records if r.status == "failed"]
    if failed:
        raise UsageError(f"{len(failed)} cells failed, among them {failed[0]}: `polymodal run` runs them again")
    if not records:
        raise UsageError(f"no records of {', '.join(methods) if methods else 'any method'} in {results}")
    return records


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
