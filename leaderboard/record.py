"""The record: what one cell of the matrix leaves behind, and the only thing the leaderboard reads."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

import msgspec

SCHEMA = 1

# A number that was not finite is null in the file: the decoder must take it, code that computes may hope for numbers.
if TYPE_CHECKING:
    Numbers = dict[str, float]
else:
    Numbers = dict[str, float | None]

Kind = Literal["clean", "single", "joint", "missing", "missing_rate", "misaligned"]


class InvalidRecord(ValueError):
    """A record file that cannot be trusted: truncated, foreign, or of another schema."""


@dataclass(frozen=True)
class Condition:
    """The scores of one trained model under one condition.

    Attributes:
        kind: What was done to the test rows; `modality`, `corruption`, `severity`, `absent` and `rate` say how.
        score: The task's own metric (`Record.metric`), raw, never relative to anything.
        metrics: Further metrics of the task (macro F1, recall at 5, ...).
        calibration: NLL, Brier score and expected calibration error, for targets that have probabilities.
        weights: Mean weight the method gave each modality (in the order of `Record.modalities`), or None.
        diagnostics: Numbers the method reports about itself under this condition.
    """

    kind: Kind
    score: float
    modality: str | None = None
    corruption: str | None = None
    severity: int = 0
    absent: tuple[str, ...] = ()
    rate: float | None = None
    metrics: Numbers = field(default_factory=dict)
    calibration: Numbers = field(default_factory=dict)
    weights: tuple[float, ...] | None = None
    diagnostics: Numbers = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The condition's name, unique within a record and the key of its predictions in the `.npz`."""
        match self.kind:
            case "single":
                return f"single:{self.modality}:{self.corruption}:{self.severity}"
            case "joint":
                return f"joint:{self.severity}"
            case "missing":
                return "missing:" + "+".join(self.absent)
            case "missing_rate":
                return f"missing_rate:{self.rate}"
            case "misaligned":
                return f"misaligned:{self.modality}:{self.severity}"
        return "clean"


@dataclass(frozen=True)
class Record:
    """One cell: a method trained on a dataset with a seed, and everything measured of it.

    Attributes:
        cell: The cell's id, also the stem of its files.
        label: The method as the board shows it (`unimodal[image]`, `low_rank[rank=8]`); `method` is the registered
            name.
        options: The method's resolved hyper-parameters; `dataset_options` the dataset's.
        metric: Name of the score; `trivial` is its value for the trivial predictor on the test split, `bayes` the
            optimum
            when it is known.
        conditions: Scores, the clean one first. Empty when the cell failed.
        summary: Numbers measured once per cell (held-out correlations, collapse).
        training: One entry per stage: name, epochs, steps, best epoch and score, history.
        cost: Parameters, seconds, memory, latency.
        provenance: Versions, revision, hardware, seeds: facts that do not identify the cell.
        error: Type, message and traceback of a failed cell.
    """

    cell: str
    status: Literal["ok", "failed"]
    method: str
    label: str
    family: str
    track: Literal["plain", "augmented"]
    options: dict[str, Any]
    dataset: str
    dataset_version: str
    dataset_options: dict[str, Any]
    seed: int
    modalities: tuple[str, ...]
    target: str
    metric: str
    higher_is_better: bool
    recipe: dict[str, Any]
    trivial: float | None = None
    bayes: float | None = None
    rows: int = 0
    conditions: tuple[Condition, ...] = ()
    summary: Numbers = field(default_factory=dict)
    training: tuple[dict[str, Any], ...] = ()
    cost: Numbers = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    error: dict[str, str] | None = None
    schema: int = SCHEMA

    @property
    def clean(self) -> float:
        """The clean score."""
        return self.conditions[0].score

    def to_json(self) -> str:
        """The record as JSON; non-finite numbers become null, which JSON can say and NaN it cannot."""
        return json.dumps(_finite(asdict(self)), indent=1, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Record:
        """Read and check a record.

        Raises:
            InvalidRecord: With the reason, if `text` is not a record of this schema.
        """
        try:
            raw = _KEYS.decode(text)
        except msgspec.ValidationError:
            raise InvalidRecord("not a Polymodal record: not a JSON object") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRecord(f"not JSON (truncated?): {error}") from None
        if "schema" not in raw:
            raise InvalidRecord("not a Polymodal record: no `schema` field")
        if bytes(raw["schema"]) != str(SCHEMA).encode():
            raise InvalidRecord(f"schema {bytes(raw['schema']).decode()}, this version reads {SCHEMA}")
        if unknown := sorted(raw.keys() - _FIELDS):
            raise InvalidRecord(f"unknown fields {unknown}")
        try:
            record = _RECORD.decode(text)
        except msgspec.ValidationError as error:
            raise InvalidRecord(f"missing or misshapen fields: {error}") from None
        record._check()
        return record

    def _check(self) -> None:
        """Raise InvalidRecord unless the record is complete for its status."""
        if self.status == "failed":
            if not self.error or "message" not in self.error:
                raise InvalidRecord("a failed record must carry its error")
            return
        if not self.conditions or self.conditions[0].kind != "clean":
            raise InvalidRecord("the first condition must be `clean`")
        ids = [c.id for c in self.conditions]
        if len(set(ids)) != len(ids):
            raise InvalidRecord("conditions are not unique")
        for condition in self.conditions:
            if not math.isfinite(condition.score):
                raise InvalidRecord(f"condition {condition.id}: score {condition.score!r} is not a finite number")


# Typed decoding in C: a board of 10,000 records is read in seconds. The keys come first, because what is unknown must
# not be dropped in silence.
_KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RECORD = msgspec.json.Decoder(Record)
_FIELDS = {f.name for f in fields(Record)}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
