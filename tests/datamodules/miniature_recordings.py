"""Tiny sets of recordings in the published layouts: sensors, skeletons, voices, faces."""

import csv
from pathlib import Path

import numpy as np
from scipy.io import savemat


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
    """Transcripts, features and row numbers; the last third of the videos is test."""
    folder = folder / "MOSI"
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    transcripts: list[tuple[str, str, str, str]] = []
    index: dict[str, list[int]] = {"train": [], "test": []}
    for video in range(videos):
        for utterance in range(1, 6):
            label = int(draw.integers(2))
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
