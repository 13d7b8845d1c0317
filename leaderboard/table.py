"""Results of any code, given as a table of scores: a row per method, dataset, seed and condition."""

# pandas ships no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from leaderboard.merge import BoardError, Evidence
from leaderboard.outcomes import Given
from leaderboard.record import SCHEMA, Cell, Condition, Record, is_line

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = ("method", "dataset", "seed", "score")
OPTIONAL = ("condition", "outcomes", "trivial", "metric", "higher_is_better")
_CONDITIONS = (
    "clean, single:MODALITY:CORRUPTION:SEVERITY, joint:SEVERITY, missing:MODALITY+MODALITY, missing_rate:RATE, "
    "misaligned:MODALITY:SEVERITY"
)


def evidence_of(
    frame: DataFrame,
    control: str | None = None,
    metric: str = "score",
    higher_is_better: bool = True,
    trivial: float | Mapping[str, float] | None = None,
) -> Evidence:
    """What a board is made of, from a table.

    Args:
        frame: Columns `method`, `dataset`, `seed` and `score`; `condition`, as records name them (default: clean);
            `outcomes`, what each test row adds to the score, as sequences whose mean is the score: with them intervals
            are over rows too. `trivial`, `metric` and `higher_is_better` as columns are of each dataset.
        control: The method all others are compared with; None: `concat` if it is there, else the first of the table.
        metric: Name of the score.
        higher_is_better: Whether a larger score is.
        trivial: What a predictor scores that never looks at its inputs, for all datasets or by dataset. Differences
            are in units of what there is above it; None: 0, so that they are in the score's own.

    Raises:
        BoardError: If a column is missing, a value is none, or a score is there twice.
    """
    records, given = read_frame(frame, metric, higher_is_better, trivial)
    labels = list(dict.fromkeys(r.cell.label for r in records))
    chosen = control or ("concat" if "concat" in labels else labels[0])
    if chosen not in labels:
        raise BoardError(f"no method named {chosen!r} to compare with. Methods of the table: {', '.join(labels)}")
    ordered = sorted(records, key=lambda r: (r.cell.label, r.cell.dataset, r.cell.seed))
    return Evidence(tuple(ordered), (), {r.cell.id: given for r in records}, (), control=chosen)


def read_csv(path: Path) -> tuple[tuple[Record, ...], Given]:
    """The records of a CSV file.

    Raises:
        BoardError: If it is no table of scores.
    """
    import pandas as pd

    try:
        frame = pd.read_csv(path, dtype={"method": str, "dataset": str, "condition": str})
    except (ValueError, UnicodeDecodeError) as error:
        raise BoardError(f"{path} cannot be read as a CSV file: {error}") from None
    return read_frame(frame, where=path)


def read_frame(
    frame: DataFrame,
    metric: str = "score",
    higher_is_better: bool = True,
    trivial: float | Mapping[str, float] | None = None,
    where: Path | None = None,
) -> tuple[tuple[Record, ...], Given]:
    """The records of a table, and the outcomes of their rows."""
    source = where or Path("the table")
    _check_columns(frame, source)
    cells: dict[tuple[str, str, int], dict[str, dict[str, Any]]] = {}
    lines = cast("list[dict[str, Any]]", frame.to_dict("records"))
    for number, row in enumerate(lines):
        at = f"{source}, row {number}"
        key = (_name(row, "method", at), _name(row, "dataset", at), _seed(row["seed"], at))
        condition = row.get("condition")
        condition = condition.strip() if isinstance(condition, str) and condition.strip() else "clean"
        own = cells.setdefault(key, {})
        if condition in own:
            raise BoardError(f"{at}: {' '.join(map(str, key))} {condition} is there twice")
        own[condition] = {**row, "score": _number(row["score"], "score", at)}
    if not cells:
        raise BoardError(f"{source} has no rows")
    defaults = {"metric": metric, "higher_is_better": higher_is_better}
    records: list[Record] = []
    values: dict[str, dict[str, NDArray[np.float64]]] = {}
    for (method, dataset, seed), rows in cells.items():
        if "clean" not in rows:
            raise BoardError(f"{source}: {method} on {dataset}, seed {seed} has no clean score")
        ordered = {"clean": rows["clean"], **rows}
        conditions = {_condition(name, str(source)): row for name, row in ordered.items()}
        facts = {**defaults, **{k: v for k, v in rows["clean"].items() if k in defaults}}
        zero = trivial.get(dataset) if isinstance(trivial, Mapping) else trivial
        zero = _number(rows["clean"].get("trivial", zero or 0.0), "trivial", f"{source}, {dataset}")
        higher = bool(facts["higher_is_better"])
        if not (zero < 1 if higher else zero > 0):
            need = "below 1" if higher else "above 0, since a perfect score is 0"
            raise BoardError(f"{source}, {dataset}: the trivial score must be {need}, got {zero:g}")
        outcomes = {name: _outcomes(row, str(source)) for name, row in ordered.items() if _has_outcomes(row)}
        cell = _cell(method, dataset, seed, tuple(conditions), str(facts["metric"]), higher)
        measured = tuple(c.measured(row["score"]) for c, row in conditions.items())
        size = len(next(iter(outcomes.values()), ()))
        records.append(Record(cell=cell, status="ok", schema=SCHEMA, trivial=zero, rows=size, conditions=measured))
        values[cell.id] = outcomes
    return tuple(records), Given(source, values)


def _cell(method: str, dataset: str, seed: int, conditions: tuple[Condition, ...], metric: str, higher: bool) -> Cell:
    named = [c.modality for c in conditions if c.modality] + [name for c in conditions for name in c.absent]
    return Cell(
        method=method,
        label=method,
        family="",
        track="plain",
        options={},
        dataset=dataset,
        dataset_version="",
        dataset_options={},
        seed=seed,
        recipe={},
        trainer={},
        conditions=conditions,
        corruptions={},
        modalities=tuple(dict.fromkeys(named)),
        target="",
        metric=metric,
        higher_is_better=higher,
        bayes=None,
        parameters=0,
        source="",
        protocol="",
    )


def _check_columns(frame: DataFrame, source: Path) -> None:
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise BoardError(
            f"{source} must have the columns {', '.join(COLUMNS)} (and may have {', '.join(OPTIONAL)}); missing: "
            f"{', '.join(missing)}. It has: {', '.join(map(str, frame.columns))}"
        )


def _condition(name: str, source: str) -> Condition:
    """The condition that has this id."""
    kind, *parts = name.split(":")
    try:
        match kind, parts:
            case "clean", []:
                return Condition("clean")
            case "single", [modality, corruption, severity]:
                return Condition("single", modality, corruption, int(severity))
            case "joint", [severity]:
                return Condition("joint", severity=int(severity))
            case "missing", [absent]:
                return Condition("missing", absent=tuple(absent.split("+")))
            case "missing_rate", [rate]:
                return Condition("missing_rate", rate=float(rate))
            case "missing_rate", [modality, rate]:
                return Condition("missing_rate", modality, rate=float(rate))
            case "misaligned", [modality, severity]:
                return Condition("misaligned", modality, severity=int(severity))
            case _:
                pass  # said below
    except ValueError:
        pass  # said below
    raise BoardError(f"{source}: no condition {name!r}. A condition is one of {_CONDITIONS}")


def _name(row: Mapping[str, Any], column: str, at: str) -> str:
    value = row[column]
    if not isinstance(value, str) or not value.strip() or not is_line(value):
        raise BoardError(f"{at}: `{column}` must be a name, got {value!r}")
    return value


def _seed(value: Any, at: str) -> int:
    number = _number(value, "seed", at)
    if number != int(number) or number < 0:
        raise BoardError(f"{at}: `seed` must be a whole number >= 0, got {value!r}")
    return int(number)


def _number(value: Any, column: str, at: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # an integer of 400 digits is no float
        number = math.nan
    if not math.isfinite(number):
        raise BoardError(f"{at}: `{column}` must be a finite number, got {value!r}")
    return number


def _has_outcomes(row: Mapping[str, Any]) -> bool:
    found = row.get("outcomes")
    return found is not None and not isinstance(found, float)  # pandas writes NaN where there is nothing


def _outcomes(row: Mapping[str, Any], source: str) -> NDArray[np.float64]:
    values = np.asarray(row["outcomes"], dtype=np.float64)
    where = f"{source}: {row['method']} on {row['dataset']}, seed {row['seed']}"
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise BoardError(f"{where}: `outcomes` must be a sequence of numbers, one per test row")
    if not math.isclose(values.mean(), row["score"], rel_tol=1e-4, abs_tol=1e-4):
        raise BoardError(f"{where}: the mean of `outcomes` is {values.mean():.6g}, the score {row['score']:.6g}")
    return values
