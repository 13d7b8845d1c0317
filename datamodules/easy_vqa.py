"""easy-VQA: questions about a coloured shape, each answerable only by looking at question and image together."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from functools import cache
from typing import Annotated, NamedTuple

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from PIL import Image

from datamodules.base import DataModule, Gathered, Split, SplitName
from datamodules.registry import register
from datamodules.rows.fixed_order import fixed_order
from datamodules.sources.wheels import EASY_VQA
from datamodules.spec import Modality, Task

COLOURS = ("black", "blue", "brown", "gray", "green", "red", "teal", "yellow")
SHAPES = ("circle", "rectangle", "triangle")
ANSWERS = tuple(sorted((*COLOURS, *SHAPES, "no", "yes")))
# Token ids are positions; 0 is padding. All 107 questions are made of these words, in training and test alike.
_OTHERS = ("a", "color", "contain", "does", "image", "in", "is", "no", "not", "of")
_OTHERS += ("present", "shape", "the", "there", "what")
WORDS = ("", *sorted((*COLOURS, *SHAPES, *_OTHERS)))
LENGTH = 9
SIZE = 64
TRAIN_IMAGES, TEST_IMAGES = 4000, 1000
VALIDATION_IMAGES = 400


class Questions(NamedTuple):
    """`[N, LENGTH]` token ids, `[N]` answers and `[N]` positions of images."""

    tokens: NDArray[np.int64]
    answer: NDArray[np.int64]
    image: NDArray[np.int64]


@register("easy_vqa")
class EasyVqa(DataModule):
    """easy-VQA: 64x64 images of a coloured shape and questions in words; 48,248 questions, 13 answers.

    Pixels are `byte / 128 - 1`: around zero a conv net learns shapes in a fraction of the steps it needs on [0, 1],
    where most of every image is near 1. Test is the wheel's own. Validation is 400 of the 4,000 training images, the
    first in `fixed_order(range(4000), "easy_vqa")`, with all their questions: no image is in two splits.

    Args:
        part: Share of the images of every split that is kept, with all their questions; the first in a fixed order.
    """

    version = "1"
    sha256 = "e22d15ed179ce4075fd07297823610485fa0e2341a727bfbd2013199c816a3c9"
    licence = "MIT"
    citation = "V. Zhou, easy-VQA (2019)."
    source = f"wheel {EASY_VQA.requirement}"
    wheels = (EASY_VQA,)

    def __init__(self, *, part: Annotated[float, Meta(gt=0, le=1)] = 1.0) -> None:
        super().__init__()
        self.part = part

    def describe(self) -> Task:
        modalities = (
            Modality("image", "image", (3, SIZE, SIZE), range=(-1.0, 127 / 128)),
            Modality("question", "text", (LENGTH,), vocabulary=len(WORDS)),
        )
        return Task("easy_vqa", self.version, modalities, "multiclass", len(ANSWERS), class_names=ANSWERS)

    def words(self, modality: str) -> tuple[str, ...]:
        return WORDS if modality == "question" else ()

    def spell(self, modality: str, value: torch.Tensor) -> str:
        return super().spell(modality, value) + "?" if modality == "question" else ""

    def load(self) -> dict[SplitName, Split]:
        images, train, test = _read()
        held_out = np.isin(train.image, fixed_order(range(TRAIN_IMAGES), "easy_vqa")[:VALIDATION_IMAGES])
        return {
            "train": _make_split(images, _part(Questions(*(x[~held_out] for x in train)), self.part)),
            "val": _make_split(images, _part(Questions(*(x[held_out] for x in train)), self.part)),
            "test": _make_split(images, _part(test, self.part)),
        }

    def places(self, split: SplitName) -> dict[str, torch.Tensor]:
        image = self.splits[split].inputs["image"]
        assert isinstance(image, Gathered)
        corners = image.values[:, :, :: SIZE - 1, :: SIZE - 1].flatten(2).int()
        background = corners.median(dim=2).values[:, :, None, None]  # the same all over an image
        shape = (image.values.int() - background).abs().sum(dim=1) > 60
        return {"image": shape[image.index]}


def parse_questions(content: bytes) -> Questions:
    """Questions out of a JSON list of [question, answer, image]."""
    rows = json.loads(content)
    word, answer = ({name: i for i, name in enumerate(names)} for names in (WORDS, ANSWERS))
    tokens = np.zeros((len(rows), LENGTH), dtype=np.int64)
    for row, (question, _, _) in enumerate(rows):
        ids = [word[name] for name in question.lower().rstrip("?").split()]
        tokens[row, : len(ids)] = ids
    return Questions(tokens, np.array([answer[row[1]] for row in rows]), np.array([row[2] for row in rows]))


def parse_images(files: Iterable[bytes]) -> NDArray[np.uint8]:
    """`[N, 3, SIZE, SIZE]` out of PNG files."""
    images = [np.asarray(Image.open(io.BytesIO(file), formats=["PNG"]).convert("RGB")) for file in files]
    return np.stack(images).transpose(0, 3, 1, 2).copy()


@cache
def _read() -> tuple[torch.Tensor, Questions, Questions]:
    """One table of all images (training first), and the questions with positions in it."""
    parts = {"train": TRAIN_IMAGES, "test": TEST_IMAGES}
    images = [f"easy_vqa/data/{part}/images/{i}.png" for part, size in parts.items() for i in range(size)]
    questions = [f"easy_vqa/data/{part}/questions.json" for part in parts]
    files = EASY_VQA.read([*images, *questions], "easy_vqa")
    train, test = (parse_questions(files[name]) for name in questions)
    pixels = parse_images(files[name] for name in images)
    table = torch.from_numpy((pixels.astype(np.int16) - 128).astype(np.int8))
    return table, train, test._replace(image=test.image + TRAIN_IMAGES)


def _part(questions: Questions, share: float) -> Questions:
    """The questions about a share of the images."""
    images = fixed_order(np.unique(questions.image), "easy_vqa/part")
    among = np.isin(questions.image, images[: max(1, round(share * len(images)))])
    return Questions(*(x[among] for x in questions))


def _make_split(images: torch.Tensor, questions: Questions) -> Split:
    # Rows of one image are neighbours in the file: another order, or a batch of test rows would show few images.
    order = fixed_order(range(len(questions.answer)), "easy_vqa/rows")
    tokens, answer, image = (torch.from_numpy(x[order]) for x in questions)
    return Split({"image": Gathered(images, image, scale=1 / 128), "question": tokens}, answer, group=image)
