"""Tiny sets of recordings in the published layouts: sensors, skeletons, voices, faces."""

import csv
import pickle
import wave
from pathlib import Path

import numpy as np
from scipy.io import savemat

from tests.datamodules.miniatures import paint


def make_utd_mhad(folder: Path, actions: int = 4, trials: int = 1) -> Path:
    """`Inertial` and `Skeleton` of eight subjects; an action is a frequency of both."""
    folder = folder / "UTD-MHAD"
    draw = np.random.default_rng(0)
    for kind in ("Inertial", "Skeleton"):
        (folder / kind).mkdir(parents=True)
    (folder / "Skeleton" / "Skeleton_joint_order.txt").write_text("1. head; 2. ...")
    for action in range(1, actions + 1):
        for subject in range(1, 9):
            for trial in range(1, trials + 1):
                stem, steps = f"a{action}_s{subject}_t{trial}", int(draw.integers(40, 60))
                wave = np.sin(action * np.linspace(0, 6, steps))[:, None] + 0.1 * draw.normal(size=(steps, 6))
                joints = draw.normal(size=(20, 3, 1)) + 0.3 * np.sin(action * np.linspace(0, 6, steps // 2))
                savemat(folder / "Inertial" / f"{stem}_inertial.mat", {"d_iner": wave})
                savemat(folder / "Skeleton" / f"{stem}_skeleton.mat", {"d_skel": joints}, do_compression=True)
    return folder


def make_mosi(folder: Path, videos: int = 12) -> Path:
    """Transcripts, features and row numbers; the last third of the videos is test, and each has both labels."""
    folder = folder / "MOSI"
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    transcripts: list[tuple[str, str, str, str]] = []
    index: dict[str, list[int]] = {"train": [], "test": []}
    for video in range(videos):
        first = int(draw.integers(2))
        for utterance in range(1, 6):
            label = (first + utterance) % 2
            words = f"THE FILM NUMBER{video} WAS {'GREAT' if label else 'AWFUL'}"
            index["test" if video >= 2 * videos / 3 else "train"].append(len(transcripts))
            transcripts.append((f"v_{video}_x_{utterance}", words, "93", str(label)))
    write_csv(folder / "transcripts.csv", transcripts)
    for part, rows in index.items():
        write_csv(folder / f"index_{part}.csv", [(row,) for row in rows])
        for kind, size in (("audio", 73), ("video", 100)):
            labels = [int(transcripts[row][3]) for row in rows]
            write_csv(folder / f"{kind}_{part}0.csv", [(*draw.normal(y, 1, size), y) for y in labels])
    return folder


def write_csv(path: Path, rows: list[tuple]) -> None:
    """Every cell in quotes, as the published files are."""
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)


def make_mmsa(path: Path, rows: dict[str, int] | None = None, aligned: bool = True) -> Path:
    """A pickle of MMSA: three parts, each a dictionary of arrays, lists and strings; five utterances a video."""
    draw = np.random.default_rng(0)
    content, first = {}, 0
    for part, size in (rows or {"train": 40, "valid": 15, "test": 20}).items():
        label = np.round(draw.uniform(-3, 3, size), 1).astype(np.float32)
        label[::7] = 0
        steps = {"text": 12, "audio": 12 if aligned else 30, "vision": 12 if aligned else 20}
        widths = {"text": 6, "audio": 5, "vision": 4}
        arrays = {k: draw.normal(label[:, None, None], 0.5, (size, steps[k], widths[k])).astype("f4") for k in widths}
        content[part] = {
            "raw_text": np.array([f"sentence {i}" for i in range(size)]),
            "id": [f"video{(first + i) // 5}$_${i % 5}" for i in range(size)],
            "annotations": ["Positive" if y > 0 else "Negative" for y in label],
            "classification_labels": np.sign(label).astype(np.float64),
            "regression_labels": label,
            "text_bert": np.ones((size, 3, 12)),
            **arrays,
        }
        if not aligned:
            for kind in ("audio", "vision"):
                lengths = draw.integers(5, steps[kind], size).tolist()
                for row, length in enumerate(lengths):
                    arrays[kind][row, length:] = 0
                content[part][f"{kind}_lengths"] = lengths
        first += 5 * (1 + size // 5)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, 4))
    return path


def make_crema_d(folder: Path, actors: int = 10) -> Path:
    """`AudioWAV` and `Image-01-FPS` of six emotions an actor, and the lists; an emotion is a colour and a pitch."""
    folder = folder / "CREMA-D"
    (folder / "AudioWAV").mkdir(parents=True)
    lists: dict[str, list[str]] = {"train": [], "test": []}
    for number in range(6 * actors):
        actor, emotion = 1001 + number // 6, ("NEU", "HAP", "SAD", "FEA", "DIS", "ANG")[number % 6]
        stem = f"{actor}_DFA_{emotion}_XX"
        for frame in range(1, 4):
            paint(folder / "Image-01-FPS" / stem / f"{frame:02d}.jpg", number)
        tone = 0.5 * np.sin(2 * np.pi * (300 + 300 * (number % 6) + actor % 50) * np.arange(16_000) / 16_000)
        with wave.open(str(folder / "AudioWAV" / f"{stem}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16_000)
            file.writeframes((tone * 32767).astype("<i2").tobytes())
        lists["test" if number % 5 == 4 else "train"].append(f"{stem},{emotion}\n")
    for part, lines in lists.items():
        (folder / f"{part}.csv").write_text("".join(lines), encoding="utf-8-sig")  # with a mark, as published
    return folder
