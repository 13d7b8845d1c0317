"""Emotions acted by people never seen or heard in training: a face and a voice."""

from __future__ import annotations

import csv
import re
import wave
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from datamodules.base import SPLITS, DataModule, Split, SplitName
from datamodules.registry import register
from datamodules.rows.fixed_order import fixed_order, split_by_class
from datamodules.rows.standardise import moments, standardise
from datamodules.sources.folders import find_data
from datamodules.sources.fsdd import log_mel, parse_wave
from datamodules.sources.image_table import ImageFiles, ImageTable, Side
from datamodules.spec import Modality, Task

CLIPS = 7442
EMOTIONS = {"NEU": "neutral", "HAP": "happy", "SAD": "sad", "FEA": "fear", "DIS": "disgust", "ANG": "anger"}
RATE, WINDOW, HOP = 16_000, 512, 400  # a frame every 25 ms
FRAMES, BANDS = 112, 32  # 2.8 s; most clips are 2 to 3 s
SHARES = {"train": 0.7, "val": 0.1, "test": 0.2}  # of the actors
HELD_OUT = 0.1  # of the published training clips
_NAME = re.compile(r"(?P<actor>\d{4})_[A-Z]{3}_(?P<emotion>[A-Z]{3})_[A-Z]{2}")


class Clip(NamedTuple):
    """What the name of a clip says, and the picture that is shown of it."""

    stem: str
    actor: int
    emotion: int
    frame: str


@register("crema_d")
class CremaD(DataModule):
    """CREMA-D: 7,442 clips of 91 actors who say a sentence in one of six emotions; a frame of the face and the voice.

    In `folder`: `AudioWAV/CLIP.wav` (16 kHz) and the frames `Image-01-FPS/CLIP/*.jpg`, of which the middle one is
    shown. By default actors are kept apart: 70 % train, 10 % validate, 20 % test, fixed. The usual split of the
    literature (`train.csv` and `test.csv`, a clip and its emotion a line) has the same actors on both sides; it is read
    with `split = "published"`, and a tenth of its training clips is validation.

    Args:
        folder: Absolute or below POLYMODAL_DATA.
        split: By actors, or as published.
        image_size: Side of the frame, in pixels.
    """

    version = "1"
    licence = "Open Database License (ODbL) 1.0"
    citation = (
        "H. Cao et al., CREMA-D: Crowd-sourced Emotional Multimodal Actors Dataset, IEEE Transactions on Affective "
        "Computing 5 (2014); split in csv files: X. Peng et al., CVPR (2022)."
    )
    source = "folder: CREMA-D, with AudioWAV and Image-01-FPS"

    def __init__(
        self,
        *,
        folder: str = "CREMA-D",
        split: Literal["actors", "published"] = "actors",
        image_size: Side = 64,
    ) -> None:
        super().__init__()
        self.folder = folder
        self.split = split
        self.image_size = image_size

    @property
    def suffix(self) -> str:
        return "" if self.split == "actors" else "[published]"

    def describe(self) -> Task:
        size = self.image_size
        modalities = (Modality("face", "image", (3, size, size)), Modality("voice", "sequence", (FRAMES, BANDS)))
        names = tuple(EMOTIONS.values())
        return Task("crema_d", self.version, modalities, "multiclass", len(names), class_names=names)

    @property
    def notes(self) -> tuple[str, ...]:
        found = len(self._clips)
        notes = () if found == CLIPS else (f"crema_d: expected {CLIPS} clips, the folder has {found}",)
        shared = "crema_d: the published split has clips of the same actors in training and test"
        return notes if self.split == "actors" else (*notes, shared)

    def load(self) -> dict[SplitName, Split]:
        clips, rows = self._clips, self._rows()
        table = ImageTable(ImageFiles(self._path, [clip.frame for clip in clips]), self.image_size)
        spectra = np.stack([read_voice(self._path / "AudioWAV" / f"{clip.stem}.wav") for clip in clips])
        voice = standardise(spectra, *moments(spectra[rows["train"]].reshape(-1, BANDS)))
        emotion, actor = (torch.tensor([getattr(clip, key) for clip in clips]) for key in ("emotion", "actor"))
        splits: dict[SplitName, Split] = {}
        for name, own in rows.items():
            index = torch.from_numpy(own)
            inputs = {"face": table.rows(index), "voice": torch.from_numpy(voice[own])}
            group = actor[index] if self.split == "actors" else None
            splits[name] = Split(inputs, emotion[index], group=group)
        return splits

    @cached_property
    def _path(self) -> Path:
        return find_data(self.folder, "folder")

    @cached_property
    def _clips(self) -> list[Clip]:
        return list_clips(self._path)

    def _rows(self) -> dict[SplitName, NDArray[np.int64]]:
        rows: dict[SplitName, NDArray[np.int64]]
        if self.split == "actors":
            actor = np.array([clip.actor for clip in self._clips])
            order = fixed_order(np.unique(actor), "crema_d/actors")
            cuts = np.cumsum([max(1, round(SHARES[name] * len(order))) for name in ("test", "val")])
            parts = dict(zip(("test", "val", "train"), np.split(order, cuts), strict=True))
            rows = {name: np.flatnonzero(np.isin(actor, parts[name])) for name in SPLITS}
        else:
            train, test = (read_list(self._path / f"{part}.csv", self._clips) for part in ("train", "test"))
            emotion = np.array([self._clips[i].emotion for i in train])
            val, kept = split_by_class(emotion, (HELD_OUT, 1 - HELD_OUT), "crema_d")
            rows = {"train": train[kept], "val": train[val], "test": test}
        for name, own in rows.items():
            if not len(own):
                raise ValueError(f"{self._path}: every split must have clips, and {name} has none")
        return rows


def list_clips(folder: Path) -> list[Clip]:
    """The clips that have a voice and a face, by name; one without its partner is named."""
    voices = {path.stem for path in (folder / "AudioWAV").glob("*.wav")}
    faces = {path.name for path in (folder / "Image-01-FPS").glob("*") if path.is_dir()}
    for kind, found in (("AudioWAV/CLIP.wav", voices), ("Image-01-FPS/CLIP/*.jpg", faces)):
        if not found:
            raise FileNotFoundError(f"there are no {kind} in {folder}: put the files of CREMA-D there")
    if alone := sorted(voices ^ faces):
        has, lacks = ("AudioWAV", "Image-01-FPS") if alone[0] in voices else ("Image-01-FPS", "AudioWAV")
        raise FileNotFoundError(f"{folder / has / alone[0]} has no partner in {folder / lacks}: add it, or remove both")
    return [_clip(folder, stem) for stem in sorted(voices)]


def _clip(folder: Path, stem: str) -> Clip:
    match = _NAME.fullmatch(stem)
    if match is None or match["emotion"] not in EMOTIONS:
        raise ValueError(f"clips in {folder} must be named ACTOR_SENTENCE_EMOTION_LEVEL, got {stem}")
    frames = sorted(path.name for path in (folder / "Image-01-FPS" / stem).glob("*.jpg"))
    if not frames:
        raise FileNotFoundError(f"there are no frames *.jpg in {folder / 'Image-01-FPS' / stem}: extract them again")
    frame = f"Image-01-FPS/{stem}/{frames[len(frames) // 2]}"
    return Clip(stem, int(match["actor"]), list(EMOTIONS).index(match["emotion"]), frame)


def read_list(file: Path, clips: list[Clip]) -> NDArray[np.int64]:
    """The clips that a published list names, checked against the emotion in their names."""
    if not file.is_file():
        raise FileNotFoundError(f'there is no {file}: put the published list there, or use split = "actors"')
    position = {clip.stem: i for i, clip in enumerate(clips)}
    found = []
    with file.open(newline="", encoding="utf-8-sig", errors="replace") as lines:
        for number, row in enumerate(csv.reader(lines), 1):
            if len(row) != 2 or row[0] not in position:
                raise ValueError(f"{file}, line {number}: must be a clip of the folder and its emotion, got {row}")
            if row[1] != list(EMOTIONS)[clips[position[row[0]]].emotion]:
                raise ValueError(f"{file}, line {number}: {row[0]} is not {row[1]} by its name")
            found.append(position[row[0]])
    return np.array(found, dtype=np.int64)


def read_voice(path: Path) -> NDArray[np.float32]:
    """`[FRAMES, BANDS]` log-mel energies."""
    try:
        return log_mel(parse_wave(path.read_bytes(), RATE), BANDS, FRAMES, HOP, RATE, WINDOW)
    except (ValueError, EOFError, wave.Error) as error:
        raise ValueError(f"{path} is not a recording as published (damaged?): {error}") from None
