"""Indoor scenes by colour and by depth: two real images of one shape."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from datamodules.base import SPLITS, DataModule, Gathered, Split, SplitName
from datamodules.registry import register
from datamodules.rows.fixed_order import split_by_class
from datamodules.sources.folders import find_data
from datamodules.sources.image_table import ImageFiles, ImageTable, Pixels, Side
from datamodules.spec import Modality, Task

HELD_OUT = 0.2  # of the training scenes, where the folder has no validation split
FORMATS = (".png", ".jpg", ".jpeg")
VIEWS = ("rgb", "depth")


class _Scene(NamedTuple):
    split: SplitName
    name: str
    path: str


@register("nyud2")
class Nyud2(DataModule):
    """NYU Depth V2: 1,449 indoor scenes of 10 kinds, colour and depth of one shape, for exchange of channels.

    In `folder`: `{train,val,test}/KIND/*.png`, each picture with the colour image in its left half and the depth map in
    its right half. Without `val`, a fifth of the training scenes, stratified and fixed, is validation.

    Args:
        folder: Absolute or below POLYMODAL_DATA.
        image_size: Side of both images, in pixels.
    """

    version = "1"
    licence = "free for research; see the dataset's page"
    citation = (
        "N. Silberman, D. Hoiem, P. Kohli and R. Fergus, Indoor Segmentation and Support Inference from RGBD Images, "
        "ECCV (2012); scenes of 10 kinds: S. Gupta et al., CVPR (2013)."
    )
    source = "folder: nyud2_trainvaltest, pictures side by side"

    def __init__(self, *, folder: str = "nyud2_trainvaltest", image_size: Side = 64) -> None:
        super().__init__()
        self.folder = folder
        self.image_size = image_size

    def describe(self) -> Task:
        shape = (3, self.image_size, self.image_size)
        modalities = tuple(Modality(name, "image", shape) for name in VIEWS)
        names = tuple(sorted({scene.name for scene in self._scenes}))
        return Task("nyud2", self.version, modalities, "multiclass", len(names), class_names=names)

    @property
    def notes(self) -> tuple[str, ...]:
        if (self._path / "val").is_dir():
            return ()
        return (f"nyud2: val: {HELD_OUT:.0%} of the published training scenes, fixed",)

    def load(self) -> dict[SplitName, Split]:
        scenes = self._scenes
        images = ImageTable(ImageFiles(self._path, [scene.path for scene in scenes]), 2 * self.image_size, halves)
        number = {name: i for i, name in enumerate(self.task.class_names)}
        splits: dict[SplitName, Split] = {}
        for split in SPLITS:
            index = torch.tensor([i for i, scene in enumerate(scenes) if scene.split == split])
            target = torch.tensor([number[scene.name] for scene in scenes if scene.split == split])
            inputs = {view: Gathered(images.table[:, i], index, 1 / 255) for i, view in enumerate(VIEWS)}
            splits[split] = Split(inputs, target)
        return splits

    @cached_property
    def _path(self) -> Path:
        return find_data(self.folder, "folder")

    @cached_property
    def _scenes(self) -> list[_Scene]:
        scenes = [scene for split in SPLITS for scene in _list(self._path, split)]
        for split in ("train", "test"):
            if not any(scene.split == split for scene in scenes):
                raise FileNotFoundError(f"there are no pictures {split}/KIND/*.png in {self._path}: put them there")
        train = {scene.name for scene in scenes if scene.split == "train"}
        if unseen := sorted({scene.name for scene in scenes} - train):
            raise ValueError(f"{self._path}: {unseen[0]!r} must have training pictures, and has none")
        if any(scene.split == "val" for scene in scenes):
            return scenes
        own = [i for i, scene in enumerate(scenes) if scene.split == "train"]
        label = np.unique([scenes[i].name for i in own], return_inverse=True)[1]
        held_out = {own[i] for i in split_by_class(label, (HELD_OUT, 1 - HELD_OUT), "nyud2")[0]}
        return [scene._replace(split="val") if i in held_out else scene for i, scene in enumerate(scenes)]


def _list(folder: Path, split: SplitName) -> list[_Scene]:
    found = sorted(path for path in (folder / split).glob("*/*") if path.suffix.lower() in FORMATS)
    return [_Scene(split, path.parent.name, path.relative_to(folder).as_posix()) for path in found]


def halves(picture: Image.Image, size: int) -> Pixels:
    """The left and the right half of a picture, `[2, 3, size / 2, size / 2]`."""
    width, height = picture.size
    boxes = ((0, 0, width // 2, height), (width - width // 2, 0, width, height))
    sides = [picture.crop(box).resize((size // 2, size // 2), Image.Resampling.BILINEAR) for box in boxes]
    return np.stack([np.asarray(side).transpose(2, 0, 1) for side in sides])
