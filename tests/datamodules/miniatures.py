"""Tiny sets in the published layouts: VQA-v2, Karpathy's splits, an image folder with captions and labels.

An image is a bright square of one colour, on the left or on the right, so that captions and answers can be learnt.
"""

import csv
import json
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "white": (255, 255, 255)}
SIDES = ("left", "right")


def look(number: int) -> tuple[str, str]:
    """Colour and side of image `number`."""
    return list(COLOURS)[number % 4], SIDES[number // 4 % 2]


def paint(path: Path, number: int) -> None:
    """Write image `number`, a little different from every other one."""
    colour, side = look(number)
    pixels = np.full((24, 32, 3), 20 + number % 10, dtype=np.uint8)
    start = 3 if side == "left" else 19
    pixels[7 : 17 + number % 3, start : start + 10] = COLOURS[colour]
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, quality=95)


def captions(number: int) -> list[str]:
    """Five of image `number`."""
    colour, side = look(number)
    starts = ("A {} square on the {}.", "The {} box is at the {}", "a {} patch, {} half", "Look: {}, {}!", "{} {}")
    return [start.format(colour, side) for start in starts]


def make_karpathy(folder: Path, name: str, sizes: dict[str, int], below: str = "images") -> Path:
    """`dataset_<name>.json` and its images, `sizes` of each split; returns the folder of the corpus."""
    images, number = [], 0
    for split, size in sizes.items():
        for _ in range(size):
            entry = {"filename": f"{number}.jpg", "split": split, "imgid": number}
            entry["sentences"] = [{"raw": text, "tokens": text.split()} for text in captions(number)]
            if name == "coco":
                entry["filepath"] = "val2014" if split in ("val", "test", "restval") else "train2014"
            paint(folder / name / (entry.get("filepath") or below) / entry["filename"], number)
            images.append(entry)
            number += 1
    (folder / name / f"dataset_{name}.json").write_text(json.dumps({"images": images, "dataset": name}))
    return folder / name


def make_vqa2(folder: Path, train: int = 40, test: int = 16) -> Path:
    """The four files and the two folders of images; three questions an image."""
    folder = folder / "vqa2"
    for part, size, first in (("train", train, 0), ("val", test, 1000)):
        questions, annotations = [], []
        for number in range(first, first + size):
            paint(folder / f"{part}2014" / f"COCO_{part}2014_{number:012d}.jpg", number)
            colour, side = look(number)
            asked = [
                ("What color is the square?", "other", [colour] * 7 + [f"The {colour}", "bright", "bright"]),
                ("Is it on the left?", "yes/no", ["yes" if side == "left" else "no"] * 10),
                ("How many squares are there?", "number", ["one"] * 6 + ["1"] * 2 + ["2", "2"]),
            ]
            for i, (text, kind, answers) in enumerate(asked):
                key = {"question_id": 10 * number + i, "image_id": number}
                questions.append({**key, "question": text})
                people = [{"answer": a, "answer_id": j + 1, "answer_confidence": "yes"} for j, a in enumerate(answers)]
                annotations.append(
                    {**key, "answers": people, "answer_type": kind, "question_type": text.lower()[:8],
                     "multiple_choice_answer": answers[0]}
                )  # fmt: skip
        name = f"v2_OpenEnded_mscoco_{part}2014_questions.json"
        (folder / name).write_text(json.dumps({"questions": questions, "data_type": "mscoco"}))
        (folder / f"v2_mscoco_{part}2014_annotations.json").write_text(json.dumps({"annotations": annotations}))
    return folder


def make_image_folder(folder: Path, sizes: dict[str, int] | None = None) -> Path:
    """An image folder with a metadata.csv (file_name, text, label) in each split."""
    sizes = {"train": 48, "validation": 16, "test": 16} if sizes is None else sizes
    number = 0
    for split, size in sizes.items():
        rows = []
        for _ in range(size):
            paint(folder / split / f"{number}.png", number)
            rows.append((f"{number}.png", captions(number)[number % 5], look(number)[0]))
            number += 1
        with (folder / split / "metadata.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("file_name", "text", "label"), *rows])
    return folder
