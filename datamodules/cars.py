"""Stanford Cars 196: retrieval of car models never seen."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from datamodules.bases.image_retrieval import ImageRetrieval, Photo
from datamodules.registry import register

LAST_TRAINING_CLASS = 98


@register("cars")
class Cars(ImageRetrieval):
    """Cars-196: 16,185 photos of 196 car models; the first 98 train, the rest are unseen.

    Reads `cars_annos.mat` and `car_ims/` of the published folder. The `test` field of the annotations divides every
    class and is not used.
    """

    title = "cars"
    version = "2"
    licence = "photos: non-commercial research; see the dataset's page"
    citation = "J. Krause et al., 3D Object Representations for Fine-Grained Categorization, 3dRR at ICCV (2013)."
    folders = ("cars196", "CARS196", "stanford_cars", "cars")
    expected: ClassVar[dict[str, int]] = {"train": 8054, "test": 8131}

    def read_index(self, folder: Path) -> list[Photo]:
        from scipy.io import loadmat  # costs 0.1 s, and only this set has a MATLAB index

        annotations = loadmat(folder / "cars_annos.mat", squeeze_me=True)["annotations"]
        labels = [int(label) for label in annotations["class"]]
        return [
            Photo(str(path), label, "train" if label <= LAST_TRAINING_CLASS else "test")
            for path, label in zip(annotations["relative_im_path"], labels, strict=True)
        ]
