"""The cell and its record: what is to be run, what came of it, and the only thing the leaderboard reads."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta, Struct

SCHEMA = 2

# A name is one line of text: no page of it, and as `_check_names` says no escape sequence, no turning of the reading
# direction. There and not as a pattern here, which would be matched against every key of every condition.
Name = Annotated[str, Meta(max_length=1000)]
Numbers = dict[Name, float]
Kind = Literal["clean", "single", "joint", "missing", "missing_rate", "misaligned"]
Fill = Literal["zero", "mean", "mask"]
Natural = Annotated[int, Meta(ge=0)]


class InvalidRecord(ValueError):
    """A record file that cannot be trusted: truncated, foreign, or of another schema."""


class Condition(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is done to the test rows: nothing, or as `modality`, `corruption`, `severity`, `absent` and `rate` say."""

    kind: Kind
    modality: Name | None = None
    corruption: Name | None = None
    severity: Natural = 0
    absent: tuple[Name, ...] = ()
    rate: float | None = None

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
                return "missing_rate:" + ("" if self.modality is None else f"{self.modality}:") + f"{self.rate}"
            case "misaligned":
                return f"misaligned:{self.modality}:{self.severity}"
            case "clean":
                return "clean"

    def measured(self, score: float, **more: Any) -> Measured:
        """What became of the condition."""
        planned = {name: getattr(self, name) for name in Condition.__struct_fields__}
        return Measured(**planned, score=score, **more)


class Measured(Condition, frozen=True, kw_only=True):
    """The scores of one trained model under one condition.

    Attributes:
        score: The task's own metric (`Cell.metric`), raw, never relative to anything.
        metrics: Further metrics of the task (macro F1, recall at 5, ...).
        calibration: NLL, Brier score and expected calibration error, for targets that have probabilities.
        weights: Mean weight the method gave each modality (in the order of `Cell.modalities`), or None.
        diagnostics: Numbers the method reports about itself under this condition; `error_auroc` is that of the
            uncertainty it declares, against its errors.
        fills: With modalities absent, the score by what filled their encodings; `Record.fill` says which is `score`.
    """

    score: float
    metrics: Numbers = {}
    calibration: Numbers = {}
    weights: tuple[float, ...] | None = None
    diagnostics: Numbers = {}
    fills: dict[Fill, float] = {}


def is_missing(condition: Condition) -> bool:
    """Whether a condition takes modalities away."""
    return condition.kind in ("missing", "missing_rate")


class Tuning(Struct, frozen=True, forbid_unknown_fields=True):
    """How a cell came to its values: the trial that was chosen, and the validation scores of all of them.

    Attributes:
        digest: Of the choice, with the numbers of trials and of their seeds.
        scores: None for a trial that failed.
    """

    digest: Name
    trial: Natural
    scores: tuple[float | None, ...]


class Cell(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """One run: a method on a dataset with a seed, completely described by plain data.

    Attributes:
        label: The method as the board shows it (`unimodal[image]`, `low_rank[rank=8]`); `method` is the registered
            name, `options` its resolved hyper-parameters.
        dataset: As the board shows it (`csv_views[patients]`); `dataset_options` are all of its options.
        corruptions: What each corruption of the conditions is: its version and severities.
        trainer: Precision, which decides numbers, and devices, which must not.
        metric: Name of the score; `bayes` is its optimum, when it is known.
        inputs: What each modality is, in their order: `image 1x8x4`, `text 12`. It decides the leagues of a dataset.
        parameters: Of the method.
        split: What is measured: the test rows, or the validation rows, as trials are.
        tuning: None at the values a matrix gives: the setting `default` of a board.
        source: Digest of the method's own code.
        protocol: Digest of the code that trains and scores all methods alike, and of the dataset's.
    """

    method: Name
    label: Name
    family: Name
    track: Literal["plain", "augmented"]
    options: dict[Name, Any]
    dataset: Name
    dataset_version: Name
    dataset_options: dict[Name, Any]
    seed: Natural
    recipe: dict[Name, Any]
    trainer: dict[str, Any]
    conditions: tuple[Condition, ...]
    corruptions: dict[Name, Name]
    modalities: tuple[Name, ...]
    target: Name
    metric: Name
    higher_is_better: bool
    bayes: float | None
    parameters: Natural
    source: Name
    protocol: Name
    split: Literal["test", "val"] = "test"
    tuning: Tuning | None = None
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Here and not when asked for, because a copy of the cell with another seed would keep what is cached.
        vars(self)["_id"] = self._identify()

    @property
    def id(self) -> str:
        """Hash of everything that decides the numbers; also the stem of the cell's files."""
        return vars(self)["_id"]

    def _identify(self) -> str:
        decisive = {name: getattr(self, name) for name in self.__struct_fields__}
        # Devices must not change the numbers, so a cell that ran on others is the same cell.
        decisive["trainer"] = self.trainer.get("precision")
        text = msgspec.json.encode([SCHEMA, decisive], order="sorted")
        code = hashlib.sha256(text).hexdigest()[:12]
        return f"{self.method}-{self.dataset.partition('[')[0]}-{self.seed}-{code}"

    def with_seed(self, seed: int) -> Cell:
        """The same run with another seed."""
        return msgspec.structs.replace(self, seed=seed)


class Fitted(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is known of one stage of a training.

    Attributes:
        best_epoch: Whose weights were kept, and `best_score` of `monitor` then; None for what is solved, not trained.
        monitor: What the epoch was chosen by, on validation rows: "val/accuracy", "val/task_loss" (the task's loss,
            where these rows are few), "val/loss" (the stage's own). Empty where the last epoch is taken.
        history: Losses and scores after each epoch; None is a number that was not finite.
        cap: Epochs that the stage could have had.
        batch_size: Rows of a step.
        score: The task's metric on validation rows, in the epoch whose weights were kept.
    """

    name: Name
    seconds: float
    epochs: Natural = 0
    steps: Natural = 0
    best_epoch: int | None = None
    best_score: float | None = None
    monitor: Name = ""
    history: tuple[dict[str, float | None], ...] = ()
    cap: Natural = 0
    batch_size: Natural = 0
    score: float | None = None

    @property
    def converged(self) -> bool:
        """Not of a stage that was still getting better when its epochs were over: best in the last tenth of them."""
        if self.best_epoch is None or not self.monitor or self.epochs < self.cap:
            return True
        return self.best_epoch < self.cap - math.ceil(self.cap / 10)


class Failure(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a cell failed."""

    type: Name
    message: str
    traceback: str = ""


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, dict=True):
    """A cell and everything measured of it; its `vars` hold what was made of its conditions once (`robustness.curves`).

    Attributes:
        trivial: The score of the trivial predictor on the test split, which has `rows` rows; `trivial_validation` is
            its score on the validation split.
        conditions: Scores, the clean one first. Empty when the cell failed.
        fill: What stands for the encoding of a modality that a condition takes away, chosen on validation rows: zero,
            or its mean over the training rows; a method that masks what is absent keeps its mask.
        predictions: SHA-256 of the `.npz` beside the record; the store fills it in.
        summary: Numbers measured once per cell (held-out correlations, collapse).
        training: One entry per stage.
        cost: Parameters (all, and those some stage fits by gradient), seconds, latency, and memory: `peak_memory_mb` is
            what the cell took above the `held_memory_mb` that its process held before, data and libraries.
        provenance: Versions, revision, hardware: facts that do not identify the cell.
    """

    cell: Cell
    status: Literal["ok", "failed"]
    schema: int
    trivial: float | None = None
    trivial_validation: float | None = None
    rows: Natural = 0
    conditions: tuple[Measured, ...] = ()
    fill: Fill | None = None
    predictions: Name = ""
    summary: Numbers = {}
    training: tuple[Fitted, ...] = ()
    cost: Numbers = {}
    provenance: dict[Name, Any] = {}
    error: Failure | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """Of the conditions, in their order; made once, because a board asks again and again."""
        known = vars(self)
        if "_ids" not in known:
            known["_ids"] = tuple([c.id for c in self.conditions])
        return known["_ids"]

    @property
    def clean(self) -> float:
        """The clean score."""
        return self.conditions[0].score

    @property
    def converged(self) -> bool:
        """Whether every stage of the training has converged; what is solved always has."""
        return all(stage.converged for stage in self.training)

    @property
    def steps(self) -> int:
        """Of all stages together: what the training spent of its budget."""
        return sum(stage.steps for stage in self.training)

    @property
    def above_trivial(self) -> bool | None:
        """Whether the trained model beats the trivial predictor on validation rows; None if nobody has looked."""
        scores = [stage.score for stage in self.training if stage.score is not None]
        if not scores or self.trivial_validation is None:
            return None
        sign = 1 if self.cell.higher_is_better else -1
        return sign * scores[-1] > sign * self.trivial_validation

    def to_json(self) -> str:
        """The record as JSON, in which a number that is not finite is null."""
        return msgspec.json.format(msgspec.json.encode(self, order="sorted").decode(), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Record:
        """Read and check a record.

        Raises:
            InvalidRecord: With the reason, if `text` is not a record of this schema.
        """
        try:
            record = _decoded(text)
            _check_depth([record.provenance, *(getattr(record.cell, name) for name in _OPEN)])
            content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
            if any(mark in content for mark in _MARKS):
                _check_names(record)
        except msgspec.ValidationError as error:
            raise InvalidRecord(f"not a Polymodal record: {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRecord(f"not JSON (truncated?): {error}") from None
        record.check()
        return record

    def check(self) -> None:
        """Raise InvalidRecord unless the record is complete for its status."""
        if self.status == "failed":
            if self.error is None:
                raise InvalidRecord("a failed record must carry its error")
            return
        if not self.conditions or self.conditions[0].kind != "clean":
            raise InvalidRecord("the first condition must be `clean`")
        if len(set(self.ids)) != len(self.ids):
            raise InvalidRecord("conditions are not unique")
        if list(map(_FACTS, self.conditions)) != list(map(_FACTS, self.cell.conditions)):
            raise InvalidRecord("the measured conditions are not those of the cell")
        for condition in self.conditions:
            if not math.isfinite(condition.score):
                raise InvalidRecord(f"condition {condition.id}: score {condition.score!r} is not a finite number")
            if condition.fills and (self.fill is None or condition.fills.get(self.fill) != condition.score):
                raise InvalidRecord(f"condition {condition.id}: the score is not that of the chosen fill {self.fill!r}")


def _decoded(text: str | bytes) -> Record:
    try:
        record = _RECORD.decode(text)
    except msgspec.ValidationError:
        _check_schema(_HEAD.decode(text).schema)  # of another one, what is wrong is that
        raise
    _check_schema(record.schema)
    return record


def _check_schema(schema: Any) -> None:
    if schema is None:
        raise InvalidRecord("not a Polymodal record: no `schema` field")
    if schema != SCHEMA:
        raise InvalidRecord(
            f"schema {schema!r}, this version reads {SCHEMA}: run the cell again with `polymodal run`, or read "
            "the folder with the version that wrote it"
        )


def finite(numbers: Mapping[str, float]) -> Numbers:
    """The numbers that are: what is not finite was not measured, and a record does not pretend it was."""
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


def is_line(text: str) -> bool:
    """Whether text is one line of it: nothing that a terminal obeys, nothing that turns the reading direction."""
    return _UNFIT.search(text) is None


def _check_depth(value: Any, left: int = 20) -> None:
    """Raise InvalidRecord for plain data in which what walks it could get lost."""
    if not isinstance(value, list | dict):
        return
    if not left:
        raise InvalidRecord("not a Polymodal record: nested too deeply")
    parts = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
    for part in parts:
        _check_depth(part, left - 1)


def _check_names(record: Record) -> None:
    """Raise InvalidRecord if a name, anywhere in a record, has a character that is none of a line of text."""
    plain = msgspec.to_builtins(record)
    for owner, name in ((plain, "provenance"), *((plain["cell"], name) for name in _OPEN)):
        owner[name] = list(owner.get(name, ()))  # whatever their values are, they are no names
    if plain.get("error"):
        plain["error"] = plain["error"]["type"]
    for place, name in _strings(plain):
        if not is_line(name):
            raise InvalidRecord(f"not a Polymodal record: {name[:80]!a} is not a line of text - at `{place}`")


def _strings(value: Any, place: str = "$") -> Iterator[tuple[str, str]]:
    """Where a string is, and the string: every key and every value of plain data."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, part in cast("dict[str, Any]", value).items():
            yield place, key
            yield from _strings(part, f"{place}.{key}")
    elif isinstance(value, list | tuple):
        for part in cast("list[Any]", value):
            yield from _strings(part, f"{place}[...]")


class _Head(Struct):
    schema: Any = None


_OPEN = ("options", "dataset_options", "recipe", "trainer")  # of a cell, whatever their owners say
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
# Without an escape and without these first bytes, a text in UTF-8 has no unfit character in any string.
_MARKS = (b"\\", b"\x7f", b"\xc2", b"\xe2")
# Typed decoding in C: a board of 10,000 records is read in seconds.
_HEAD = msgspec.json.Decoder(_Head)
_RECORD = msgspec.json.Decoder(Record)
_FACTS = attrgetter(*Condition.__struct_fields__)
