"""Zero-shot: names that training never had, images told by them, and who may be asked."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from benchmark.build import resolve_dataset
from benchmark.matrix import parse
from benchmark.plan import make_plan
from benchmark.runner import run_cell
from datamodules import shapes_caption
from datamodules.hub_image_text import HubImageText
from datamodules.shapes_caption import CLASSES, ShapesCaption
from datamodules.sources.shapes import COLOURS, SHAPES
from datamodules.spec import Modality, Task
from leaderboard.store import Store
from methods.functional.coordination import zero_shot
from methods.parts.identity import identities
from methods.registry import methods
from methods.stage import Output, Recipe
from tests.datamodules.miniatures import make_image_folder
from tests.datamodules.test_features import CLIP

PAIR = (Modality("image", "vector", (4,)), Modality("name", "vector", (4,)))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shapes_caption, "SPLITS", {"train": 160, "val": 60, "test": 60})


def output(z: torch.Tensor) -> Output:
    return Output({}, z, z[:, 0], z[:, 0])


def test_ranks_are_those_of_class_probabilities() -> None:
    """The ranks of `kept` against a loop over CLIP's own formula, templates averaged."""
    torch.manual_seed(0)
    goal = Task("t", "1", PAIR, "zero_shot", 0).goal
    classes, templates, images = 5, 3, 40
    z = torch.randn(images + classes * templates, 2, 4)
    target = torch.cat([torch.randint(0, classes, (images,)), torch.arange(classes).repeat_interleave(templates)])
    gallery = torch.arange(len(z)) >= images
    kept = goal.kept(goal.prediction(output(z)), target, gallery)
    prompts = z[images:, 1].view(classes, templates, 4)
    p = zero_shot(z[:images, 0].double(), prompts.double(), 10.0)
    expected = [1 + int((row > row[c]).sum()) for row, c in zip(p, target[:images].tolist(), strict=True)]
    assert kept.tolist() == [*expected, *[-1] * (classes * templates)]
    accuracy = float((p.argmax(dim=1) == target[:images]).double().mean())
    assert goal.scores(kept, target)["recall_at_1"] == pytest.approx(accuracy)
    assert goal.trivial(target, target, gallery) == 1 / classes


def test_an_image_that_is_absent_is_a_miss_and_so_is_a_collapsed_code() -> None:
    goal = Task("t", "1", PAIR, "zero_shot", 0).goal
    target, gallery = torch.tensor([0, 1, 0, 1]), torch.tensor([False, False, True, True])
    absent = torch.randn(4, 2, 4)
    absent[:2, 0] = 0
    for z in (absent, torch.ones(4, 2, 4)):
        assert goal.kept(goal.prediction(output(z)), target, gallery)[:2].tolist() == [2, 2]


def test_no_combination_is_in_two_splits_and_every_word_is_in_training(few: None) -> None:
    data = ShapesCaption(candidates="all")
    seen = {name: set(split.target[: shapes_caption.SPLITS[name]].tolist()) for name, split in data.splits.items()}
    assert [len(seen[name]) for name in ("train", "val", "test")] == [12, 4, 8]
    assert sum(len(own) for own in seen.values()) == len(set.union(*seen.values())) == len(CLASSES)
    for words in (COLOURS, SHAPES):
        trained = {word for c in seen["train"] for word in CLASSES[c].split()}
        assert set(words) <= trained
    for part in (0, 1):  # neither the colour nor the shape tells a test class
        said = [CLASSES[c].split()[part] for c in seen["test"]]
        assert all(said.count(word) == 2 for word in said)


def test_captions_say_what_is_drawn_and_prompts_have_no_image(few: None) -> None:
    data = ShapesCaption()
    train, test = data.splits["train"], data.splits["test"]
    for row in range(len(train.target)):
        said = data.spell("caption", train.inputs["caption"][row]).split()  # pyright: ignore[reportArgumentType]
        assert set(CLASSES[int(train.target[row])].split()) <= set(said)
    assert test.gallery is not None and test.present is not None
    assert test.gallery.sum() == 8 * 3
    assert test.present[test.gallery].tolist() == [[False, True]] * 24
    assert test.present[~test.gallery].all()
    names = {data.spell("caption", row) for row in test.inputs["caption"][test.gallery]}  # pyright: ignore
    assert "a red circle" in names and "a large blue diamond" in names
    assert ShapesCaption(candidates="all").splits["test"].gallery.sum() == 24 * 3  # pyright: ignore
    with pytest.raises(ValueError, match="at most 10 words of"):
        ShapesCaption(templates=("a photo of a {}",))
    with pytest.raises(ValueError, match="templates"):
        ShapesCaption(templates=("a shape",))


def test_rows_of_one_class_are_mismatches_unless_their_words_are_the_same(few: None) -> None:
    data = ShapesCaption()
    batch = data.train_dataloader().take(torch.arange(60))
    found = identities(data.task, "auto")(batch, torch.ones(60, dtype=torch.bool))
    assert found is not None
    words = batch.inputs["caption"]
    for i in range(60):
        assert (found == found[i]).tolist() == (words == words[i]).all(dim=1).tolist()


@pytest.mark.slow
def test_contrastive_names_combinations_it_never_saw(tmp_path: Path) -> None:
    matrix = {"datasets": ["shapes_caption"], "methods": ["contrastive"], "conditions": "none", "baselines": False,
              "recipe": {"epochs": 12, "width": 64, "batch_size": 128}}  # fmt: skip
    (cell,) = make_plan(parse(matrix, "test")).cells
    record = run_cell(cell, Store(tmp_path), checkpoint=False)
    assert record.status == "ok"
    assert record.trivial == 1 / 8
    assert record.conditions[0].score > 0.4  # 20 epochs: .575 and .579 of two seeds


def test_classes_of_a_folder_can_be_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYMODAL_DATA", str(tmp_path))
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "cache"))
    folder = make_image_folder(tmp_path / "folder")
    for split in ("train", "validation", "test"):  # four colours are too few: every row says its side too
        file = folder / split / "metadata.csv"
        lines = file.read_text().splitlines()
        head, rows = lines[0], [line.rsplit(",", 1) for line in lines[1:]]
        said = [f"{before},{label} {'left' if 'left' in before else 'right'}" for before, label in rows]
        file.write_text("\n".join([head, *said]) + "\n")
    data = HubImageText(path="folder", label_column="label", unseen_classes=True, image_size=16)
    assert data.task.target == "zero_shot"
    test = data.splits["test"]
    assert test.gallery is not None
    own = {name: set(s.target.tolist()) for name, s in data.splits.items()}
    assert not own["train"] & (own["val"] | own["test"]) and not own["val"] & own["test"]
    assert set(test.target[test.gallery].tolist()) == set(test.target[~test.gallery].tolist())
    first = test.inputs["text"][test.gallery][0]  # pyright: ignore[reportArgumentType]
    assert data.spell("text", first) == f"a photo of a {data.task.class_names[int(test.target[test.gallery][0])]}"
    every = HubImageText(path="folder", label_column="label", unseen_classes=True, candidates="all", image_size=16)
    assert len(every.splits["test"].target[every.splits["test"].gallery].unique()) == len(data.task.class_names)
    with pytest.raises(ValueError, match="needs a `label_column`"):
        HubImageText(path="folder", unseen_classes=True)


def test_open_clip_as_published_scores_as_the_model_itself(
    few: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small open_clip model with random weights, through the dataset's encoders and nothing trained."""
    import open_clip

    monkeypatch.setenv("POLYMODAL_WEIGHTS", str(tmp_path))
    folder = tmp_path / "tiny-mine"
    folder.mkdir()
    look = {"size": 32, "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7], "interpolation": "bilinear"}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": CLIP, "preprocess_cfg": look}))
    torch.manual_seed(2)
    model = open_clip.CLIP(**CLIP).eval()  # pyright: ignore[reportArgumentType]
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    tower = {"image": "open_clip:tiny/mine", "caption": "open_clip:tiny/mine", "standardise": False}
    matrix = {"datasets": [{"name": "shapes_caption", **tower}], "methods": ["zero_shot"], "conditions": "none",
              "baselines": False}  # fmt: skip
    (cell,) = make_plan(parse(matrix, "test")).cells
    assert cell.dataset.endswith("standardise=false]")
    record = run_cell(cell, Store(tmp_path / "results"))
    assert record.status == "ok", record.error
    assert record.cost["trainable_parameters"] == 0
    data, test = ShapesCaption(), ShapesCaption().splits["test"]
    assert test.gallery is not None
    mean, deviation = (torch.tensor(look[key]).view(3, 1, 1) for key in ("mean", "std"))
    with torch.no_grad():
        x = F.interpolate(test.inputs["image"][~test.gallery], (32, 32), mode="bilinear", antialias=True)  # pyright: ignore
        images = model.encode_image((x - mean) / deviation)
        said = [data.spell("caption", row) for row in test.inputs["caption"][test.gallery]]  # pyright: ignore
        texts = model.encode_text(open_clip.SimpleTokenizer(context_length=16)(said))
    unseen, labels = test.target[test.gallery][::3], test.target[~test.gallery]
    p = zero_shot(images, texts.view(8, 3, -1), 1.0)
    accuracy = float((unseen[p.argmax(dim=1)] == labels).double().mean())
    assert record.conditions[0].score == pytest.approx(accuracy)
    standardised, _ = resolve_dataset("shapes_caption", {**tower, "standardise": True}, "test")
    moved = standardised.splits["train"].inputs["image"][:].mean(dim=0)  # pyright: ignore[reportAttributeAccessIssue]
    assert moved.abs().max() < 1e-4


def test_features_of_different_spaces_are_not_compared() -> None:
    cls = methods.get("zero_shot")
    assert cls.applies_to(Task("t", "1", PAIR, "zero_shot", 0), {}) is None
    apart = (PAIR[0], Modality("name", "vector", (5,)))
    assert "one space" in (cls.applies_to(Task("t", "1", apart, "pairs", 0), {}) or "")
    assert "labels" in (cls.applies_to(Task("t", "1", PAIR, "multiclass", 3), {}) or "")
    assert not list(cls(Task("t", "1", PAIR, "zero_shot", 0), Recipe()).parameters())
