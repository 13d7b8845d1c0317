"""What a table seems to be: the task of its target, which columns are features, and which of them belong together."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmark.own_data.guess import Guess
from datamodules.registry import did_you_mean
from datamodules.rows.columns import is_words
from datamodules.sources.table_file import read_table

CLASSES = 20  # different numbers of a target up to which they are taken for classes
GROUPS = 6  # at most; the rest is together
_SOURCE = re.compile(r"(^|[_\s.-])(id|patient|subject|person|speaker|user|session|customer|household)([_\s.-]|$)", re.I)
_STEM = re.compile(r"^([A-Za-z]+?)(?=[_.\-\s:/]|\d+$)")


def guess_table(path: Path, target: str, groups: Mapping[str, Sequence[str]] | None) -> Guess:
    """Read the table and guess the options of `csv_views`.

    Raises:
        ValueError: If there is no such column, or nothing to learn from or about.
    """
    opened = read_table(path)
    frame = opened.frame
    if target not in frame.columns:
        raise ValueError(f"{path} has no column {target!r} to predict (--target). {did_you_mean(target, list(frame))}")
    if frame.empty:
        raise ValueError(f"{path} has a line of names and no rows")
    said = [f"{len(frame):,} rows, {len(frame.columns)} columns" + _dialect(opened.separator, opened.encoding)]
    task, why = _task(frame[target])
    said.append(why)
    options: dict[str, Any] = {"file": str(path.absolute()), "target": target, "task": task}
    columns, left_out = _features(frame, target, opened.repeated)
    said += left_out
    if source := _source(frame, columns if groups is None else []):
        options["group"] = source
        columns.remove(source)
        said.append(
            f"group: rows of one {source!r} stay in one split ({frame[source].nunique():,} of them), or they would be "
            "recognised"
        )
    if groups is None:
        groups, how = _groups(frame, columns)
        said.append(f"groups: guessed {how} (--groups a=x,y b=z says it better)")
    options["modalities"] = {name: list(own) for name, own in groups.items()}
    for name, own in groups.items():
        said.append(f"  {name}: {_listed(_described(frame, own))}")
    return Guess("csv_views", options, len(frame), tuple(said))


def _dialect(separator: str, encoding: str) -> str:
    return f", separated by {separator!r}, in {encoding}" if separator else ", parquet"


def _task(cells: Any) -> tuple[str, str]:
    """The task of a target, and the sentence that says so."""
    name, filled = cells.name, cells.dropna()
    if filled.nunique() < 2:
        raise ValueError(
            f"--target {name!r}: every row is {filled.iloc[0] if len(filled) else 'empty'!r}: nothing to predict"
        )
    if empty := int(cells.isna().sum()):
        raise ValueError(
            f"--target {name!r}: {empty:,} rows have none: leave them out, or score them later with `predict`"
        )
    if not is_words(cells) and pd.api.types.is_numeric_dtype(cells) and filled.nunique() > CLASSES:
        return "regression", (
            f"task: regression, because {name!r} has {filled.nunique():,} different numbers ({filled.min():g} to "
            f"{filled.max():g})"
        )
    counts = filled.astype(str).value_counts()
    shares = ", ".join(f"{label!r} {count / len(filled):.0%}" for label, count in counts.head(5).items())
    more = f" and {len(counts) - 5} more" if len(counts) > 5 else ""
    return "multiclass", f"task: classes, because {name!r} has {len(counts)} different values: {shares}{more}"


def _features(frame: pd.DataFrame, target: str, repeated: Sequence[str]) -> tuple[list[str], list[str]]:
    """The columns to learn from, and a sentence for each that is left out."""
    kept: list[str] = []
    said: list[str] = []
    seen = {_content(frame[target]): target}
    wanted = pd.factorize(frame[target])[0]
    for column in frame.columns:
        cells: Any = frame[column]
        if column == target:
            continue
        code = _content(cells) if _hashable(cells) else ""
        if reason := _useless(cells, wanted, seen.get(code, ""), repeated):
            said.append(f"left out: {column!r} {reason}")
            continue
        seen[code] = column
        kept.append(str(column))
    if len(kept) < 2:
        raise ValueError(f"two columns or more to learn from are needed, and {len(kept)} are left: {'; '.join(said)}")
    return kept, said


def _useless(cells: Any, wanted: Any, twin: str, repeated: Sequence[str]) -> str:
    """Why a column is not learnt from; empty if it is."""
    filled = cells.dropna()
    different = filled.nunique() if _hashable(cells) else 0
    base = re.sub(r"\.\d+$", "", str(cells.name))
    if base in repeated:
        return f"is one of several columns called {base!r}: rename them to learn from them"
    if not different:
        return "is empty, or holds no plain values"
    if different == 1:
        return f"is always {filled.iloc[0]!r}"
    if twin and twin != cells.name:
        return f"is the same as {twin!r}"
    if len(filled) < 0.05 * len(cells):
        return f"is empty in {1 - len(filled) / len(cells):.0%} of the rows"
    # Of many numbers each goes with one of the target anyhow.
    if different == wanted.max() + 1 <= CLASSES and _one_to_one(pd.factorize(cells)[0], wanted):
        return "is the target in other words"
    if is_words(cells) and different > max(2, len(filled) / 4):
        return f"is {different:,} different texts (such as {filled.iloc[0]!r}): a name, a date or free text"
    whole = pd.api.types.is_integer_dtype(cells) or (
        pd.api.types.is_float_dtype(cells) and bool((filled == np.floor(filled)).all())
    )
    if whole and different == len(cells) and (_SOURCE.search(str(cells.name)) or _counts_up(filled)):
        return "is a number for each row (an id)"
    return ""


def _one_to_one(codes: Any, wanted: Any) -> bool:
    """Whether every value goes with one value of the target, and the other way round."""
    return len(set(zip(codes.tolist(), wanted.tolist(), strict=True))) == wanted.max() + 1


def _counts_up(filled: Any) -> bool:
    return bool(filled.is_monotonic_increasing) and int(filled.max() - filled.min()) == len(filled) - 1


def _content(cells: Any) -> str:
    return hashlib.sha256(repr(cells.tolist()).encode()).hexdigest()


def _hashable(cells: Any) -> bool:
    return not any(isinstance(cell, list | dict | np.ndarray) for cell in cells.head(50))


def _source(frame: pd.DataFrame, columns: Sequence[str]) -> str:
    """A column that says which rows share a source: named so, and with values that come again."""
    for column in columns:
        cells: Any = frame[column]
        whole = is_words(cells) or pd.api.types.is_integer_dtype(cells)
        if whole and _SOURCE.search(column) and cells.notna().all() and 10 <= cells.nunique() <= 0.7 * len(cells):
            return column
    return ""


def _groups(frame: pd.DataFrame, columns: Sequence[str]) -> tuple[dict[str, list[str]], str]:
    """Columns that seem to belong together, and how that was guessed."""
    stems: dict[str, list[str]] = {}
    for column in columns:
        found = _STEM.match(column)
        stems.setdefault(found[1].lower() if found else "", []).append(column)
    named = {stem: own for stem, own in stems.items() if stem and len(own) > 1}
    named = dict(sorted(named.items(), key=lambda item: -len(item[1]))[:GROUPS])
    rest = [c for c in columns if not any(c in own for own in named.values())]
    if len(named) + bool(rest) > 1 and named:
        return {**named, **({"others": rest} if rest else {})}, "from the first parts of the names"
    words = [c for c in columns if is_words(frame[c])]
    numbers = [c for c in columns if c not in words]
    if words and numbers:
        return {"numbers": numbers, "words": words}, "by kind, as the names say nothing"
    half = (len(columns) + 1) // 2
    how = "by order, the first half and the second, as nothing says what belongs together: do not read much into them"
    return {"first": list(columns[:half]), "second": list(columns[half:])}, how


def _described(frame: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    found = []
    for entry in columns:
        if entry not in frame.columns:  # a range, or unknown: the plan says so
            found.append(entry)
            continue
        cells: Any = frame[entry]
        kind = f"{cells.nunique()} words" if is_words(cells) else "number"
        empty = f", {cells.isna().mean():.0%} empty" if cells.isna().any() else ""
        found.append(f"{entry} ({kind}{empty})")
    return found


def _listed(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
