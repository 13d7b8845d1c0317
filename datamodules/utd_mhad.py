"""Actions by an inertial sensor and a skeleton, of people never seen in training."""

from __future__ import annotations

import re
from functools import cache, cached_property
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from datamodules.base import DataModule, Skeleton, Split, SplitName
from datamodules.options import Count
from datamodules.registry import register
from datamodules.rows.as_recorded import Original
from datamodules.rows.resample import resample
from datamodules.rows.standardise import moments, standardise
from datamodules.rows.summaries import STATISTICS, summarise
from datamodules.sources.folders import published_folder
from datamodules.sources.mat_file import read_mat
from datamodules.spec import Modality, Task

RECORDINGS = 861
SUBJECTS: dict[SplitName, tuple[int, ...]] = {"train": (1, 3, 5), "val": (7,), "test": (2, 4, 6, 8)}
JOINTS = 20
CHANNELS = {"inertial": 6, "skeleton": 3 * JOINTS}
THIRDS = 3  # of the time of a recording, each summarised
HIP = 3  # of the joints, the centre of the hips
# Head, shoulders and spine, then arms and legs, each from the body outwards.
BONES = (
    (0, 1), (1, 2), (2, 3), (1, 4), (4, 5), (5, 6), (6, 7), (1, 8), (8, 9), (9, 10), (10, 11),
    (3, 12), (12, 13), (13, 14), (14, 15), (3, 16), (16, 17), (17, 18), (18, 19),
)  # fmt: skip
_NAME = re.compile(r"a(?P<action>\d+)_s(?P<subject>\d+)_t(?P<trial>\d+)")
ACTIONS = (
    "swipe left", "swipe right", "wave", "clap", "throw", "arm cross", "basketball shoot", "draw x",
    "draw circle clockwise", "draw circle counter clockwise", "draw triangle", "bowling", "boxing", "baseball swing",
    "tennis swing", "arm curl", "tennis serve", "push", "knock", "catch", "pick up and throw", "jog", "walk",
    "sit to stand", "stand to sit", "lunge", "squat",
)  # fmt: skip


class Recording(NamedTuple):
    """What the name of a recording says, in the order of the rows."""

    subject: int
    action: int
    trial: int

    @property
    def stem(self) -> str:
        """How its files begin."""
        return f"a{self.action}_s{self.subject}_t{self.trial}"


@register("utd_mhad")
class UtdMhad(DataModule):
    """UTD-MHAD: 861 recordings of 27 actions by 8 people, a wrist or thigh sensor and a skeleton of 20 joints.

    Read from `UTD-MHAD/Inertial` and `UTD-MHAD/Skeleton` below `POLYMODAL_DATA`. The published protocol: odd people
    train, even people test; person 7 is taken from training to choose the epoch. Joints are relative to the mean place
    of the hips in the recording: where a person stands says nothing, that the hips sink says much.

    Args:
        features: `summaries`: mean, deviation, minimum and maximum of each channel in each third of the recording,
            which three people are enough to learn from; `frames`: both resampled to one length.
        inertial_length: Of `frames`: of acceleration and rotation (recorded: 107 to 326).
        skeleton_length: Of `frames`: of the skeleton (recorded: 41 to 125).
    """

    version = "2"
    sha256 = "29734e7ca73bd9f0bdd4e6f10135afd4ab1ac9ca12a1398087f6c124eb614667"
    licence = "free for research; see the dataset's page"
    citation = (
        "C. Chen, R. Jafari and N. Kehtarnavaz, UTD-MHAD: A Multimodal Dataset for Human Action Recognition Utilizing "
        "a Depth Camera and a Wearable Inertial Sensor, ICIP (2015)."
    )
    source = "folder: UTD-MHAD/Inertial and UTD-MHAD/Skeleton"
    scores: ClassVar[dict[str, float]] = {
        "probe[inertial]": 0.828,
        "probe[skeleton]": 0.779,
        "probe[inertial + skeleton]": 0.877,
        "unimodal[inertial]": 0.829,
        "unimodal[skeleton]": 0.788,
        "linear": 0.879,
        "boosting": 0.870,
        "late": 0.906,
        "concat": 0.912,
    }
    measured = (
        "2026-11-18, test accuracy. Probes: polymodal study probes utd_mhad. Others, mean of 3 seeds: polymodal run "
        "real --datasets utd_mhad --methods concat,linear,boosting,late,unimodal --conditions none"
    )

    def __init__(
        self,
        *,
        features: Literal["summaries", "frames"] = "summaries",
        inertial_length: Count = 96,
        skeleton_length: Count = 48,
    ) -> None:
        super().__init__()
        self.features = features
        self.lengths = {"inertial": inertial_length, "skeleton": skeleton_length}

    @property
    def suffix(self) -> str:
        return "" if self.features == "summaries" else f"[{self.features}]"

    def describe(self) -> Task:
        if self.features == "summaries":
            modalities = tuple(Modality(kind, "vector", (THIRDS * STATISTICS * c,)) for kind, c in CHANNELS.items())
        else:
            modalities = tuple(Modality(kind, "sequence", (self.lengths[kind], c)) for kind, c in CHANNELS.items())
        return Task("utd_mhad", self.version, modalities, "multiclass", len(ACTIONS), class_names=ACTIONS)

    @property
    def notes(self) -> tuple[str, ...]:
        found = len(list_recordings(self._folder))
        return () if found == RECORDINGS else (f"utd_mhad: expected {RECORDINGS} recordings, the folder has {found}",)

    def load(self) -> dict[SplitName, Split]:
        recordings = list_recordings(self._folder)
        subject = np.array([r.subject for r in recordings])
        rows: dict[SplitName, NDArray[np.int64]] = {name: _rows_of(recordings, name) for name in SUBJECTS}
        for name, own in rows.items():
            if not len(own):
                raise ValueError(f"{self._folder} must have recordings of subjects {SUBJECTS[name]}, and has none")
        inputs = {}
        for kind in CHANNELS:
            x = np.stack([self._features(recording, kind) for recording in recordings])
            inputs[kind] = torch.from_numpy(standardise(x, *self._moments(x[rows["train"]], kind)))
        action = np.array([r.action - 1 for r in recordings])
        return {
            name: Split(
                {kind: x[own] for kind, x in inputs.items()},
                torch.from_numpy(action[own]),
                group=torch.from_numpy(subject[own]),
            )
            for name, own in rows.items()
        }

    def as_recorded(self, split: SplitName, row: int) -> dict[str, Original]:
        recordings = list_recordings(self._folder)
        inertial, joints = read_recording(self._folder, recordings[_rows_of(recordings, split)[row]])
        body = Skeleton(torch.from_numpy(joints).view(-1, JOINTS, 3), BONES)
        # Rotation is in degrees a second, acceleration in g: each in its own unit, or one of them is a flat line.
        return {"inertial": torch.from_numpy(inertial / np.maximum(inertial.std(axis=0), 1e-9)), "skeleton": body}

    def skeleton(self, modality: str, value: torch.Tensor) -> Skeleton | None:
        if modality != "skeleton":
            return None
        mean, deviation = self._pose
        x = value.double() * deviation + mean
        if self.features == "summaries":
            x = x.view(THIRDS, STATISTICS, -1)[:, 0]  # the mean pose of each third
        return Skeleton(x.view(-1, JOINTS, 3), BONES)

    @cached_property
    def _pose(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and deviation of the training rows, which the skeletons were made relative to."""
        recordings = [r for r in list_recordings(self._folder) if r.subject in SUBJECTS["train"]]
        mean, deviation = self._moments(np.stack([self._features(r, "skeleton") for r in recordings]), "skeleton")
        return torch.from_numpy(mean), torch.from_numpy(deviation)

    def _features(self, recording: Recording, kind: str) -> NDArray[np.float64]:
        """`[features]` or `[T, channels]` of one modality of a recording, as measured."""
        frames = read_recording(self._folder, recording)[list(CHANNELS).index(kind)]
        if self.features == "summaries":
            return summarise(frames, THIRDS).reshape(-1)
        return resample(frames, self.lengths[kind])

    def _moments(self, train: NDArray[np.float64], kind: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean of each feature or channel in training rows, and its deviation."""
        mean, deviation = moments(train.reshape(-1, train.shape[-1]))
        if self.features == "frames" and kind == "skeleton":
            # One unit for all joints: in its own, the noise of a still one would be as large as a wave of the hand.
            return mean, moments((train - mean).reshape(-1, 1))[1]
        return mean, deviation

    @property
    def _folder(self) -> Path:
        return published_folder("utd_mhad", ("UTD-MHAD", "UTD_MHAD", "utd_mhad"))


def list_recordings(folder: Path) -> list[Recording]:
    """The recordings that have both files, sorted by person, action and trial; a file without its partner is named."""
    named = {kind: _stems(folder, kind) for kind in ("Inertial", "Skeleton")}
    for kind, other in (("Inertial", "Skeleton"), ("Skeleton", "Inertial")):
        if alone := sorted(set(named[kind]) - set(named[other])):
            missing = folder / other / f"{alone[0]}_{other.lower()}.mat"
            raise FileNotFoundError(
                f"{folder / kind / alone[0]}_{kind.lower()}.mat has no partner {missing}: copy it there, or remove both"
            )
    return sorted(named["Inertial"].values())


def _rows_of(recordings: list[Recording], split: SplitName) -> NDArray[np.int64]:
    return np.flatnonzero([r.subject in SUBJECTS[split] for r in recordings])


def _stems(folder: Path, kind: str) -> dict[str, Recording]:
    suffix = f"_{kind.lower()}.mat"
    found = {}
    for path in (folder / kind).glob("*.mat"):
        stem = path.name.removesuffix(suffix)
        match = _NAME.fullmatch(stem)
        if match is None or not 1 <= int(match["action"]) <= len(ACTIONS):
            raise ValueError(f"{path} must be named aA_sS_tT{suffix} with A from 1 to {len(ACTIONS)}")
        found[stem] = Recording(int(match["subject"]), int(match["action"]), int(match["trial"]))
    if not found:
        raise FileNotFoundError(
            f"there are no recordings aA_sS_tT{suffix} in {folder / kind}: unpack UTD-MHAD's {kind}.zip there"
        )
    return found


@cache
def read_recording(folder: Path, recording: Recording) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """`[T, 6]` of the sensor and `[T', 60]` of the joints."""
    path = folder / "Inertial" / f"{recording.stem}_inertial.mat"
    inertial = read_mat(path, "d_iner")
    if inertial.ndim != 2 or inertial.shape[1] != 6 or not len(inertial):
        raise ValueError(f"{path}: `d_iner` must be [T, 6], got {inertial.shape}: copy the file again")
    _check_finite(inertial, path)
    path = folder / "Skeleton" / f"{recording.stem}_skeleton.mat"
    skeleton = read_mat(path, "d_skel")
    if skeleton.ndim != 3 or skeleton.shape[:2] != (JOINTS, 3) or not skeleton.shape[2]:
        raise ValueError(f"{path}: `d_skel` must be [{JOINTS}, 3, T], got {skeleton.shape}: copy the file again")
    _check_finite(skeleton, path)
    centred = skeleton - skeleton[HIP].mean(axis=-1)[None, :, None]
    return inertial.astype(np.float64), centred.transpose(2, 0, 1).reshape(-1, 3 * JOINTS).astype(np.float64)


def _check_finite(x: NDArray[np.float64], path: Path) -> None:
    if not np.isfinite(x).all():
        raise ValueError(f"{path}: values must be finite, and are not: copy the file again")
