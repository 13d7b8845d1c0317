"""Sets people know by name, each on a miniature of its published layout: contract, rows, splits, and bad folders."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmark.conformance import check_dataset
from benchmark.matrix import parse
from benchmark.plan import make_plan
from benchmark.runner import run_cell
from datamodules.av_mnist import AvMnist
from datamodules.crema_d import CremaD
from datamodules.food101_titles import Food101Titles
from datamodules.hateful_memes import HatefulMemes
from datamodules.mm_imdb import GENRES, MmImdb
from datamodules.nyud2 import Nyud2
from datamodules.registry import datasets
from datamodules.sources.folders import find_data
from datamodules.sources.mmsa_file import convert
from leaderboard import scores
from leaderboard.rows import contributions
from leaderboard.store import Store
from tests.datamodules import miniature_recordings as recordings
from tests.datamodules import miniatures

MAKERS: dict[str, Callable[[Path], Path]] = {
    "av_mnist": miniatures.make_av_mnist,
    "crema_d": recordings.make_crema_d,
    "food101_titles": miniatures.make_food101,
    "hateful_memes": miniatures.make_hateful_memes,
    "mm_imdb": miniatures.make_mm_imdb,
    "nyud2": miniatures.make_nyud2,
}


def refusal(datamodule: Any) -> str:
    """The one sentence with which it refuses to load."""
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        datamodule.splits  # noqa: B018 - loads
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400
    return message


@pytest.mark.parametrize("name", MAKERS)
def test_the_miniature_keeps_the_contract(data: Path, name: str) -> None:
    MAKERS[name](data)
    cls = datasets.get(name)
    assert not [str(result) for result in check_dataset(name, cls) if not result.passed]
    if name != "nyud2":  # how many scenes there are depends on who cut the kinds
        assert any("expected" in note for note in cls().notes)


@pytest.mark.parametrize("name", MAKERS)
def test_without_its_folder_one_sentence_says_what_is_missing(data: Path, name: str) -> None:
    datamodule = datasets.get(name)()
    said = refusal(datamodule)
    assert f"`folder` is {datamodule.folder!r}, but there is nothing at {data / datamodule.folder}" in said
    (data / datamodule.folder).mkdir()
    assert str(data / datamodule.folder) in refusal(datasets.get(name)())
    assert find_data(datamodule.folder, "folder") == data / datamodule.folder


# ---- image and text --------------------------------------------------------------------------------------------------


def test_mm_imdb_reads_the_first_plot_and_the_published_genres(data: Path) -> None:
    folder = miniatures.make_mm_imdb(data)
    datamodule = MmImdb(min_count=1)
    assert datamodule.task.target == "multilabel" and datamodule.task.metric == "macro_f1"
    assert {name: len(split.target) for name, split in datamodule.splits.items()} == {"train": 32, "val": 8, "test": 12}
    test, ids = datamodule.splits["test"], json.loads((folder / "split.json").read_text())["test"]
    for row, number in enumerate(ids):
        film = json.loads((folder / "dataset" / f"{number}.json").read_text())
        kept = [genre for genre in film["genres"] if genre != "News"]
        assert [GENRES[i] for i in test.target[row].nonzero().flatten().tolist()] == sorted(kept)
        words = datamodule.spell("plot", test.inputs["plot"][torch.tensor([row])][0])
        assert words.split() == film["plot"][0].lower().replace(".", "").split()


def test_hateful_memes_are_scored_by_auroc_and_read_under_both_names(data: Path) -> None:
    folder = miniatures.make_hateful_memes(data)
    datamodule = HatefulMemes()
    assert datamodule.task.metric == "auroc"
    labels = [json.loads(line)["label"] for line in (folder / "test_seen.jsonl").read_text().splitlines()]
    assert datamodule.splits["test"].target.tolist() == labels
    for old, new in (("dev_seen", "dev"), ("test_seen", "test")):
        (folder / f"{old}.jsonl").rename(folder / f"{new}.jsonl")
    assert HatefulMemes().splits["test"].target.tolist() == labels


def test_food101_keeps_the_published_test_and_leaves_out_titles_without_words(data: Path) -> None:
    miniatures.make_food101(data)
    datamodule = Food101Titles()
    assert {name: len(split.target) for name, split in datamodule.splits.items()} == {"train": 71, "val": 8, "test": 16}
    assert "food101_titles: 1 rows without a word are left out" in datamodule.notes
    assert datamodule.task.class_names == ("blue_pie", "green_pie", "red_pie", "white_pie")
    titles = [datamodule.spell("title", row) for row in datamodule.splits["test"].inputs["title"]]
    names = [datamodule.task.class_names[i] for i in datamodule.splits["test"].target.tolist()]
    assert all(title.startswith(name) for title, name in zip(titles, names, strict=True))


@pytest.mark.parametrize(
    ("cls", "file", "content", "said"),
    [
        (MmImdb, "split.json", "{", "is not JSON"),
        (MmImdb, "split.json", '{"train": []}', "must have a list of ids `dev`"),
        (MmImdb, "split.json", "[]", "must be a JSON object"),
        (MmImdb, "dataset/0000003.json", "{}", "must have lists `plot` and `genres`"),
        (MmImdb, "dataset/0000003.json", None, "there is no"),
        (MmImdb, "dataset/0000003.jpeg", None, "there is no image"),
        (MmImdb, "dataset/0000003.jpeg", "no image", "is not an image that can be decoded"),
        (HatefulMemes, "train.jsonl", '{"img": 1}\n', "line 1: must have `img` and `text`"),
        (HatefulMemes, "train.jsonl", "{\n", "line 1 is not JSON"),
        (HatefulMemes, "test_seen.jsonl", '{"img": "img/a.png", "text": "b"}\n', "take the file with labels"),
        (HatefulMemes, "train.jsonl", '{"img": "../x.png", "text": "b", "label": 1}\n', "must be in the folder"),
        (HatefulMemes, "dev_seen.jsonl", None, r"there is no dev_seen.jsonl or dev.jsonl in"),
        (Food101Titles, "texts/test_titles.csv", None, "there is no"),
        (Food101Titles, "texts/test_titles.csv", "a.jpg,b\n", "line 1: there must be a name, a title and a dish"),
        (Food101Titles, "texts/test_titles.csv", "a.jpg,b,soup\n", "'soup' is no dish of the training rows"),
    ],
)
def test_bad_files_are_named(data: Path, cls: type, file: str, content: str | None, said: str) -> None:
    path = MAKERS[cls.title](data) / file
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    message = refusal(cls())
    assert said in message and path.parent.name in message


# ---- AV-MNIST --------------------------------------------------------------------------------------------------------


def test_av_mnist_validates_on_the_last_twelfth_and_standardises_by_training(data: Path) -> None:
    folder = miniatures.make_av_mnist(data)
    splits = AvMnist().splits
    assert {name: len(split.target) for name, split in splits.items()} == {"train": 110, "val": 10, "test": 30}
    raw = np.load(folder / "image" / "train_data.npy").astype(np.float64)
    expected = ((raw - raw[:110].mean()) / raw[:110].std()).reshape(-1, 1, 28, 28)[110:]
    found = splits["val"].inputs["image"][slice(0, 10)]
    torch.testing.assert_close(found, torch.from_numpy(expected).float(), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("file", "array", "said"),
    [
        ("image/test_data.npy", np.zeros((30, 5)), "must hold 30 images of 28x28 numbers"),
        ("audio/train_data.npy", np.zeros((7, 112, 112)), "must hold 120 images of 112x112 numbers, got"),
        ("train_labels.npy", np.full(120, 11), r"must hold [N] digits 0 to 9"),
        ("train_labels.npy", None, "is not a .npy file of numbers"),
        ("image/train_data.npy", np.array([None] * 120, dtype=object), "is not a .npy file of numbers"),
    ],
)
def test_bad_arrays_are_named(data: Path, file: str, array: np.ndarray | None, said: str) -> None:
    path = miniatures.make_av_mnist(data) / file
    if array is None:
        path.write_bytes(path.read_bytes()[:50])
    else:
        np.save(path, array, allow_pickle=array.dtype == object)
    message = refusal(AvMnist())
    assert said in message and str(path) in message


# ---- CREMA-D ---------------------------------------------------------------------------------------------------------


def test_crema_d_keeps_actors_apart(data: Path) -> None:
    recordings.make_crema_d(data)
    splits = CremaD().splits
    actors = {name: set(split.group.tolist()) for name, split in splits.items()}
    assert {name: len(own) for name, own in actors.items()} == {"train": 7, "val": 1, "test": 2}
    assert len(set.union(*actors.values())) == 10
    voice = splits["train"].inputs["voice"]
    torch.testing.assert_close(voice.mean(dim=(0, 1)), torch.zeros(32), atol=1e-4, rtol=0)
    # A higher pitch is a higher band: by emotion, the loudest band of a voice rises.
    loudest = [int(voice[splits["train"].target == k][:, 10].mean(dim=0).argmax()) for k in range(6)]
    assert loudest == sorted(loudest) and len(set(loudest)) == 6


def test_crema_d_as_published_says_that_actors_are_shared(data: Path) -> None:
    folder = recordings.make_crema_d(data)
    datamodule = CremaD(split="published")
    assert {name: len(split.target) for name, split in datamodule.splits.items()} == {"train": 42, "val": 6, "test": 12}
    assert any("same actors" in note for note in datamodule.notes) and datamodule.suffix == "[published]"
    (folder / "test.csv").write_text("1001_DFA_NEU_XX,ANG\n")
    assert "line 1: 1001_DFA_NEU_XX is not ANG by its name" in refusal(CremaD(split="published"))
    (folder / "test.csv").write_text("9999_DFA_NEU_XX,NEU\n")
    assert "line 1: must be a clip of the folder" in refusal(CremaD(split="published"))
    (folder / "test.csv").unlink()
    assert 'use split = "actors"' in refusal(CremaD(split="published"))


def test_crema_d_names_a_clip_without_its_partner_and_a_damaged_voice(data: Path) -> None:
    folder = recordings.make_crema_d(data)
    voice = folder / "AudioWAV" / "1002_DFA_SAD_XX.wav"
    content = voice.read_bytes()
    voice.write_bytes(content[:30])
    assert f"{voice} is not a recording as published" in refusal(CremaD())
    voice.unlink()
    assert "1002_DFA_SAD_XX has no partner in" in refusal(CremaD())


# ---- NYU Depth V2 ----------------------------------------------------------------------------------------------------


def test_nyud2_cuts_pictures_in_halves(data: Path) -> None:
    miniatures.make_nyud2(data)
    datamodule = Nyud2(image_size=32)
    assert {name: len(split.target) for name, split in datamodule.splits.items()} == {"train": 24, "val": 8, "test": 8}
    test = datamodule.splits["test"]
    rgb, depth = (test.inputs[name][slice(0, 8)] for name in ("rgb", "depth"))
    assert (depth[:, 0] == depth[:, 1]).all() and (depth.amax(dim=(1, 2, 3)) < 0.5).all()
    assert (rgb.amax(dim=(1, 2, 3)) > 0.9).all()
    left = rgb[..., :16].sum(dim=(1, 2, 3)) > rgb[..., 16:].sum(dim=(1, 2, 3))
    assert [datamodule.task.class_names[i] for i in test.target] == ["bedroom" if x else "kitchen" for x in left]


def test_nyud2_without_validation_takes_a_fifth_of_training(data: Path) -> None:
    miniatures.make_nyud2(data, ("train", "test"))
    datamodule = Nyud2()
    assert {name: len(split.target) for name, split in datamodule.splits.items()} == {"train": 20, "val": 4, "test": 8}
    assert datamodule.notes == ("nyud2: val: 20% of the published training scenes, fixed",)


# ---- through the whole corridor --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "metric"), [("hateful_memes", "auroc"), ("mmsa", "mae"), ("mmsa", "correlation")])
def test_new_metrics_are_selected_by_stored_and_recomputed(data: Path, tmp_path: Path, name: str, metric: str) -> None:
    if name == "mmsa":
        convert(recordings.make_mmsa(tmp_path / "x.pkl"), data / "mmsa", 12)
        dataset: dict[str, Any] = {"name": name, "metric": metric}
    else:
        miniatures.make_hateful_memes(data)
        dataset = {"name": name, "image_size": 16}
    options = {
        "methods": ["concat", "late"],
        "datasets": [dataset],
        "conditions": ["missing"],
        "baselines": False,
        "recipe": {"epochs": 3, "width": 16, "batch_size": 16, "lr": 1e-2},
    }
    store = Store(tmp_path / "results")
    store.prepare()
    for cell in make_plan(parse(options, "test")).cells:
        assert (cell.metric, cell.higher_is_better) == (metric, metric != "mae")
        record = run_cell(cell, store)
        assert record.status == "ok", record.error
        stored = store.predictions(cell.id)
        for condition in record.conditions:
            again = float(scores.score(metric, stored["target"], stored[f"pred:{condition.id}"]))
            assert again == pytest.approx(condition.score, abs=1e-5), condition.id
        added = contributions(store, record, {"clean": 1.0})
        assert added is not None and added.mean() == pytest.approx(record.clean, abs=1e-5)


def test_the_home_of_nobody_is_a_file_that_is_not_there() -> None:
    with pytest.raises(
        FileNotFoundError, match="'~nobody-of-this-name/x' begins with the home of a user who is not known"
    ):
        find_data("~nobody-of-this-name/x", "file")
