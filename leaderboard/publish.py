"""From results to the file that is published, and the page that says where it comes from."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Any

from leaderboard.board import sides
from leaderboard.export import About, Part, encode, read
from leaderboard.merge import BoardError, Evidence, Setting, gather
from leaderboard.record import Record
from leaderboard.store import write_whole

SETTINGS: tuple[Setting, ...] = ("default", "tuned")
TRACKS = ("plain", "augmented")
_DEAD = 3600  # seconds after which a half file is that of a writer who was killed


@dataclass(frozen=True)
class Published:
    """What was written.

    Attributes:
        entries: Methods on datasets whose rows can be compared.
        notes: What was set aside.
    """

    cells: int
    entries: int
    size: int
    sha256: str
    notes: tuple[str, ...]


def publish(
    sources: Sequence[str | Path],
    output: Path,
    datasets: Sequence[str] | None = None,
    skip_invalid: bool = False,
    settings: Sequence[Setting] | None = None,
    commands: Sequence[str] = (),
    readme: bool = False,
) -> Published:
    """Write an export of results, whole or not at all.

    Args:
        sources: Results folders and exports.
        output: The file.
        datasets: Only these.
        skip_invalid: Leave unreadable files out with a note instead of refusing.
        settings: Only these; None: those there are.
        commands: What made the results, for the README.
        readme: Write README.md beside the file.

    Raises:
        BoardError: As `gather` does.
    """
    parts: list[Part] = []
    reasons: dict[tuple[str, str], str] = {}
    notes: list[str] = []
    for setting in settings or SETTINGS:
        try:
            evidence = gather(sources, datasets, skip_invalid, setting)
        except BoardError as error:
            # A folder without tuned results is no error, one that cannot be read or has neither is.
            if settings or (setting == SETTINGS[-1] and not parts):
                raise
            if datasets:  # it may have them, and not of all that were asked for
                notes.append(f"nothing {setting} was exported: {error}")
            continue
        parts += _parts(evidence, setting)
        reasons |= evidence.not_applicable
        notes += [note for note in evidence.notes if "of the setting" not in note]
    made = _made([r for part in parts for r in part.records], commands)
    content = encode(parts, reasons, made)
    _write(output, content)
    export = read(output)  # what is published has been read once
    digest = hashlib.sha256(content).hexdigest()
    if readme:
        text = describe(export.about, export.records, output.name, len(content), digest)
        _write(output.parent / "README.md", text.encode())
    return Published(len(export.records), len(export.kept.lines), len(content), digest, tuple(dict.fromkeys(notes)))


def describe(about: About, records: Sequence[Record], name: str, size: int, digest: str) -> str:
    """The README of a published file."""
    made = about.made
    lines = [
        "# Published results",
        "",
        f"`{name}` holds the results that come with Polymodal. `polymodal leaderboard --reference` shows them,",
        "`--with reference` puts your own beside them. This page was written by `polymodal export --publish`.",
        "",
        f"- {len(records)} cells, {size:,} bytes, SHA-256 `{digest}`",
        f"- made {made['date']}; cells finished {made['first']} to {made['last']}",
        *(f"- machine: {machine}, {number} cells" for machine, number in made["machines"].items()),
        *(f"- revision {revision}, {number} cells" for revision, number in made["revisions"].items()),
        f"- format {about.format}, records of schema {about.record}",
        "",
        "Commands:",
        "",
        "```bash",
        *made["commands"],
        "```",
        "",
        "| dataset | version | protocol | methods | seeds | setting | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str, str, str], list[Record]] = {}
    for r in records:
        setting = SETTINGS[r.cell.tuning is not None]
        groups.setdefault((r.cell.dataset, r.cell.dataset_version, r.cell.protocol[:12], setting), []).append(r)
    for (dataset, version, protocol, setting), own in sorted(groups.items()):
        methods, seeds = len({r.cell.label for r in own}), len({r.cell.seed for r in own})
        failed = sum(r.status == "failed" for r in own)
        lines.append(f"| {dataset} | {version} | `{protocol}` | {methods} | {seeds} | {setting} | {failed} |")
    lines += ["", f"Methods: {', '.join(sorted({r.cell.label for r in records}))}."]
    return "\n".join(lines) + "\n"


def _parts(evidence: Evidence, setting: str) -> list[Part]:
    every = (*evidence.records, *evidence.failed)
    return [
        Part(setting, track, [r for r in every if r.cell.track == track], sides(evidence, track))
        for track in TRACKS
        if any(r.cell.track == track for r in every)
    ]


def _made(records: Sequence[Record], commands: Sequence[str]) -> dict[str, Any]:
    finished = sorted(str(r.provenance.get("finished", "unknown")) for r in records)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "first": finished[0],
        "last": finished[-1],
        "commands": list(commands),
        "machines": dict(Counter(_machine(r) for r in records)),
        "revisions": dict(Counter(_revision(r) for r in records)),
    }


def _machine(record: Record) -> str:
    facts = record.provenance
    device = facts.get("gpu") or facts.get("processor") or "unknown"
    versions: dict[str, Any] = facts.get("versions") or {}
    torch = versions.get("torch", "unknown")
    return f"{device}, {facts.get('platform', 'unknown')}, Python {facts.get('python', 'unknown')}, torch {torch}"


def _revision(record: Record) -> str:
    return f"{str(record.provenance.get('revision'))[:12]}{' (dirty)' if record.provenance.get('dirty') else ''}"


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    for stray in path.parent.glob(f".{escape(path.stem)}+*.tmp"):
        if stray.stat().st_mtime < time.time() - _DEAD:
            stray.unlink(missing_ok=True)
    write_whole(path, content)
    path.chmod(0o644)  # what was a temporary file is its owner's alone
