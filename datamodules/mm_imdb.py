"""Genres of a film from its poster and its plot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from datamodules.base import SplitName
from datamodules.bases.published_image_text import Entry, PublishedImageText
from datamodules.options import Count
from datamodules.registry import register
from datamodules.sources.image_table import Side

PARTS: dict[SplitName, str] = {"train": "train", "val": "dev", "test": "test"}
GENRES = (
    "Action", "Adventure", "Animation", "Biography", "Comedy", "Crime", "Documentary", "Drama", "Family", "Fantasy",
    "Film-Noir", "History", "Horror", "Music", "Musical", "Mystery", "Romance", "Sci-Fi", "Short", "Sport", "Thriller",
    "War", "Western",
)  # fmt: skip
ORIGIN = "the folder of mmimdb.tar.gz (lisi1.unal.edu.co/mmimdb)"


@register("mm_imdb")
class MmImdb(PublishedImageText):
    """MM-IMDb: 25,959 films, poster and plot, 23 genres of which a film has several; the published split.

    In `folder`: `split.json` (train, dev, test: ids), `dataset/ID.json` (`plot`, `genres`) and `dataset/ID.jpeg`. The
    first plot is read. Genres beside the published 23 (News, Adult, Talk-Show, Reality-TV) are left out.

    Args:
        folder, image_size, length, min_count: As of every `PublishedImageText`.
    """

    version = "1"
    title = "mm_imdb"
    text = "plot"
    target = "multilabel"
    metric = "macro_f1"
    expected: ClassVar[dict[SplitName, int]] = {"train": 15552, "val": 2608, "test": 7799}
    licence = "free for research; texts and posters: terms of IMDb"
    citation = (
        "J. Arevalo, T. Solorio, M. Montes-y-Gomez and F. A. Gonzalez, Gated Multimodal Units for Information Fusion, "
        "ICLR workshop (2017)."
    )
    source = "folder: mmimdb, in the published layout"

    def __init__(
        self, *, folder: str = "mmimdb", image_size: Side = 64, length: Count = 96, min_count: Count = 5
    ) -> None:
        super().__init__(folder=folder, image_size=image_size, length=length, min_count=min_count)

    def read_entries(self, folder: Path) -> tuple[Sequence[Entry], tuple[str, ...]]:
        split = _read(folder / "split.json")
        entries = []
        for name, part in PARTS.items():
            if not isinstance(split.get(part), list):
                raise ValueError(f"{folder / 'split.json'} must have a list of ids `{part}`: put {ORIGIN} there")
            entries += [_film(folder, str(number), name) for number in split[part]]
        return entries, GENRES


def _film(folder: Path, number: str, split: SplitName) -> Entry:
    file = folder / "dataset" / f"{number}.json"
    film = _read(file)
    plot, genres = film.get("plot"), film.get("genres")
    if not isinstance(plot, list) or not isinstance(genres, list):
        raise ValueError(f"{file} must have lists `plot` and `genres`: copy it again")
    label = tuple(int(genre in genres) for genre in GENRES)
    return Entry(split, f"dataset/{number}.jpeg", str(plot[0]) if plot else "", label, str(file))


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}: put {ORIGIN} there")
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file} is not JSON (half downloaded?): {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{file} must be a JSON object: copy it again")
    return content
