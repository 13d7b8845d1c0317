"""VQA-v2: open questions about COCO images, ten human answers each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from datamodules.base import SplitName
from datamodules.bases.image_text import ImageText, ImageTextRows, check_text, read_json
from datamodules.options import Count
from datamodules.registry import register
from datamodules.rows.fixed_order import fixed_order
from datamodules.sources.folders import find_data
from datamodules.sources.image_table import ImageFiles, Side
from datamodules.sources.vqa_answers import PEOPLE, answer_scores, normalise
from datamodules.spec import Task

HELD_OUT = 0.1  # of the images of train2014: they choose the epoch
ORIGIN = "the files of visualqa.org (VQA v2.0)"
TYPES = {"yes/no": "yes_no", "number": "number", "other": "other"}


class Question(NamedTuple):
    """One question, its image, the answers it accepts with their scores, the majority's answer, and its type."""

    text: str
    image: int
    scores: dict[str, float]
    majority: str
    kind: str


class _Parsed(NamedTuple):
    """Every image once (part and id), the answers that can be given, and the rows."""

    images: list[tuple[str, int]]
    answers: tuple[str, ...]
    rows: dict[SplitName, ImageTextRows]


@register("vqa2")
class Vqa2(ImageText):
    """VQA-v2: 444,000 training and 214,000 test questions about COCO images, 3,129 answers, the official accuracy.

    Below POLYMODAL_DATA, in `folder`: `v2_OpenEnded_mscoco_{train,val}2014_questions.json`,
    `v2_mscoco_{train,val}2014_annotations.json`, and the images `{train,val}2014/COCO_{train,val}2014_*.jpg`, there or
    in `images`.

    The test split is val2014: the answers of the public test are not public. Validation is a tenth of the images of
    train2014, fixed, with all their questions. The score of an answer is its official accuracy, after the official
    spelling; question types are scored on their own too.

    The vocabulary is made of training answers alone. The usual one of the same size also counts those of val2014, which
    are the test's here; a question whose answers are not in the vocabulary counts as wrong.

    Args:
        folder: Absolute or below POLYMODAL_DATA.
        answers: How many of the training questions' majority answers can be given, the most frequent.
        image_size, length, min_count: As of every `ImageText`.
    """

    version = "1"
    text = "question"
    licence = "questions and answers CC BY 4.0; COCO images: terms of Flickr"
    citation = (
        "Y. Goyal, T. Khot, D. Summers-Stay, D. Batra and D. Parikh, Making the V in VQA matter, CVPR (2017); "
        "T.-Y. Lin et al., Microsoft COCO, ECCV (2014)."
    )
    source = "folder: vqa2, in the published layout"

    def __init__(
        self,
        *,
        folder: str = "vqa2",
        answers: Annotated[int, Meta(ge=2)] = 3129,
        image_size: Side = 64,
        length: Count = 14,
        min_count: Count = 1,
    ) -> None:
        super().__init__(image_size=image_size, length=length, min_count=min_count)
        self.folder = folder
        self.answers = answers

    def describe(self) -> Task:
        names = self._parsed.answers
        version = f"{self.version}-{self.content()}"
        return Task("vqa2", version, self.modalities(), "answers", len(names), class_names=names)

    def open_images(self) -> ImageFiles:
        above = {part: "" if (self._path / f"{part}2014").is_dir() else "images/" for part in ("train", "val")}
        names = [f"{above[part]}{part}2014/COCO_{part}2014_{image:012d}.jpg" for part, image in self._parsed.images]
        return ImageFiles(self._path, names)

    def read_rows(self) -> dict[SplitName, ImageTextRows]:
        return self._parsed.rows

    @cached_property
    def _path(self) -> Path:
        return find_data(self.folder, "folder")

    @cached_property
    def _parsed(self) -> _Parsed:
        """What is kept of the files: some hundred megabytes of the gigabytes they are as Python objects."""
        train, test = (read_questions(self._path, part) for part in ("train", "val"))
        ids = fixed_order(_ids(train), "vqa2")
        held_out = set(ids[: max(1, round(HELD_OUT * len(ids)))].tolist())
        split: dict[SplitName, list[Question]] = {
            "train": [question for question in train if question.image not in held_out],
            "val": [question for question in train if question.image in held_out],
            "test": test,
        }
        images = [(part, image) for part, own in (("train", train), ("val", test)) for image in _ids(own)]
        counts = Counter(question.majority for question in split["train"])
        answers = tuple(sorted(counts, key=lambda answer: (-counts[answer], answer))[: self.answers])
        position = {image: i for i, image in enumerate(images)}
        number = {answer: i for i, answer in enumerate(answers)}
        rows: dict[SplitName, ImageTextRows] = {}
        for name, own in split.items():
            part = "val" if name == "test" else "train"
            rows[name] = ImageTextRows(
                [question.text for question in own],
                torch.tensor([position[part, question.image] for question in own]),
                _targets([question.scores for question in own], number),
                {short: torch.tensor([q.kind == kind for q in own]) for kind, short in TYPES.items()},
            )
        return _Parsed(images, answers, rows)


def _ids(questions: Sequence[Question]) -> list[int]:
    return sorted({question.image for question in questions})


def read_questions(folder: Path, part: str) -> list[Question]:
    """The questions of `train` or `val`, in the order of the file, with their answers."""
    questions = read_json(folder / f"v2_OpenEnded_mscoco_{part}2014_questions.json", "questions", ORIGIN)
    annotations = read_json(folder / f"v2_mscoco_{part}2014_annotations.json", "annotations", ORIGIN)
    by_question = {annotation.get("question_id"): annotation for annotation in annotations}
    return [_question(raw, by_question, f"{folder}, {part}2014, row {row}") for row, raw in enumerate(questions, 1)]


def _question(raw: Any, annotations: dict[Any, Any], where: str) -> Question:
    try:
        where = f"{where}, question {raw['question_id']}"
        annotation = annotations[raw["question_id"]]
        answers = [answer["answer"] for answer in annotation["answers"]]
        kind, majority, image = annotation["answer_type"], annotation["multiple_choice_answer"], raw["image_id"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{where}: must be as published, an annotation per question, and has no {error}") from None
    if len(answers) != PEOPLE:
        raise ValueError(f"{where}: there must be {PEOPLE} answers, got {len(answers)}")
    if kind not in TYPES:
        raise ValueError(f"{where}: answer_type must be one of {', '.join(TYPES)}, got {kind!r}")
    return Question(
        check_text(raw.get("question"), where), int(image), answer_scores(answers), normalise(majority), kind
    )


def _targets(scores: Sequence[dict[str, float]], number: dict[str, int]) -> Tensor:
    """`[N, 2, K]`: ids and scores of each question's right answers, those that can be given."""
    right = [[(number[answer], score) for answer, score in row.items() if answer in number] for row in scores]
    target = np.zeros((len(scores), 2, max(1, *(len(row) for row in right))), dtype=np.float32)
    for i, row in enumerate(right):
        target[i, :, : len(row)] = np.array(row).reshape(-1, 2).T
    return torch.from_numpy(target)
