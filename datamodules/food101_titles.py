"""Dishes by a photo and the title of the web page it was found on."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from datamodules.base import SplitName
from datamodules.bases.published_image_text import Entry, PublishedImageText
from datamodules.options import Count
from datamodules.registry import register
from datamodules.rows.fixed_order import split_by_class
from datamodules.sources.image_table import Side

HELD_OUT = 0.1  # of the published training rows: they choose the epoch


@register("food101_titles")
class Food101Titles(PublishedImageText):
    """UPMC Food-101: 90,704 photos of 101 dishes, each with the title of its web page; the published test split.

    In `folder`: `images/{train,test}/DISH/NAME.jpg` and `texts/{train,test}_titles.csv` (name, title, dish; no header).
    A tenth of the training rows, stratified and fixed, is validation.

    Args:
        folder, image_size, length, min_count: As of every `PublishedImageText`.
    """

    version = "1"
    title = "food101_titles"
    text = "title"
    licence = "free for research; photos and titles: terms of their pages"
    citation = (
        "X. Wang, D. Kumar, N. Thome, M. Cord and F. Precioso, Recipe Recognition with Large Multimodal Food Dataset, "
        "ICME workshop (2015)."
    )
    source = "folder: food101, in the published layout"
    expected: ClassVar[dict[SplitName, int]] = {"test": 22716}

    def __init__(
        self, *, folder: str = "food101", image_size: Side = 64, length: Count = 20, min_count: Count = 3
    ) -> None:
        super().__init__(folder=folder, image_size=image_size, length=length, min_count=min_count)

    def read_entries(self, folder: Path) -> tuple[Sequence[Entry], tuple[str, ...]]:
        parts: dict[Literal["train", "test"], list[tuple[str, str, str]]]
        parts = {part: _read(folder / "texts" / f"{part}_titles.csv") for part in ("train", "test")}
        names = tuple(sorted({dish for _, _, dish in parts["train"]}))
        number = {dish: i for i, dish in enumerate(names)}
        for line, (_, _, dish) in enumerate(parts["test"], 1):
            if dish not in number:
                raise ValueError(
                    f"{folder}/texts/test_titles.csv, line {line}: {dish!r} is no dish of the training rows"
                )
        label = np.array([number[dish] for _, _, dish in parts["train"]])
        held_out = set(split_by_class(label, (HELD_OUT, 1 - HELD_OUT), "food101_titles")[0].tolist())
        entries = []
        for part, rows in parts.items():
            for i, (name, text, dish) in enumerate(rows):
                split: SplitName = "val" if part == "train" and i in held_out else part
                where = f"{folder}/texts/{part}_titles.csv, line {i + 1}"
                entries.append(Entry(split, f"images/{part}/{dish}/{name}", text, number[dish], where))
        return entries, names


def _read(file: Path) -> list[tuple[str, str, str]]:
    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}: put the titles of UPMC Food-101 there")
    rows: list[tuple[str, str, str]] = []
    with file.open(newline="", encoding="utf-8-sig", errors="replace") as lines:
        for number, row in enumerate(csv.reader(lines), 1):
            if len(row) != 3:
                raise ValueError(
                    f"{file}, line {number}: there must be a name, a title and a dish, got {len(row)} cells"
                )
            rows.append((row[0], row[1], row[2]))
    return rows
