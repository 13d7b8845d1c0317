"""What a folder of images with captions seems to be: which column is the image, which the text, which the label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmark.own_data.guess import Guess
from benchmark.own_data.text_files import SUFFIXES
from datamodules.registry import did_you_mean
from datamodules.rows.words import split_words
from datamodules.sources.hub_table import open_table

_LAYOUT = (
    "a folder with images and a table of them (captions.csv, captions.jsonl or a metadata.csv with file_name), "
    "a column with the paths of the images, one with the texts; or a text file beside each image (disc.png, disc.txt)"
)


def guess_images(path: Path, target: str | None) -> Guess:
    """Read the table and guess the options of `hub_image_text`.

    Raises:
        ValueError: If no column holds images, or none holds texts.
    """
    tables = open_table(str(path.absolute()))
    table = next(iter(tables.values()))
    names, rows = table.column_names, sum(map(len, tables.values()))
    if target is not None and target not in names:
        raise ValueError(f"{path} has no column {target!r} to predict (--target). {did_you_mean(target, names)}")
    head = {name: [row[name] for row in _undecoded(table).select(range(min(50, len(table))))] for name in names}
    image = next((name for name in names if name != target and all(map(_is_image, head[name]))), None)
    if image is None:
        raise ValueError(f"{path}: no column of it holds images. Expected {_LAYOUT}; it has {', '.join(names)}")
    texts = {name: _words(cells) for name, cells in head.items() if name not in (image, target)}
    text = max(texts, key=lambda name: texts[name], default=None)
    if text is None or texts[text] == 0:
        raise ValueError(f"{path}: no column of it holds texts. Expected {_LAYOUT}; it has {', '.join(names)}")
    said = [f"{rows:,} rows, splits: {', '.join(f'{name} {len(t):,}' for name, t in tables.items())}"]
    said.append(f"image: {image!r}; text: {text!r} ({texts[text]:.0f} words on average)")
    options: dict[str, Any] = {"path": str(path.absolute()), "image_column": image, "text_column": text}
    options |= {"image_size": 32, "min_count": 1 if rows < 2000 else 2, "held_out": 0.2 if rows < 5000 else 0.1}
    if target is None:
        said.append("task: find the image of a text and the text of an image, as no --target says what to predict")
    else:
        options["label_column"] = target
        said.append(f"task: classes, of {target!r}")
    return Guess("hub_image_text", options, rows, tuple(said), heavy=True)


def _undecoded(table: Any) -> Any:
    from datasets import Image

    for name, feature in table.features.items():
        if isinstance(feature, Image):
            table = table.cast_column(name, Image(decode=False))
    return table


def _is_image(cell: object) -> bool:
    if isinstance(cell, dict):
        return "bytes" in cell
    return isinstance(cell, str) and cell.lower().endswith(SUFFIXES)


def _words(cells: list[Any]) -> float:
    """Words of a text on average; 0 if one is no text."""
    texts: list[Any] = [cell[0] if isinstance(cell, list) and cell else cell for cell in cells]
    if not texts or not all(isinstance(text, str) for text in texts):
        return 0.0
    return sum(len(split_words(text)) for text in texts) / len(texts)
