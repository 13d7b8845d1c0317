"""Image-text sets of the hub and of folders, and the table of images under them."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

from benchmark.conformance import check_dataset
from datamodules.hub_image_text import HubImageText
from datamodules.retrieval_pairs import RetrievalPairs
from datamodules.rows.words import build_vocabulary, split_words
from datamodules.sources import image_table
from datamodules.sources.image_table import ImageFiles, ImageTable, decode, square
from datamodules.spec import Modality, Task
from methods.parts.encoders import build_encoder
from tests.datamodules.miniatures import captions, look, make_image_folder, make_karpathy, paint

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ("train", "validation", "test")


def failure(module: Any) -> str:
    with pytest.raises((ValueError, OSError)) as caught:
        _ = module.task, module.splits
    return str(caught.value)


def violations(cls: type, **options: Any) -> list[Any]:
    class Mine(cls):
        def __init__(self) -> None:
            super().__init__(image_size=16, **options)

    return [result for result in check_dataset("mine", Mine) if not result.passed]


def sizes(module: Any) -> dict[str, int]:
    return {name: len(split.target) for name, split in module.splits.items()}


# ---- words --------------------------------------------------------------------------------------------------------


def test_words_are_numbered_and_rare_ones_are_unknown_to_what_is_learnt() -> None:
    train = [split_words(text) for text in ("A red dog.", "a RED cat!", "the dog's ball")]
    vocabulary = build_vocabulary(train, [split_words("a purple dog")], min_count=2)
    assert vocabulary.words == ("", "unknown", "a", "red", "ball", "cat", "dog", "dog's", "purple", "the")
    assert vocabulary.known == 4
    ids = vocabulary.encode([split_words("a purple red dog"), ["a"]], 3)
    assert ids.tolist() == [[2, 8, 3], [2, 0, 0]]
    # What is learnt from scratch reads "purple" as it reads "ball": unknown. A tower would read the words.
    encoder: Any = build_encoder(Modality("text", "text", (3,), vocabulary=10, known=4), 8)
    assert encoder.embed.num_embeddings == 4
    other = torch.tensor([[2, 4, 3], [2, 0, 0]])
    torch.testing.assert_close(encoder(ids).x, encoder(other).x)
    assert not encoder(ids).x.equal(encoder(torch.tensor([[2, 3, 3], [2, 0, 0]])).x)


# ---- hub_image_text -----------------------------------------------------------------------------------------------


def write_rows(folder: Path, split: str, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))


def rows_of(source: Path, split: str) -> list[dict[str, str]]:
    with (source / split / "metadata.csv").open() as file:
        return list(csv.DictReader(file))


def as_parquet(folder: Path, source: Path) -> None:
    folder.mkdir()
    kinds = {"text": datasets.Value("string"), "label": datasets.Value("string"), "image": datasets.Image()}
    for split in PUBLISHED:
        rows = [
            {"text": r["text"], "label": r["label"], "image": {"bytes": (source / split / r["file_name"]).read_bytes()}}
            for r in rows_of(source, split)
        ]
        table = datasets.Dataset.from_list(rows, features=datasets.Features(kinds))
        table.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))


def as_disk(folder: Path, source: Path) -> None:
    datasets.load_dataset(str(source), cache_dir=str(source.parent / "hf")).save_to_disk(str(folder))


def as_json(folder: Path, source: Path) -> None:
    folder.mkdir()
    for split in PUBLISHED:
        rows = [{**r, "image": f"../{source.name}/{split}/{r['file_name']}"} for r in rows_of(source, split)]
        write_rows(folder, f"captions_{split}", rows)


def test_every_layout_gives_the_same_rows(data: Path) -> None:
    source = make_image_folder(data / "folder", {"train": 16, "validation": 8, "test": 8})
    as_parquet(data / "parquet", source)
    as_disk(data / "disk", source)
    as_json(data / "json", source)
    given = {
        name: HubImageText(path=name, label_column="label", image_size=16)
        for name in ("folder", "parquet", "disk", "json")
    }
    first = given["folder"]
    assert first.task.class_names == ("blue", "green", "red", "white")
    assert sizes(first) == {"train": 16, "val": 8, "test": 8}
    for module in given.values():
        assert module.task.modalities == first.task.modalities and module.words("text") == first.words("text")
        for name, split in first.splits.items():
            own = module.splits[name]
            assert own.target.equal(split.target)
            assert all(own.inputs[m][:].equal(x[:]) for m, x in split.inputs.items())


@pytest.mark.parametrize("label", ["", "label"])
def test_the_contract_of_an_image_folder(data: Path, label: str) -> None:
    make_image_folder(data / "folder")
    assert violations(HubImageText, path="folder", label_column=label) == []
    task = HubImageText(path="folder", label_column=label).task
    assert (task.target, task.shared) == (("multiclass", ()) if label else ("pairs", ("image",)))


def test_a_lone_split_is_cut_and_images_stay_whole(data: Path) -> None:
    rows = []
    for number in range(40):
        paint(data / "photos" / f"{number}.png", number)
        rows.append({"image": f"{number}.png", "caption": captions(number), "colour": look(number)[0]})
    write_rows(data / "photos", "all", rows)
    module = HubImageText(path="photos", text_column="caption", image_size=16)
    assert violations(HubImageText, path="photos", text_column="caption") == []
    assert sizes(module) == {"train": 160, "val": 20, "test": 20}  # five captions each of 32, 4 and 4 images
    assert "10% of the published training images" in module.notes[0]
    labelled = HubImageText(path="photos", text_column="caption", label_column="colour", image_size=16)
    assert labelled.splits["test"].target.bincount().tolist() == [5, 5, 5, 5]


def test_rows_of_one_group_show_one_image_and_stay_together(data: Path) -> None:
    rows = []
    for number in range(40):
        paint(data / "photos" / f"{number}.png", number)
        rows.append({"image": f"{number}.png", "text": captions(number)[number % 5], "scene": f"s{number // 4}"})
    write_rows(data / "photos", "all", rows)
    module = HubImageText(path="photos", group_column="scene", image_size=16)
    for split in module.splits.values():
        _, counts = split.target.unique(return_counts=True)
        assert counts.eq(4).all()
        assert split.inputs["image"][:][0].equal(split.inputs["image"][:][1])


def test_a_published_validation_split_without_a_test_is_the_test(data: Path) -> None:
    make_image_folder(data / "folder", {"train": 40, "validation": 8})
    assert sizes(HubImageText(path="folder", image_size=16)) == {"train": 36, "val": 4, "test": 8}


@pytest.mark.parametrize(
    ("split", "row", "change", "said"),
    [
        ("train", 4, {"text": " ?! "}, "split train, row 5, column 'text': the text must have at least one word"),
        ("test", 1, {"text": None}, "split test, row 2, column 'text'"),
        ("test", 2, {"label": None}, "split test, row 3, column 'label': must be a label, got None"),
        ("test", 0, {"label": "mauve"}, "label 'mauve' is never in the train split"),
        ("validation", 3, {"image": "broken.png"}, "set, split val, row 4, column 'image' is not an image"),
        (
            "validation",
            2,
            {"image": "absent.png"},
            "split val, row 3, column 'image': there is no image at 'absent.png'",
        ),
    ],
)
def test_a_bad_row_is_named(data: Path, split: str, row: int, change: dict[str, Any], said: str) -> None:
    for name in ("train", "validation", "test"):
        rows = []
        for number in range(8):
            paint(data / "set" / f"{name}{number}.png", number)
            rows.append({"image": f"{name}{number}.png", "text": captions(number)[0], "label": look(number)[0]})
        if name == split:
            rows[row] |= change
        write_rows(data / "set", name, rows)
    (data / "set" / "broken.png").write_bytes(b"\x89PNG half of one")
    assert said in failure(HubImageText(path="set", label_column="label", image_size=16))


def test_wrong_names_are_one_sentence(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_image_folder(data / "folder", {"train": 8, "validation": 4, "test": 4})
    assert "no column 'txet'. Did you mean 'text'?" in failure(HubImageText(path="folder", text_column="txet"))
    assert "`path` must name a file or folder, absolute" in failure(HubImageText())
    assert "there is nothing at" in failure(HubImageText(path="nowhere"))
    # Offline, as on a machine without network; the library reads the variable when it is imported.
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    message = failure(HubImageText(path="nobody/nothing"))
    assert "'nobody/nothing'" in message and "cannot be reached" in message and "\n" not in message


def test_an_edited_caption_or_image_is_another_version(data: Path) -> None:
    folder = make_image_folder(data / "folder", {"train": 8, "validation": 4, "test": 4})
    before = HubImageText(path="folder", image_size=16)
    table = before.splits["test"].inputs["image"][:]
    metadata = folder / "test" / "metadata.csv"
    metadata.write_text(metadata.read_text().replace("patch", "spot"))
    assert HubImageText(path="folder", image_size=16).task.version != before.task.version
    paint(folder / "test" / "12.png", 13)
    after = HubImageText(path="folder", image_size=16)
    assert not after.splits["test"].inputs["image"][:].equal(table)


# ---- retrieval_pairs ----------------------------------------------------------------------------------------------


def test_the_contract_of_karpathys_splits(data: Path) -> None:
    make_karpathy(data, "flickr8k", {"train": 24, "val": 8, "test": 8}, below="Flicker8k_Dataset")
    make_karpathy(data, "coco", {"train": 16, "restval": 8, "val": 8, "test": 8})
    assert violations(RetrievalPairs) == []
    assert violations(RetrievalPairs, corpus="coco") == []
    for corpus in ("flickr8k", "coco"):  # restval is training
        module = RetrievalPairs(corpus=corpus, image_size=16)
        assert sizes(module) == {"train": 120, "val": 40, "test": 40}
        assert module.task.target == "pairs" and module.task.shared == ("image",)
        words = module.words("text")
        row = module.splits["test"].inputs["text"][7].tolist()  # second image of the test split, third caption
        assert " ".join(words[i] for i in row if i) == " ".join(split_words(captions(33)[2]))


def naive(predicted: torch.Tensor, target: torch.Tensor, k: int) -> tuple[float, float]:
    """R@k both ways as the literature has it: N images, 5 N captions."""
    owners = target.tolist()
    firsts = {owner: owners.index(owner) for owner in owners}
    image, text = predicted[:, 0], predicted[:, 1]
    hits = []
    for owner, row in firsts.items():
        order = (text @ image[row]).argsort(descending=True)[:k].tolist()
        hits.append(any(owners[j] == owner for j in order))
    found = []
    gallery = list(firsts.values())
    for row, owner in enumerate(owners):
        order = (image[gallery] @ text[row]).argsort(descending=True)[:k].tolist()
        found.append(any(owners[gallery[j]] == owner for j in order))
    return sum(hits) / len(hits), sum(found) / len(found)


def test_recall_with_five_captions_is_that_of_the_literature() -> None:
    generator = torch.Generator().manual_seed(2)
    modalities = (Modality("image", "vector", (6,)), Modality("text", "vector", (6,)))
    task = Task("t", "1", modalities, "pairs", 0, shared=("image",))
    images = torch.randn(30, 6, generator=generator)
    target = torch.arange(30).repeat_interleave(5)[torch.randperm(150, generator=generator)]
    image = images[target]
    text = image + 1.5 * torch.randn(150, 6, generator=generator)
    predicted = torch.nn.functional.normalize(torch.stack([image, text], dim=1), dim=-1)
    metrics = task.goal.evaluate(predicted, target)
    for k in (1, 5, 10):
        by_image, by_text = naive(predicted, target, k)
        assert metrics[f"recall_at_{k}_image_to_text"] == pytest.approx(by_image)
        assert metrics[f"recall_at_{k}_text_to_image"] == pytest.approx(by_text)
        assert metrics[f"recall_at_{k}"] == pytest.approx((by_image + by_text) / 2)
    assert 0.1 < metrics["recall_at_1"] < 0.9
    # Without knowing that five rows share an image, its five copies would fill the first places.
    blind = Task("t", "1", modalities, "pairs", 0).goal.evaluate(predicted, target)
    assert blind["recall_at_5_text_to_image"] < metrics["recall_at_5_text_to_image"]
    assert task.goal.kept(predicted, target).shape == (150, 2)


def test_chance_is_one_image_or_five_captions() -> None:
    modalities = (Modality("image", "vector", (6,)), Modality("text", "vector", (6,)))
    target = torch.arange(20).repeat_interleave(5)
    assert Task("t", "1", modalities, "pairs", 0, shared=("image",)).goal.trivial(target, target) == pytest.approx(
        1 / 20
    )
    assert Task("t", "1", modalities, "pairs", 0).goal.trivial(torch.arange(20), torch.arange(20)) == pytest.approx(
        1 / 20
    )


def test_what_is_wrong_in_a_split_file_is_named(data: Path) -> None:
    folder = make_karpathy(data, "flickr8k", {"train": 8, "val": 4, "test": 4})
    file = folder / "dataset_flickr8k.json"
    whole = json.loads(file.read_text())

    def broken(change: Any) -> str:
        content = json.loads(json.dumps(whole))
        change(content["images"])
        file.write_text(json.dumps(content))
        return failure(RetrievalPairs(image_size=16))

    assert "image 3 (2.jpg): the text must have" in broken(lambda images: images[2]["sentences"][1].update(raw=" "))
    assert "image 5 (4.jpg): split must be one of train, restval" in broken(lambda i: i[4].update(split="tset"))
    assert "and has no 'sentences'" in broken(lambda images: images[1].pop("sentences"))
    assert "the file must be in the folder" in broken(lambda images: images[0].update(filename="../secret.jpg"))
    assert "val has none" in broken(lambda images: [i.update(split="train") for i in images[8:12]])
    file.write_text(json.dumps(whole)[:-9])
    assert "is not JSON" in failure(RetrievalPairs(image_size=16))
    file.write_text(json.dumps(whole))
    (folder / "images" / "6.jpg").write_bytes(b"no image")
    assert "6.jpg is not an image that can be decoded" in failure(RetrievalPairs(image_size=16))
    (folder / "images" / "6.jpg").unlink()
    assert "there is no image" in failure(RetrievalPairs(image_size=16))
    file.unlink()
    assert "put Karpathy's split file of flickr8k there" in failure(RetrievalPairs(image_size=16))


# ---- the table of images ------------------------------------------------------------------------------------------


def photos(folder: Path, count: int) -> ImageFiles:
    for number in range(count):
        paint(folder / f"{number}.png", number)
    return ImageFiles(folder, [f"{number}.png" for number in range(count)])


def test_images_are_squares_of_bytes_decoded_once(data: Path) -> None:
    source = photos(data / "photos", 10)
    table = ImageTable(source, 16)
    with Image.open(data / "photos" / "3.png") as image:
        expected = np.asarray(image.convert("RGB").resize((16, 16), Image.Resampling.BICUBIC)).transpose(2, 0, 1)
    rows = table.rows(torch.tensor([3, 3, 0]))
    np.testing.assert_allclose(rows[torch.tensor([1])][0], expected / 255, atol=1e-6)
    assert rows.shape == (3, 3, 16, 16) and isinstance(np.load(table.file, mmap_mode="r"), np.memmap)
    changed = table.file.stat().st_mtime_ns
    assert ImageTable(source, 16).file.stat().st_mtime_ns == changed
    assert rows.fingerprint() != table.rows(torch.tensor([3, 0, 0])).fingerprint()
    assert ImageTable(source, 8).file != table.file


def test_a_failed_table_goes_on_where_it_was(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_table, "BLOCK", 4)
    source = photos(data / "photos", 20)
    read: list[int] = []
    whole = ImageFiles.read

    def failing(self: ImageFiles, i: int) -> bytes:
        if i == 13 and 13 not in read:
            read.append(i)
            raise OSError("the disk is away")
        read.append(i)
        return whole(self, i)

    monkeypatch.setattr(ImageFiles, "read", failing)
    with pytest.raises(OSError, match="the disk is away"):
        ImageTable(source, 16)
    assert not list((data.parent / "cache" / "images").glob("*.npy")), "half a table must not look like a whole one"
    read[:] = [13]
    table = ImageTable(source, 16)
    assert read[1:] == list(range(12, 20)), "three blocks of four were done"
    for number in (0, 11, 13, 19):
        content = (data / "photos" / f"{number}.png").read_bytes()
        assert np.array_equal(table.table[number], square(decode(content, 16, ""), 16))


def test_an_image_replaced_at_equal_size_and_time_is_other_data(data: Path) -> None:
    """Two pictures of one size in bytes, swapped, and their times set back: content decides, not what is said of it."""
    for number, shade in enumerate((10, 200)):
        (data / "photos").mkdir(exist_ok=True)
        Image.new("RGB", (16, 16), (shade, shade, shade)).save(data / "photos" / f"{number}.bmp")
    source = ImageFiles(data / "photos", ["0.bmp", "1.bmp"])
    before, files = ImageTable(source, 16), [data / "photos" / name for name in source.names]
    facts, contents = [file.stat() for file in files], [file.read_bytes() for file in files]
    for file, fact, content in zip(files, facts, reversed(contents), strict=True):
        file.write_bytes(content)
        os.utime(file, ns=(fact.st_atime_ns, fact.st_mtime_ns))
    assert [(f.stat().st_size, f.stat().st_mtime_ns) for f in files] == [(f.st_size, f.st_mtime_ns) for f in facts]
    after = ImageTable(source, 16)
    assert after.content != before.content and after.table[0].float().mean() > 150 > before.table[0].float().mean()
    for file, fact, content in zip(files, facts, contents, strict=True):
        file.write_bytes(content)
        os.utime(file, ns=(fact.st_atime_ns, fact.st_mtime_ns + 10**9))
    assert ImageTable(source, 16).content == before.content, "what was copied or touched is the same data"


SCRIPT = """
import sys, time
from pathlib import Path
from datamodules.sources import image_table
from datamodules.sources.image_table import ImageFiles, ImageTable
image_table.BLOCK = 2
whole = ImageFiles.read
def slow(self, i):
    time.sleep(0.02)
    with open(sys.argv[2], "a") as file:
        file.write(f"{i}\\n")
    return whole(self, i)
ImageFiles.read = slow
folder = Path(sys.argv[1])
ImageTable(ImageFiles(folder, [f"{n}.png" for n in range(30)]), 16)
"""


def start(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder), str(log)], env=environment)


def wait_for(path: Path, lines: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if path.exists() and len(path.read_text().splitlines()) >= lines:
            return
        time.sleep(0.01)
    raise TimeoutError(path)


@pytest.mark.slow
def test_a_killed_job_never_leaves_a_wrong_table_and_two_make_one(data: Path, tmp_path: Path) -> None:
    source = photos(data / "photos", 30)
    for attempt, lines in enumerate((3, 8)):
        log = tmp_path / f"log{attempt}"
        process = start(data / "photos", log)
        wait_for(log, lines)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not list((tmp_path / "cache" / "images").glob("*.npy"))
    logs = [tmp_path / "a", tmp_path / "b"]
    both = [start(data / "photos", log) for log in logs]
    assert [process.wait() for process in both] == [0, 0]
    decoded = [line for log in logs if log.exists() for line in log.read_text().splitlines()]
    assert len(decoded) == len(set(decoded)) < 30, "decoded by one of the two, from where the killed ones were"
    table = ImageTable(source, 16)
    for number in range(30):
        content = (data / "photos" / f"{number}.png").read_bytes()
        assert np.array_equal(table.table[number], square(decode(content, 16, ""), 16))
