"""Results in one file: every cell of a board and what comparisons need of its rows, typed, small and checked.

A parquet file that pandas or any other tool can read: a row per cell. The rows of a dataset are kept as `outcomes`
packs them, once per method, dataset and setting, beside the first seed. Predictions, probabilities, learning curves,
diagnostics and the calibration of single conditions are left out: they are in the results folder.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from leaderboard import robustness
from leaderboard.outcomes import GROUPS, Kept, Packed, key, pack, unpack
from leaderboard.panels import Side
from leaderboard.record import SCHEMA as RECORD
from leaderboard.record import Cell, Condition, Failure, Fill, Fitted, InvalidRecord, Measured, Record
from leaderboard.store import no_garbage
from leaderboard.variance_prior import Prior

FORMAT = 1

_LARGEST = 2**28  # bytes of a file
_EXPANSION = 500  # times its size that a file may say it holds
_CELLS = 200_000
_ABOUT = "polymodal"
_MARK = b"polymodal-sha256="
_BLANK = b"0" * 64
_NUMBERS = pa.map_(pa.string(), pa.float64())
_LINE = pa.struct(
    {
        "key": pa.string(),
        "mean": pa.float64(),
        "variance": pa.float64(),
        "interaction": pa.float64(),
        "scale": pa.float32(),
        "rows": pa.binary(),
    }
)
COLUMNS = pa.schema(
    {
        "id": pa.string(),
        "label": pa.string(),
        "dataset": pa.string(),
        "seed": pa.int32(),
        "setting": pa.string(),
        "status": pa.string(),
        "metric": pa.string(),
        "cell": pa.string(),  # JSON, but for the seed and the conditions
        "conditions": pa.string(),  # JSON
        "scores": pa.list_(pa.float64()),  # one per condition
        "weights": pa.list_(pa.float64()),  # of modalities, condition by condition
        "metrics": _NUMBERS,  # clean
        "calibration": _NUMBERS,  # clean, and means over corruptions
        "trivial": pa.float64(),
        "rows": pa.int32(),
        "summary": _NUMBERS,
        "cost": _NUMBERS,
        "training": pa.string(),  # JSON, without what happened in each epoch
        "provenance": pa.string(),  # JSON
        "error": pa.string(),  # JSON
        "more": pa.string(),  # JSON, what else a record says
        "lines": pa.list_(_LINE),  # with the first seed
    }
)


class InvalidExport(ValueError):
    """A file that is no export, or not the one that was written."""


class About(msgspec.Struct, frozen=True):
    """What an export says of itself.

    Attributes:
        made: Command lines, machine, date.
        not_applicable: Label, dataset and reason.
        priors: Setting -> track -> dataset -> measure -> the variance over seeds that was usual.
    """

    format: int
    record: int
    made: dict[str, Any]
    not_applicable: list[tuple[str, str, str]]
    priors: dict[str, dict[str, dict[str, dict[str, dict[str, float | None]]]]]


@dataclass(frozen=True)
class Export:
    """What a file holds."""

    path: Path
    about: About
    records: tuple[Record, ...]
    kept: Kept

    @property
    def reasons(self) -> dict[tuple[str, str], str]:
        """(label, dataset) -> why the method was not run there."""
        return {(label, dataset): reason for label, dataset, reason in self.about.not_applicable}

    def priors(self, setting: str, track: str) -> dict[str, dict[str, Prior]]:
        """Dataset -> measure -> the frozen prior."""
        own = self.about.priors.get(setting, {}).get(track, {})
        return {d: {m: Prior.from_plain(p) for m, p in found.items()} for d, found in own.items()}


@dataclass(frozen=True)
class Part:
    """One track of one setting: its records, failed ones too, and its datasets as a board has them."""

    setting: str
    track: str
    records: Sequence[Record]
    sides: Mapping[str, Side]


def encode(parts: Sequence[Part], reasons: Mapping[tuple[str, str], str], made: Mapping[str, Any]) -> bytes:
    """The file."""
    lines: dict[tuple[str, str, str], dict[str, Packed]] = {}  # setting, label, dataset
    for part in parts:
        for dataset, side in part.sides.items():
            if not side.by_row:
                continue
            for measure, panel in side.panels.items():
                for label, found in panel.methods.items():
                    own = lines.setdefault((part.setting, label, dataset), {})
                    own[key(side.measures[measure].weights)] = pack(found)
    rows = [_row(r, part.setting, lines) for part in parts for r in sorted(part.records, key=_place)]
    rows.sort(key=lambda row: (row["dataset"], row["setting"], row["label"], row["seed"]))
    about = About(
        FORMAT,
        RECORD,
        dict(made),
        [(label, dataset, reason) for (label, dataset), reason in sorted(reasons.items())],
        _priors(parts),
    )
    return _sealed(pa.Table.from_pylist(rows, COLUMNS), about)


def read(path: str | Path) -> Export:
    """Read an export.

    Raises:
        InvalidExport: If it is truncated, altered, foreign, of another version, or claims to be larger than it can be.
        OSError: If the file cannot be read.
    """
    path = Path(path)
    size = path.stat().st_size
    if size > _LARGEST:
        raise InvalidExport(f"{path} has {size} bytes; no export has more than {_LARGEST}")
    content = path.read_bytes()
    try:
        with no_garbage():
            about, table = _opened(content)
            records = tuple(_records(table))
            kept = Kept(path, dict(_lines(table)))
    except InvalidExport as error:
        raise InvalidExport(f"{path} {error}. Get it again, or make one with `polymodal export`") from None
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        raise InvalidExport(f"{path} cannot be read as an export: {error}") from None
    return Export(path, about, records, kept)


def _place(record: Record) -> tuple[str, str, int]:
    return record.cell.dataset, record.cell.label, record.cell.seed


def _row(record: Record, setting: str, lines: dict[tuple[str, str, str], dict[str, Packed]]) -> dict[str, Any]:
    cell = record.cell
    facts = {k: v for k, v in msgspec.to_builtins(cell).items() if k not in ("seed", "conditions")}
    measured = record.conditions
    clean = measured[0] if measured else None
    weights = [w for c in measured for w in c.weights or ()]
    training = [msgspec.structs.replace(stage, history=()) for stage in record.training]
    own = lines.pop((setting, cell.label, cell.dataset), {}) if record.status == "ok" else {}
    return {
        "id": cell.id,
        "label": cell.label,
        "dataset": cell.dataset,
        "seed": cell.seed,
        "setting": setting,
        "status": record.status,
        "metric": cell.metric,
        "cell": _json(facts),
        "conditions": _json(cell.conditions),
        "scores": [c.score for c in measured],
        "weights": weights if len(weights) == len(measured) * len(cell.modalities) else None,
        "metrics": list(clean.metrics.items()) if clean else [],
        # Means over corruptions cannot be taken again from what is kept.
        "calibration": list(robustness.calibration(record).items()) if clean else [],
        "trivial": record.trivial,
        "rows": record.rows,
        "summary": list(record.summary.items()),
        "cost": list(record.cost.items()),
        "training": _json(training),
        "provenance": _json(record.provenance),
        "error": None if record.error is None else _json(record.error),
        "more": _json(
            {name: getattr(record, name) for name in _MORE} | {_FILLS: {c.id: c.fills for c in measured if c.fills}}
        ),
        "lines": [{"key": name, **line._asdict()} for name, line in own.items()],
    }


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _priors(parts: Iterable[Part]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in parts:
        own = {d: {m: p.prior.to_plain() for m, p in side.panels.items()} for d, side in part.sides.items()}
        found.setdefault(part.setting, {})[part.track] = own
    return found


def _sealed(table: pa.Table, about: About) -> bytes:
    """The bytes of the file, among them the hash of all the others."""
    buffer = io.BytesIO()
    with pq.ParquetWriter(
        buffer,
        table.schema,
        compression="zstd",
        compression_level=19,
        store_schema=False,
        write_statistics=False,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_ABOUT: _json(about), "seal": (_MARK + _BLANK).decode()})
    content = buffer.getvalue()
    assert content.count(_MARK + _BLANK) == 1
    digest = hashlib.sha256(content).hexdigest().encode()
    return content.replace(_MARK + _BLANK, _MARK + digest)


def _opened(content: bytes) -> tuple[About, pa.Table]:
    """What the file says of itself, and its rows, once every byte is known to be as it was written."""
    if content[:4] != b"PAR1":
        raise InvalidExport("is no parquet file")
    if content[-4:] != b"PAR1":
        raise InvalidExport("is truncated: it does not end as a parquet file does")
    at = content.rfind(_MARK)
    if at < 0:
        raise InvalidExport("is a parquet file, but no export of Polymodal")
    at += len(_MARK)
    blank = content[:at] + _BLANK + content[at + len(_BLANK) :]
    if hashlib.sha256(blank).hexdigest().encode() != content[at : at + len(_BLANK)]:
        raise InvalidExport("was altered after it was written: its checksum is another")
    file = pq.ParquetFile(pa.BufferReader(content))
    facts = file.metadata
    claimed = sum(
        facts.row_group(i).column(j).total_uncompressed_size
        for i in range(facts.num_row_groups)
        for j in range(facts.num_columns)
    )
    if claimed > _EXPANSION * len(content) or facts.num_rows > _CELLS:
        raise InvalidExport(f"claims to hold {facts.num_rows} cells in {claimed} bytes")
    said: dict[bytes, bytes] = facts.metadata or {}
    about = _about(said.get(_ABOUT.encode(), b""))
    if not file.schema_arrow.remove_metadata().equals(COLUMNS):
        raise InvalidExport("has other columns than an export")
    return about, file.read()


def _about(text: bytes) -> About:
    try:
        found = msgspec.json.decode(text)
        version = found["format"]
        if version != FORMAT or found["record"] != RECORD:
            raise InvalidExport(
                f"is of format {version} with records of schema {found['record']}, this version reads format {FORMAT} "
                f"with schema {RECORD}"
            )
        return msgspec.convert(found, About)
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError) as error:
        raise InvalidExport(f"does not say what it is ({error})") from None


def _records(table: pa.Table) -> Iterator[Record]:
    columns = {name: table.column(name).to_pylist() for name in COLUMNS.names if name != "lines"}
    for i, id_ in enumerate(columns["id"]):
        row = {name: values[i] for name, values in columns.items()}
        try:
            record = Record.from_json(msgspec.json.encode(_record(row)))  # held to what a record of a folder is
        except (InvalidRecord, msgspec.ValidationError, msgspec.DecodeError) as error:
            raise InvalidExport(f"has a cell {id_} that is none: {error}") from None
        if record.cell.id != id_:
            raise InvalidExport(f"names a cell {id_}, what it describes is {record.cell.id}")
        yield record


def _record(row: Mapping[str, Any]) -> Record:
    planned = _conditions(row["conditions"])
    cell = msgspec.structs.replace(_cell(row["cell"]), seed=row["seed"], conditions=planned)
    scores, measured = row["scores"], ()
    if row["status"] == "ok":
        if len(scores) != len(planned) or not all(map(math.isfinite, scores)):
            raise InvalidExport(f"has {len(scores)} scores for {len(planned)} conditions of {row['id']}, or odd ones")
        weights = _shared_out(row["weights"], len(planned), len(cell.modalities))
        facts = zip(planned, scores, weights, strict=True)
        measured = tuple(
            Measured(c.kind, c.modality, c.corruption, c.severity, c.absent, c.rate, score=score, weights=own)
            for c, score, own in facts
        )
        clean = msgspec.structs.replace(measured[0], metrics=dict(row["metrics"]), calibration=dict(row["calibration"]))
        fills = msgspec.convert(_more(row["more"]).get(_FILLS, {}), dict[str, dict[Fill, float]])
        measured = (clean, *(msgspec.structs.replace(c, fills=fills.get(c.id, {})) for c in measured[1:]))
    return Record(
        cell=cell,
        status="ok" if measured else "failed",
        schema=RECORD,
        trivial=row["trivial"],
        rows=row["rows"],
        conditions=measured,
        summary=dict(row["summary"]),
        training=_TRAINING.decode(row["training"]),
        cost=dict(row["cost"]),
        provenance=msgspec.json.decode(row["provenance"]),
        error=None if row["error"] is None else _ERROR.decode(row["error"]),
        **{name: value for name, value in _more(row["more"]).items() if name != _FILLS},
    )


def _shared_out(weights: Sequence[float] | None, conditions: int, modalities: int) -> list[tuple[float, ...] | None]:
    if weights is None:
        return [None] * conditions
    if len(weights) != conditions * modalities:
        raise InvalidExport(f"has {len(weights)} weights for {conditions} conditions and {modalities} modalities")
    return [tuple(weights[i * modalities : (i + 1) * modalities]) for i in range(conditions)]


def _lines(table: pa.Table) -> Iterator[tuple[str, dict[str, Any]]]:
    entries: dict[tuple[Any, ...], int] = {}
    facts = [table.column(name).to_pylist() for name in ("label", "dataset", "setting")]
    for entry in zip(*facts, strict=True):
        entries[entry] = entries.get(entry, 0) + 1
    columns = [table.column(name).to_pylist() for name in ("id", "lines")]
    for entry, id_, lines in zip(zip(*facts, strict=True), *columns, strict=True):
        if not all(_sound(line) for line in lines):
            raise InvalidExport(f"has outcomes of {id_} that are none")
        if lines:
            yield id_, {line.pop("key"): unpack(Packed(**line), entries[entry]) for line in lines}


def _sound(line: Mapping[str, Any]) -> bool:
    numbers = [value for name, value in line.items() if name not in ("key", "rows")]
    known = line["key"] is not None and None not in numbers
    # Of one seed, variances are NaN.
    return known and len(line["rows"] or b"") in range(1, GROUPS + 1) and math.isfinite(line["scale"])


@lru_cache(maxsize=4096)
def _cell(text: str) -> Cell:
    return msgspec.convert({**msgspec.json.decode(text), "seed": 0, "conditions": ()}, Cell)


@lru_cache(maxsize=1024)
def _conditions(text: str) -> tuple[Condition, ...]:
    found = msgspec.json.decode(text, type=tuple[Condition, ...])
    if not found or found[0].kind != "clean" or len({c.id for c in found}) < len(found):
        raise InvalidExport("has conditions of which the first is not clean, or one is there twice")
    return found


@lru_cache(maxsize=1024)
def _more(text: str) -> dict[str, Any]:
    found = msgspec.json.decode(text, type=dict[str, Any])
    unknown = sorted(found.keys() - {*_MORE, _FILLS})
    if unknown:
        raise InvalidExport(f"says of a cell what this version does not know: {', '.join(unknown)}")
    return found


# Whatever a record may come to say of a cell as a whole goes with it.
_MORE = sorted({*Record.__struct_fields__} - {*COLUMNS.names, "cell", "conditions", "schema", "predictions"})
_FILLS = "fills"  # condition -> score by what filled the absent modalities, of each way that was measured
_TRAINING = msgspec.json.Decoder(tuple[Fitted, ...])
_ERROR = msgspec.json.Decoder(Failure)
