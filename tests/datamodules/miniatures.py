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


def make_mm_imdb(folder: Path, sizes: dict[str, int] | None = None) -> Path:
    """`split.json`, and a poster and a description a film; the plot says what the poster shows."""
    folder = folder / "mmimdb"
    split, number = {}, 0
    for part, size in (sizes or {"train": 32, "dev": 8, "test": 12}).items():
        split[part] = [f"{number + i:07d}" for i in range(size)]
        for name in split[part]:
            colour, side = look(number)
            genres = [{"red": "Horror", "green": "Comedy", "blue": "Drama", "white": "News"}[colour]]
            genres += ["War"] if side == "left" else []
            paint(folder / "dataset" / f"{name}.jpeg", number)
            film = {"plot": captions(number)[:2], "genres": genres, "title": f"Film {number}", "year": 1999}
            (folder / "dataset" / f"{name}.json").write_text(json.dumps(film))
            number += 1
    (folder / "split.json").write_text(json.dumps(split))
    return folder


def make_hateful_memes(folder: Path, names: tuple[str, str, str] = ("train", "dev_seen", "test_seen")) -> Path:
    """Lines of JSON and `img`; a meme is hateful if its words name another colour than its image has."""
    folder, number = folder / "hateful_memes", 0
    for name, size in zip(names, (40, 12, 16), strict=True):
        lines = []
        for _ in range(size):
            paint(folder / "img" / f"{number:05d}.png", number)
            said = list(COLOURS)[(number + number // 4 % 2) % 4]
            label = int(said != look(number)[0])
            meme = {"id": number, "img": f"img/{number:05d}.png", "label": label, "text": f"this is {said}"}
            lines.append(json.dumps(meme))
            number += 1
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def make_food101(folder: Path) -> Path:
    """Images by part and dish, and the titles; one title has no word."""
    folder, number = folder / "food101", 0
    (folder / "texts").mkdir(parents=True)
    for part, size in (("train", 80), ("test", 16)):
        rows = []
        for _ in range(size):
            dish = f"{look(number)[0]}_pie"
            name = f"{dish}_{number}.jpg"
            paint(folder / "images" / part / dish / name, number)
            rows.append((name, "???" if number == 3 else f'"{dish}", recipe {number} | food', dish))
            number += 1
        with (folder / "texts" / f"{part}_titles.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    return folder


def make_av_mnist(folder: Path, train: int = 120, test: int = 30) -> Path:
    """Images in rows of 784, spectrograms of 112 by 112, labels."""
    folder, draw = folder / "avmnist", np.random.default_rng(0)
    for kind in ("image", "audio"):
        (folder / kind).mkdir(parents=True)
    for part, size in (("train", train), ("test", test)):
        digit = np.arange(size) % 10
        shapes = {"image": (size, 784), "audio": (size, 112, 112)}
        for kind, shape in shapes.items():
            level = digit.reshape(-1, *[1] * (len(shape) - 1)) * 20
            np.save(folder / kind / f"{part}_data.npy", (level + draw.uniform(0, 40, shape)).astype(np.float32))
        np.save(folder / f"{part}_labels.npy", digit)
    return folder


def make_nyud2(folder: Path, parts: tuple[str, ...] = ("train", "val", "test")) -> Path:
    """Pictures side by side: the coloured square on the left, a grey one on the right."""
    folder, number = folder / "nyud2_trainvaltest", 0
    for part in parts:
        for _ in range(24 if part == "train" else 8):
            colour, side = look(number)
            picture = np.zeros((24, 64, 3), dtype=np.uint8)
            picture[4:20, (2 if side == "left" else 18) : (14 if side == "left" else 30)] = COLOURS[colour]
            picture[4:20, 32 + (2 if side == "left" else 18) :][:, :12] = 60 + number
            path = folder / part / ("bedroom" if side == "left" else "kitchen") / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(path)
            number += 1
    return folder
