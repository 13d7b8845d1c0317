"""CUB, Cars, SOP, In-Shop and Aircraft, on tiny folders in the published layouts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from benchmark.matrix import parse
from benchmark.plan import make_plan
from benchmark.runner import run_cell
from datamodules.aircraft import Aircraft
from datamodules.base import Split
from datamodules.bases.image_retrieval import ImageRetrieval, whole_and_detail
from datamodules.cars import Cars
from datamodules.cub import Cub
from datamodules.inshop import Inshop
from datamodules.rows.crops import Crops, PhotoBatches
from datamodules.rows.per_class import per_class_order
from datamodules.sop import Sop
from datamodules.spec import Modality, Task
from leaderboard.store import Store


@pytest.fixture
def root(data: Path) -> Path:
    return data


def photo(path: Path, label: int, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((20, 30, 3), 10 * label, dtype=np.uint8)
    pixels[5:15, 8:22] = 255 - 10 * label
    Image.fromarray(pixels).convert(mode).save(path)


def make_cub(root: Path) -> None:
    folder = root / "CUB_200_2011"
    # Classes 1-5 train (the fifth validates), 101-103 are unseen. Not sorted, one grey photo.
    labels = [101, 1, 2, 3, 4, 5, 102, 1, 2, 3, 4, 5, 101, 103, 103]
    for i, label in enumerate(labels, start=1):
        photo(folder / "images" / f"{label:03d}.Bird" / f"{i}.jpg", label % 20, "L" if i == 3 else "RGB")
    names = [f"{i} {label:03d}.Bird/{i}.jpg" for i, label in enumerate(labels, start=1)]
    (folder / "images.txt").write_text("\n".join(names) + "\n")
    classes = [f"{i} {label}" for i, label in enumerate(labels, start=1)]
    (folder / "image_class_labels.txt").write_text("\n".join(classes) + "\n")


def make_cars(root: Path) -> None:
    folder = root / "cars196"
    labels = [1, 1, 2, 2, 3, 3, 99, 99, 100, 100]
    kinds = [("relative_im_path", object), ("class", object), ("test", object)]
    annotations = np.zeros((1, len(labels)), dtype=kinds)
    for i, label in enumerate(labels):
        name = f"car_ims/{i + 1:06d}.jpg"
        photo(folder / name, label % 20)
        annotations[0, i] = (np.array([name]), np.array([[label]]), np.array([[i % 2]]))
    savemat(folder / "cars_annos.mat", {"annotations": annotations})


def make_sop(root: Path) -> None:
    folder = root / "Stanford_Online_Products"
    identifier = 0
    for file, labels in (("Ebay_train.txt", [1, 1, 2, 2, 3, 3]), ("Ebay_test.txt", [11319, 11319, 11320, 11320])):
        lines = ["image_id class_id super_class_id path"]
        for label in labels:
            identifier += 1
            name = f"bicycle_final/{identifier}_{label}.JPG"
            photo(folder / name, label % 20)
            lines.append(f"{identifier} {label} 1 {name}")
        (folder / file).write_text("\n".join(lines) + "\n")


def make_inshop(root: Path) -> None:
    folder = root / "In-shop Clothes Retrieval Benchmark"
    rows = [(item, "train") for item in (1, 1, 2, 2, 3, 3)]
    rows += [(7, "query"), (7, "gallery"), (8, "query"), (8, "gallery"), (8, "gallery")]
    lines = [str(len(rows)), "image_name item_id evaluation_status"]
    for i, (item, status) in enumerate(rows):
        name = f"img/WOMEN/Dresses/id_{item:08d}/{i}_front.jpg"
        photo(folder / "Img" / name, item)
        lines.append(f"{name}   id_{item:08d}   {status}")
    (folder / "Eval").mkdir()
    (folder / "Eval" / "list_eval_partition.txt").write_text("\n".join(lines) + "\n")


def make_aircraft(root: Path) -> None:
    data = root / "fgvc-aircraft-2013b" / "data"
    variants = [f"Boeing 7{i:02d}-200" for i in range(100)]
    data.mkdir(parents=True)
    (data / "variants.txt").write_text("\n".join(variants) + "\n")
    numbers = [0, 1, 2, 50, 51, 51, 0, 1, 2, 50]
    for i, number in enumerate(numbers):
        photo(data / "images" / f"{i:07d}.jpg", number % 20)
    lines = [f"{i:07d} {variants[number]}" for i, number in enumerate(numbers)]
    (data / "images_variant_trainval.txt").write_text("\n".join(lines[:6]) + "\n")
    (data / "images_variant_test.txt").write_text("\n".join(lines[6:]) + "\n")


SETS = {  # name: maker, class, training / validation / test classes, rows
    "cub": (make_cub, Cub, (4, 1, 3), (8, 2, 5)),
    "cars": (make_cars, Cars, (2, 1, 2), (4, 2, 4)),
    "sop": (make_sop, Sop, (2, 1, 2), (4, 2, 4)),
    "inshop": (make_inshop, Inshop, (2, 1, 2), (4, 2, 5)),
    "aircraft": (make_aircraft, Aircraft, (2, 1, 2), (4, 2, 4)),
}


def load(name: str, root: Path, size: int = 8) -> ImageRetrieval:
    make, cls, *_ = SETS[name]
    make(root)
    return cls(size=size)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.filterwarnings("ignore:.*as published")
def test_published_layout(name, root):
    data = load(name, root)
    *_, classes, rows = SETS[name]
    splits = data.splits
    assert data.task.name == name
    assert data.task.target == "retrieval"
    assert data.task.num_outputs == classes[0]
    labels = [set(splits[s].target.tolist()) for s in ("train", "val", "test")]
    assert tuple(map(len, labels)) == classes
    assert tuple(len(splits[s].target) for s in ("train", "val", "test")) == rows
    assert labels[0] == set(range(classes[0]))  # what a head of num_outputs can learn
    assert not labels[0] & labels[1]
    assert not (labels[0] | labels[1]) & labels[2]
    batch = next(iter(data.test_dataloader()))
    assert batch.inputs["whole"].shape == (rows[2], 3, 8, 8)
    assert batch.inputs["detail"].dtype == torch.float32
    assert 0 <= batch.inputs["whole"].min() <= batch.inputs["whole"].max() <= 1


@pytest.mark.parametrize("name", SETS)
@pytest.mark.filterwarnings("ignore:.*as published")
def test_every_photo_meets_its_label(name, root):
    data = load(name, root)
    order = [label for classes in data.classes.values() for label in classes]
    for split in data.splits.values():
        for i, target in enumerate(split.target.tolist()):
            label = order[target]
            number = int(str(label).rpartition("_")[2]) % 20
            corner = split.inputs["whole"][torch.tensor([i])][0, :, 0, 0] * 255
            assert corner.tolist() == pytest.approx([10 * number] * 3, abs=12)


def test_another_count_than_published_is_a_warning_that_stays(root):
    data = load("cub", root)
    with pytest.warns(UserWarning, match="5864"):
        _ = data.task
    assert len(data.notes) == 1
    assert "'train': 10" in data.notes[0]


def test_the_published_counts_give_no_note(root, monkeypatch, recwarn):
    monkeypatch.setattr(Cub, "expected", {"train": 10, "test": 5})
    data = load("cub", root)
    _ = data.task
    assert data.notes == ()
    assert not [w for w in recwarn if "published" in str(w.message)]


@pytest.mark.parametrize(
    ("cls", "expected"),
    [
        (Cub, {"train": 5864, "test": 5924}),
        (Cars, {"train": 8054, "test": 8131}),
        (Sop, {"train": 59551, "test": 60502}),
        (Inshop, {"train": 25882, "query": 14218, "gallery": 12612}),
        (Aircraft, {"train": 5000, "test": 5000}),
    ],
)
def test_expected_counts(cls, expected):
    assert cls.expected == expected


@pytest.mark.parametrize(
    ("name", "ks"),
    [("cub", (1, 2, 4, 8)), ("cars", (1, 2, 4, 8)), ("sop", (1, 10, 100, 1000)), ("inshop", (1, 10, 20, 30, 40, 50))],
)
@pytest.mark.filterwarnings("ignore:.*as published")
def test_recall_at_the_published_ks(name, ks, root):
    data = load(name, root)
    test = data.splits["test"]
    found = data.task.goal.evaluate(torch.eye(8)[: len(test.target)], test.target, test.gallery)
    assert {key for key in found if key.startswith("recall")} == {f"recall_at_{k}" for k in ks}


@pytest.mark.filterwarnings("ignore:.*as published")
def test_queries_of_inshop_are_answered_by_the_gallery_alone(root):
    data = load("inshop", root)
    splits = data.splits
    assert splits["train"].gallery is None
    assert splits["val"].gallery is None
    gallery, target = splits["test"].gallery, splits["test"].target
    assert gallery is not None
    assert gallery.tolist() == [False, True, False, True, True]
    # Both queries look alike; their nearest neighbour is the other query, then item 8's first gallery photo.
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [1.0, 0.3], [-1.0, 0.0]])
    assert data.task.goal.kept(x, target, gallery).tolist() == [2, -1, 1, -1, -1]
    found = data.task.goal.evaluate(x, target, gallery)
    assert found["recall_at_1"] == 0.5
    assert found["recall_at_10"] == 1
    assert data.task.goal.kept(x, target).tolist() != [2, -1, 1, -1, -1]
    # A random gallery of three has one photo of the first query's item and two of the second's.
    assert data.task.goal.trivial(splits["train"].target, target, gallery) == pytest.approx((1 / 3 + 2 / 3) / 2)
    assert data.fingerprint() != _without_gallery(data).fingerprint()


def _without_gallery(data: ImageRetrieval) -> ImageRetrieval:
    same = type(data)(size=data.size)
    same.splits = {name: split._replace(gallery=None) for name, split in data.splits.items()}
    return same


def test_a_gallery_is_ranked_as_a_loop_would(monkeypatch):
    """Whatever the chunks: every query against every gallery row, one by one."""
    task = Task("toy", "1", (Modality("a", "vector", (4,)), Modality("b", "vector", (4,))), "retrieval", 3)
    generator = torch.Generator().manual_seed(0)
    x, target = torch.randn(40, 4, generator=generator), torch.randint(6, (40,), generator=generator)
    gallery = (torch.rand(40, generator=generator) < 0.4) & (target != 5)  # nothing answers a 5
    expected = []
    for i in range(40):
        others = gallery.nonzero().squeeze(1)
        order = others[torch.cosine_similarity(x[i], x[others]).argsort(descending=True)]
        right = (target[order] == target[i]).nonzero()
        expected.append(-1 if gallery[i] or not len(right) else int(right[0]) + 1)
    assert -1 in [e for e, g in zip(expected, gallery.tolist(), strict=True) if not g]
    for similarities in (1, 100, 2**22):
        monkeypatch.setattr("datamodules.targets.retrieval.SIMILARITIES", similarities)
        assert task.goal.kept(x, target, gallery).tolist() == expected


def test_no_more_similarities_are_alive_than_allowed(monkeypatch):
    sizes = []

    def spy(queries, gallery, query_labels, gallery_labels, exclude_self, chunk):
        sizes.append(chunk * len(gallery))
        return torch.zeros(len(queries), dtype=torch.long)

    monkeypatch.setattr("datamodules.targets.retrieval.first_positive_rank", spy)
    task = Task("toy", "1", (Modality("a", "vector", (4,)), Modality("b", "vector", (4,))), "retrieval", 3)
    rows = torch.zeros(60_502, 2)
    target, half = torch.zeros(60_502, dtype=torch.long), torch.arange(60_502) % 2 == 0
    for gallery in (None, half):
        task.goal.kept(rows, target, gallery)
    assert len(sizes) == 2
    assert max(sizes) <= 2**22


@pytest.mark.filterwarnings("ignore:.*as published")
def test_a_cell_on_inshop_is_scored_by_the_gallery(root, tmp_path):
    """Through training, sweep and summary: NMI and the recalls between modalities are those of all test photos."""
    make_inshop(root)
    matrix = parse(
        {
            "methods": [{"name": "skewed_mean", "regularizer": "none"}],
            "datasets": [{"name": "inshop", "size": 8}],
            "conditions": ["missing"],
            "baselines": False,
            "recipe": {"epochs": 1, "width": 8, "batch_size": 4},
        },
        "test",
    )
    (cell,) = make_plan(matrix).cells
    store = Store(tmp_path / "results")
    store.prepare()
    record = run_cell(cell, store)
    assert record.status == "ok", record.error
    assert record.trivial == pytest.approx(0.5)
    stored = store.predictions(cell.id)
    for condition in record.conditions:
        rank = stored[f"pred:{condition.id}"]
        assert (rank > 0).tolist() == [True, False, True, False, False]
        assert condition.score == pytest.approx((rank[rank > 0] == 1).mean())
        assert condition.metrics["recall_at_50"] == 1
    assert 0 <= record.summary["nmi"] <= 1
    assert "recall_at_1_whole_to_fused" in record.summary


def test_ks_rise_from_one():
    pair = (Modality("a", "vector", (4,)), Modality("b", "vector", (4,)))
    assert Task("toy", "1", pair, "pairs", 0).ks == (1, 5, 10)
    assert Task("toy", "1", pair, "multiclass", 3).ks == ()
    with pytest.raises(ValueError, match="`ks`"):
        Task("toy", "1", pair, "retrieval", 3, ks=(10, 20))


@pytest.mark.filterwarnings("ignore:.*as published")
def test_photos_are_decoded_once(root, monkeypatch):
    first = load("sop", root).splits["train"].inputs["whole"][:]
    monkeypatch.setattr("datamodules.sources.image_table.decode", lambda *_: pytest.fail("decoded again"))
    assert Sop(size=8).splits["train"].inputs["whole"][:].equal(first)


def test_the_detail_is_the_central_half():
    pixels = np.zeros((40, 80, 3), dtype=np.uint8)
    pixels[10:30, 20:60] = 200
    whole, detail = whole_and_detail(Image.fromarray(pixels), 8)
    assert (detail == 200).all()
    assert whole.min() == 0


def test_errors(root):
    with pytest.raises(FileNotFoundError, match="CUB_200_2011"):
        _ = Cub().task
    make_sop(root)
    file = root / "Stanford_Online_Products" / "Ebay_test.txt"
    file.write_text("image_id class_id super_class_id path\n9 4 1 ../../secret.jpg\n")
    with pytest.raises(ValueError, match=r"must name files in its folder, got .*secret"):
        _ = Sop().task
    file.write_text("image_id class_id super_class_id path\n9 1 1 a.jpg\n")
    with pytest.raises(ValueError, match="both training and test"):
        _ = Sop().task
    file.write_text("id class path\n")
    with pytest.raises(ValueError, match=r"the columns of Ebay_test\.txt must be"):
        _ = Sop().task
    make_inshop(root)
    file = root / "In-shop Clothes Retrieval Benchmark" / "Eval" / "list_eval_partition.txt"
    file.write_text(file.read_text().replace("gallery", "galery"))
    with pytest.raises(ValueError, match="galery"):
        _ = Inshop().task
    with pytest.raises(ValueError, match="`size` must be an integer >= 8, got 4"):
        Cub(size=4)


def photos(rows: int = 12, side: int = 10, size: int = 8) -> Split:
    bytes_ = torch.randint(0, 256, (rows, 3, side, side), generator=torch.Generator().manual_seed(0)).byte()
    crops = Crops(bytes_, torch.arange(rows), size)
    return Split({"whole": crops, "detail": crops}, torch.arange(rows) % 3)


def test_training_sees_random_crops_and_mirror_images_and_others_the_centre():
    split = photos()
    stored = split.inputs["whole"].values.float() / 255  # pyright: ignore[reportAttributeAccessIssue]
    torch.testing.assert_close(split.inputs["whole"][:], stored[:, :, 1:9, 1:9])
    batches = PhotoBatches(split, ("whole", "detail"), 6, seed=3, augment=True, per_class=0)
    seen = set()
    for _ in range(20):
        for batch in batches:
            assert batch.inputs["whole"].equal(batch.inputs["detail"])  # one crop a row
            for row, image in zip(batch.row.tolist(), batch.inputs["whole"], strict=True):
                places = [
                    (y, x, flip)
                    for y in range(3)
                    for x in range(3)
                    for flip in (False, True)
                    if torch.allclose(image.flip(-1) if flip else image, stored[row, :, y : y + 8, x : x + 8])
                ]
                assert len(places) == 1
                seen.add(places[0])
    assert seen == {(y, x, flip) for y in range(3) for x in range(3) for flip in (False, True)}
    plain = PhotoBatches(split, ("whole",), 6, seed=3, augment=False, per_class=0)
    for batch in plain:
        torch.testing.assert_close(batch.inputs["whole"], split.inputs["whole"][batch.row])


def test_epochs_differ_and_runs_are_the_same():
    def epochs(seed: int) -> list[torch.Tensor]:
        batches = PhotoBatches(photos(), ("whole",), 12, seed=seed, augment=True, per_class=0)
        return [next(iter(batches)).inputs["whole"] for _ in range(2)]

    (a, b), (c, d) = epochs(5), epochs(5)
    assert a.equal(c) and b.equal(d) and not a.equal(b)


def test_a_batch_has_so_many_rows_of_each_of_its_classes():
    target = torch.tensor([0] * 5 + [1] * 9 + [2] * 1 + [3] * 4)
    order = per_class_order(target, 4, torch.Generator().manual_seed(0))
    groups = order.view(-1, 4)
    assert [int(target[group].unique().numel()) for group in groups] == [1] * len(groups)
    assert sorted(target[groups[:, 0]].tolist()) == [0, 1, 1, 2, 3]
    assert len(order.unique()) == 4 + 8 + 1 + 4  # a class too small for a group has rows twice, others never
    split = photos(24)
    for batch in PhotoBatches(split, ("whole",), 8, seed=0, augment=True, per_class=4):
        counts = batch.target.bincount(minlength=3)
        assert counts.sum() == 8 and set(counts.tolist()) <= {0, 4, 8}
    assert len(list(PhotoBatches(split, ("whole",), 8, seed=0, augment=False, per_class=2))) == 3
    with pytest.raises(ValueError, match="must divide the batch of 8 rows, got 3"):
        PhotoBatches(split, ("whole",), 8, seed=0, augment=False, per_class=3)
