"""The conditions under which every trained model is tested."""

from __future__ import annotations

import hashlib
import json
from itertools import combinations

from datamodules.corruptions import (
    MEDIA,
    applicable,
    catalogue,
    left_out,
    levels,
    medium,
    missing_rates,
    standard,
    united,
    version,
)
from datamodules.corruptions.calibration import is_calibrated
from datamodules.corruptions.registry import Parameter
from datamodules.registry import did_you_mean
from datamodules.spec import Modality, Task
from leaderboard.record import Condition

SETS = ("standard", "full", "none")
GROUPS = ("clean", "single", "joint", "missing", "missing_rate", "misaligned")
Wanted = str | tuple[str, ...]  # a set, or groups and corruptions
LEVELS = range(1, 6)


def resolve(wanted: Wanted, task: Task) -> tuple[Condition, ...]:
    """The conditions a matrix asks for: a named set, or a list of groups and of corruptions; the clean one comes first.

    Raises:
        ValueError: With a suggestion, for a name that is neither.
    """
    check(wanted)
    if wanted == "none":
        return (Condition("clean"),)
    if isinstance(wanted, str):
        full = wanted == "full"
        groups: set[str] = {g for g in GROUPS if full or g != "missing_rate"}
        corruptions = {m.name: (catalogue if full else standard)(medium(m, task.name)) for m in task.modalities}
    else:
        groups = {g for g in GROUPS if g in wanted}
        asked = [name for name in wanted if name not in GROUPS]
        able = {m.name: catalogue(medium(m, task.name)) for m in task.modalities}
        corruptions = {name: tuple(c for c in own if c in asked) for name, own in able.items()}
        if asked:
            groups.add("single")
        elif "single" in groups:
            corruptions = {m.name: standard(medium(m, task.name)) for m in task.modalities}
    return tuple(_build(task, groups, corruptions))


def check(wanted: Wanted) -> None:
    """Raise ValueError unless `wanted` names a set, groups or corruptions."""
    known = {c for kind in MEDIA for c in catalogue(kind)} | set(GROUPS)
    if isinstance(wanted, str):
        if wanted not in SETS:
            raise ValueError(f"no set of conditions named {wanted!r}. {did_you_mean(wanted, SETS)}")
        return
    for name in wanted:
        if name not in known:
            raise ValueError(f"no condition or corruption named {name!r}. {did_you_mean(name, tuple(known))}")


def versions(conditions: tuple[Condition, ...], task: Task) -> dict[str, str]:
    """What each corruption used is, its version and a digest of its severities: part of a cell's identity."""
    used: dict[str, dict[str, tuple[Parameter, ...]]] = {}
    for condition in conditions:
        if condition.kind == "missing_rate":
            used.setdefault("missing", {})
        for m in task.modalities:
            if (name := befalling(condition, m, task.name)) is not None:
                used.setdefault(name, {})[m.name] = levels(name, m, task.name)
    return {name: f"{version(name)}/{_digest(own)}" for name, own in sorted(used.items())}


def notes(conditions: tuple[Condition, ...], task: Task) -> list[str]:
    """What a reader must know of the corruptions: which severities are not the dataset's own, what was left out."""
    if not any(c.kind in ("single", "joint") for c in conditions):
        return []
    foreign = [m for m in task.modalities if not is_calibrated(m, task.name)]
    sounds = [m.name for m in foreign if medium(m, task.name) == "sound"]
    others = [m.name for m in foreign if m.name not in sounds]
    said = [
        *(f"{task.name}: severities of the sound of {', '.join(sounds)} are not calibrated" for _ in sounds[:1]),
        *(
            f"{task.name}: severities of {', '.join(others)} are those of the kind, calibrated on other datasets"
            for _ in others[:1]
        ),
    ]
    gone = [f"{m.name} {name} ({why})" for m in task.modalities for name, why in left_out(m, task.name).items()]
    return [*said, *(f"{task.name}: not tested: {'; '.join(gone)}" for _ in gone[:1])]


def befalling(condition: Condition, modality: Modality, dataset: str) -> str | None:
    """The corruption that befalls a modality under a condition, if one does."""
    if condition.kind == "joint":
        return united(modality, dataset)
    if condition.kind == "missing_rate" or condition.modality != modality.name:
        return None
    return condition.corruption or "misaligned"


def _digest(parameters: dict[str, tuple[Parameter, ...]]) -> str:
    return hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:8]


def _build(task: Task, groups: set[str], corruptions: dict[str, tuple[str, ...]]) -> list[Condition]:
    built = [Condition("clean")]
    if "single" in groups:
        built += [
            Condition("single", modality=m.name, corruption=c, severity=s)
            for m in task.modalities
            for c in corruptions[m.name]
            if c != "misaligned" and c in applicable(m, task.name)
            for s in LEVELS
        ]
    if "joint" in groups and any(united(m, task.name) for m in task.modalities):
        built += [Condition("joint", severity=s) for s in LEVELS]
    if "missing" in groups:
        built += [Condition("missing", absent=absent) for absent in _subsets(task.names)]
    if "missing_rate" in groups:
        # All modalities at a rate, then each alone.
        alone = (None, *task.names)
        built += [Condition("missing_rate", modality=name, rate=rate) for name in alone for rate in missing_rates()]
    if "misaligned" in groups:
        built += [Condition("misaligned", modality=m.name, severity=s) for m in task.modalities for s in LEVELS]
    return built


def _subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Every proper subset up to four modalities; beyond, each one alone and all but one."""
    count = len(names)
    sizes = range(1, count) if count <= 4 else (1, count - 1)
    return [subset for size in sizes for subset in combinations(names, size)]
