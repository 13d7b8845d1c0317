"""Memes that are hateful only by what picture and words say together."""

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

# Two names each: those of the second phase of the challenge, and those of the first.
FILES: dict[SplitName, tuple[str, ...]] = {
    "train": ("train.jsonl",),
    "val": ("dev_seen.jsonl", "dev.jsonl"),
    "test": ("test_seen.jsonl", "test.jsonl"),
}


@register("hateful_memes")
class HatefulMemes(PublishedImageText):
    """Hateful Memes: 8,500 / 500 / 1,000 memes, image and text, hateful or not, scored by the area under the ROC curve.

    In `folder`: `train.jsonl`, `dev_seen.jsonl` and `test_seen.jsonl` (or `dev.jsonl` and `test.jsonl`), each line with
    `id`, `img`, `label` and `text`, and the images `img/*.png`. The test file must have labels, which the first phase
    of the challenge held back.

    Args:
        folder, image_size, length, min_count: As of every `PublishedImageText`.
    """

    version = "1"
    title = "hateful_memes"
    metric = "auroc"
    expected: ClassVar[dict[SplitName, int]] = {"train": 8500, "val": 500, "test": 1000}
    licence = "Hateful Memes dataset licence (research only)"
    citation = (
        "D. Kiela et al., The Hateful Memes Challenge: Detecting Hate Speech in Multimodal Memes, NeurIPS (2020)."
    )
    source = "folder: hateful_memes, in the published layout"

    def __init__(
        self, *, folder: str = "hateful_memes", image_size: Side = 64, length: Count = 24, min_count: Count = 2
    ) -> None:
        super().__init__(folder=folder, image_size=image_size, length=length, min_count=min_count)

    def read_entries(self, folder: Path) -> tuple[Sequence[Entry], tuple[str, ...]]:
        entries: list[Entry] = []
        for split, names in FILES.items():
            file = next((folder / name for name in names if (folder / name).is_file()), None)
            if file is None:
                raise FileNotFoundError(f"there is no {' or '.join(names)} in {folder}: put the published files there")
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            entries += [_meme(line, split, f"{file}, line {i}") for i, line in enumerate(lines, 1) if line.strip()]
        return entries, ("benign", "hateful")


def _meme(line: str, split: SplitName, where: str) -> Entry:
    try:
        meme: Any = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where} is not JSON (half downloaded?): {error}") from None
    if not isinstance(meme, dict) or not isinstance(meme.get("img"), str) or not isinstance(meme.get("text"), str):
        raise ValueError(f"{where}: must have `img` and `text`, got {line[:60]!r}")
    if meme.get("label") not in (0, 1):
        raise ValueError(f"{where}: `label` must be 0 or 1, got {meme.get('label')!r}: take the file with labels")
    return Entry(split, meme["img"], meme["text"], int(meme["label"]), where)
