"""A folder of images with a text file beside each, as a table: `disc.png` and `disc.txt` are a row."""

from __future__ import annotations

import csv
from pathlib import Path

from datamodules.sources.hub_table import TABLES

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif")
_LAYOUTS = ("dataset_dict.json", "state.json")  # what the `datasets` library saved


def as_table(folder: Path, table: Path) -> str:
    """Write the table, with a column `folder` if there are several; a sentence about it, empty if it is not needed.

    A folder with a table of its own is read by that one.

    Args:
        table: Where to; outside of the folder, which is the user's.

    Raises:
        ValueError: If some of the images have no text, or an empty one.
    """
    if not folder.is_dir() or any(file.suffix in TABLES or file.name in _LAYOUTS for file in folder.iterdir()):
        return ""
    images = sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES)
    texts = {image: _text(image.with_suffix(".txt")) for image in images}
    lacking = [image for image, text in texts.items() if not text]
    if len(lacking) == len(images):
        return ""
    if lacking:
        raise ValueError(
            f"{len(lacking):,} of the {len(images):,} images of {folder} have no text beside them, or an empty one: "
            f"write one, or move them away. The first is {lacking[0].relative_to(folder)}: "
            f"{lacking[0].with_suffix('.txt').name} was expected"
        )
    several = len({image.parent for image in images}) > 1
    with table.open("w", encoding="utf-8", newline="") as file:
        write = csv.writer(file).writerow
        write(["image", "text", *(["folder"] if several else [])])
        for image, text in texts.items():
            own = [str(image.parent.relative_to(folder))] if several else []
            write([str(image.absolute()), text, *own])
    labels = "; their folders are a label: --target folder" if several else ""
    return f"{len(images):,} images, each with a text file beside it, are a table now: {table}{labels}"


def _text(file: Path) -> str:
    if not file.is_file():
        return ""
    try:
        return " ".join(file.read_text(encoding="utf-8").split())
    except UnicodeDecodeError:
        raise ValueError(f"{file} must be text in UTF-8") from None
