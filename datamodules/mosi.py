"""Sentiment of what people say about films: words and voice, and the face if asked for."""

from __future__ import annotations

import csv
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from datamodules.base import DataModule, Split, SplitName
from datamodules.options import Count
from datamodules.registry import register
from datamodules.rows.as_recorded import Original
from datamodules.rows.fixed_order import Integers, split_by_class
from datamodules.rows.sources import relative_to_source
from datamodules.rows.standardise import standardise_by
from datamodules.rows.tfidf import TfIdf, learn_tfidf
from datamodules.rows.words import Vocabulary, build_vocabulary, split_words
from datamodules.sources.folders import published_folder
from datamodules.spec import Modality, Task

ROWS = {"train": 1447, "test": 752}
FEATURES = {"audio": 73, "video": 100}
HELD_OUT = 0.2  # of the published training rows, whole videos: they choose the epoch
TEXT_LENGTH = 10.0  # of the vector of an utterance, about that of its 73 standardised acoustic features


class _Table(NamedTuple):
    """Every utterance, the published training rows first."""

    texts: list[str]
    video: list[str]
    label: Integers
    features: dict[str, NDArray[np.float64]]
    published: NDArray[np.str_]


@register("mosi")
class Mosi(DataModule):
    """CMU-MOSI: 2,199 utterances of 93 videos, transcribed words and 73 acoustic features; positive or negative.

    Read from `MOSI` below `POLYMODAL_DATA`: `transcripts.csv`, `audio_{train,test}0.csv`, `video_{train,test}0.csv`,
    `index_{train,test}.csv`. The published split keeps videos apart (62 and 31); a fifth of the training rows, whole
    videos, is validation. The voice is relative to its mean in the video: half of what it says is who speaks, and a
    speaker likes the film or not, so that a model learns the films of the training videos by heart.

    Args:
        text: `tfidf`: the words of an utterance as one vector, each weighed by its rarity in the training rows;
            `tokens`: words in order, whose encoder has 1,200 utterances to learn a language from.
        video: Add the 100 features of the face. They were learnt with the labels of the training rows (a linear probe
            has .92 there and .52 on test), so whatever trusts them fails on test.
        length: Of `tokens`: words of an utterance that are kept; 95 % have fewer than 28.
        min_count: How often a word must be in the training rows to be learnt.
    """

    version = "3"
    sha256 = "e2abe31001063ed0b8c828f8120f221c6e604eb53fb1fddc75e6895bbc016a49"
    licence = "free for research; see the dataset's page"
    citation = (
        "A. Zadeh, R. Zellers, E. Pincus and L.-P. Morency, MOSI: Multimodal Corpus of Sentiment Intensity and "
        "Subjectivity Analysis in Online Opinion Videos, IEEE Intelligent Systems 31 (2016); features: S. Poria et "
        "al., Context-Dependent Sentiment Analysis in User-Generated Videos, ACL (2017)."
    )
    source = "folder: MOSI/*.csv"
    scores: ClassVar[dict[str, float]] = {
        "probe[text]": 0.701,
        "probe[audio]": 0.477,
        "probe[text + audio]": 0.699,
        "unimodal[text]": 0.672,
        "unimodal[audio]": 0.504,
        "linear": 0.678,
        "late": 0.667,
        "concat": 0.677,
    }
    measured = (
        "2026-11-18, test accuracy. Probes: polymodal study probes mosi. Others, mean of 3 seeds: polymodal run real "
        "--datasets mosi --methods concat,linear,late,unimodal --conditions none"
    )

    def __init__(
        self,
        *,
        text: Literal["tfidf", "tokens"] = "tfidf",
        video: bool = False,
        length: Count = 28,
        min_count: Count = 2,
    ) -> None:
        super().__init__()
        self.text = text
        self.video = video
        self.length = length
        self.min_count = min_count

    @property
    def suffix(self) -> str:
        parts = [self.text] * (self.text != "tfidf") + ["video"] * self.video
        return f"[{','.join(parts)}]" if parts else ""

    @property
    def kinds(self) -> tuple[Literal["audio", "video"], ...]:
        """The modalities that are feature vectors."""
        return ("audio", "video") if self.video else ("audio",)

    def describe(self) -> Task:
        if self.text == "tfidf":
            text = Modality("text", "vector", (len(self._tfidf.words),))
        else:
            vocabulary = self._vocabulary
            text = Modality("text", "text", (self.length,), vocabulary=len(vocabulary.words), known=vocabulary.known)
        vectors = [Modality(kind, "vector", (FEATURES[kind],)) for kind in self.kinds]
        names = ("negative", "positive")
        return Task("mosi", self.version, (text, *vectors), "multiclass", 2, class_names=names)

    @property
    def notes(self) -> tuple[str, ...]:
        found = {part: int((self._table.published == part).sum()) for part in ROWS}
        notes = () if found == ROWS else (f"mosi: expected {ROWS} utterances, the folder has {found}",)
        if not self.video:
            return notes
        return (
            *notes,
            "mosi: the video features were learnt with the training labels: .92 on training rows, .52 on test",
        )

    def words(self, modality: str) -> tuple[str, ...]:
        return self._vocabulary.words if modality == "text" and self.text == "tokens" else ()

    def spell(self, modality: str, value: torch.Tensor) -> str:
        if modality != "text" or self.text == "tokens":
            return super().spell(modality, value)
        heaviest = value.argsort(descending=True, stable=True)[: int((value > 0).sum())]
        return " ".join(self._tfidf.words[i] for i in heaviest.tolist())

    def load(self) -> dict[SplitName, Split]:
        table, rows = self._table, self._rows
        source = np.unique(table.video, return_inverse=True)[1]
        measured = {**table.features, "audio": relative_to_source(table.features["audio"], source)}
        features = {kind: standardise_by(rows["train"], measured[kind]) for kind in self.kinds}
        splits: dict[SplitName, Split] = {}
        for name, own in rows.items():
            said = self._words[name]
            if self.text == "tfidf":
                text = torch.from_numpy(self._tfidf.encode(said, TEXT_LENGTH))
            else:
                text = self._vocabulary.encode(said, self.length)
            vectors = {kind: torch.from_numpy(x[own]) for kind, x in features.items()}
            target, group = torch.from_numpy(table.label[own]), torch.from_numpy(source[own])
            splits[name] = Split({"text": text, **vectors}, target, group=group)
        return splits

    def as_recorded(self, split: SplitName, row: int) -> dict[str, Original]:
        return {"text": self._table.texts[self._rows[split][row]].lower()}

    @cached_property
    def _table(self) -> _Table:
        return read_folder(published_folder("mosi", ("MOSI", "mosi")), self.kinds)

    @cached_property
    def _rows(self) -> dict[SplitName, Integers]:
        table = self._table
        train, test = (np.flatnonzero(table.published == part) for part in ("train", "test"))
        source = np.unique(table.video, return_inverse=True)[1]
        if shared := sorted({table.video[i] for i in train} & {table.video[i] for i in test}):
            raise ValueError(f"mosi: a video must be in one split, {shared[0]} is in train and test: check index_*.csv")
        val, kept = split_by_class(table.label[train], (HELD_OUT, 1 - HELD_OUT), "mosi", source[train])
        return {"train": train[kept], "val": train[val], "test": test}

    @cached_property
    def _words(self) -> dict[SplitName, list[list[str]]]:
        return {name: [split_words(self._table.texts[i]) for i in own] for name, own in self._rows.items()}

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        words = self._words
        return build_vocabulary(words["train"], [*words["val"], *words["test"]], self.min_count)

    @cached_property
    def _tfidf(self) -> TfIdf:
        return learn_tfidf(self._words["train"], self.min_count)


def read_folder(folder: Path, kinds: tuple[Literal["audio", "video"], ...]) -> _Table:
    """The utterances of both parts; labels must agree in all files."""
    transcripts = _read_csv(folder / "transcripts.csv", 4)
    texts: list[str] = []
    video: list[str] = []
    label: list[int] = []
    published: list[str] = []
    features: dict[str, list[NDArray[np.float64]]] = {kind: [] for kind in kinds}
    for part in ROWS:
        index = [_position(cell, len(transcripts), folder / f"index_{part}.csv", line)
                 for line, (cell,) in enumerate(_read_csv(folder / f"index_{part}.csv", 1), start=1)]  # fmt: skip
        own = [_label(transcripts[i][3], folder / "transcripts.csv", i + 1) for i in index]
        for kind in kinds:
            path = folder / f"{kind}_{part}0.csv"
            values = _numbers(path, FEATURES[kind] + 1)
            if len(values) != len(index):
                raise ValueError(f"{path} has {len(values)} rows, index_{part}.csv {len(index)}: copy both again")
            if wrong := np.flatnonzero(values[:, -1] != own).tolist():
                raise ValueError(f"{path}, line {wrong[0] + 1}: its label is not the transcript's: copy both again")
            features[kind].append(values[:, :-1])
        texts += [transcripts[i][1] for i in index]
        video += [transcripts[i][0].rpartition("_")[0] for i in index]
        label += own
        published += [part] * len(index)
    stacked = {kind: np.concatenate(blocks) for kind, blocks in features.items()}
    return _Table(texts, video, np.array(label), stacked, np.array(published))


def _read_csv(path: Path, columns: int) -> list[list[str]]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}: put the file of CMU-MOSI there")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a CSV file (damaged?): {error}: copy it again") from None
    for line, row in enumerate(rows, start=1):
        if len(row) != columns:
            raise ValueError(f"{path}, line {line}: there must be {columns} columns, got {len(row)}")
    if not rows:
        raise ValueError(f"{path} is empty: copy it again")
    return rows


def _numbers(path: Path, columns: int) -> NDArray[np.float64]:
    rows = _read_csv(path, columns)
    try:
        values = np.array(rows, dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{path} must hold numbers: {error}") from None
    if not np.isfinite(values).all():
        line = int((~np.isfinite(values)).any(axis=1).argmax()) + 1
        raise ValueError(f"{path}, line {line}: values must be finite")
    return values


def _position(cell: str, rows: int, path: Path, line: int) -> int:
    if not cell.isdecimal() or int(cell) >= rows:
        raise ValueError(f"{path}, line {line}: must be a row of transcripts.csv, 0 to {rows - 1}, got {cell!r}")
    return int(cell)


def _label(cell: str, path: Path, line: int) -> int:
    if cell not in ("0", "1"):
        raise ValueError(f"{path}, line {line}: the label must be 0 or 1, got {cell!r}")
    return int(cell)
