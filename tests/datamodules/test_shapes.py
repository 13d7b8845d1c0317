"""Rendered scenes: the pixels say what the target says, and the cache is not trusted blindly."""

import numpy as np
import pytest
import torch

from benchmark.build import build_method
from benchmark.evaluate import sweep
from benchmark.seeds import seed_all
from benchmark.trainer import fit
from datamodules import shapes_count, shapes_depth
from datamodules.shapes_count import ShapesCount
from datamodules.shapes_depth import ShapesDepth
from datamodules.sources import shapes
from datamodules.sources.shapes import COLOURS, SHAPES, SIZE, Scenes, cached, distinct, draw_scenes, render
from leaderboard.record import Condition


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer rows, for what does not depend on how many there are."""
    for module in (shapes_depth, shapes_count):
        monkeypatch.setattr(module, "SPLITS", {"train": 120, "val": 40, "test": 40})


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Scenes]:
    """The scenes that `shapes_count` renders."""
    scenes: list[Scenes] = []

    def keep(one: Scenes) -> tuple[torch.Tensor, torch.Tensor]:
        scenes.append(one)
        return render(one)

    monkeypatch.setattr(shapes_count, "render", keep)
    return scenes


def one_object(shape: str, colour: str = "red", depth: float = 0.3, there: bool = True) -> Scenes:
    return Scenes(
        there=torch.tensor([[there]]),
        centre=torch.tensor([[[20.0, 28.0]]]),
        radius=torch.tensor([[7.0]]),
        shape=torch.tensor([[SHAPES.index(shape)]]),
        colour=torch.tensor([[COLOURS.index(colour)]]),
        depth=torch.tensor([[depth]]),
        light=torch.tensor([[1.0, 0.0, 0.0, 0.1]]),
        noise=0,
    )


@pytest.mark.parametrize(
    ("shape", "area"), [("circle", 153.9), ("square", 141.6), ("triangle", 91.7), ("diamond", 129.6)]
)
def test_one_object_is_where_it_should_be(shape: str, area: float) -> None:
    rgb, depth = render(one_object(shape))
    assert rgb.shape == (1, 3, SIZE, SIZE)
    assert depth.shape == (1, 1, SIZE, SIZE)
    assert rgb.dtype == depth.dtype == torch.uint8
    red = rgb[0, 0] > 128
    assert red.sum().item() == pytest.approx(area, rel=0.1)
    rows, columns = red.nonzero().float().add(0.5).T
    assert columns.mean().item() == pytest.approx(28, abs=0.3)
    assert rows.mean().item() == pytest.approx(20, abs=1.0)
    assert (depth[0, 0][red].float() / 255).median().item() == pytest.approx(0.3, abs=0.02)
    assert (depth[0, 0][~red].float() / 255).median().item() > 0.8


def test_pixels_do_not_depend_on_the_processor() -> None:
    """Square roots are rounded as IEEE says, which torch's of a million values are not on every processor."""
    x = torch.rand(1_000_000, generator=torch.Generator().manual_seed(0)) * 1000
    assert torch.equal(shapes._root(x), x.double().sqrt().float())


def test_absent_objects_leave_no_trace() -> None:
    rgb, depth = render(one_object("square", there=False))
    assert rgb.float().std().item() < 10
    assert depth.min().item() > 200


def test_the_nearer_object_is_painted_last() -> None:
    two = [one_object("square", colour, depth) for colour, depth in (("red", 0.2), ("green", 0.5))]
    both = Scenes(*(torch.cat(x, dim=1) for x in zip(*(s[:6] for s in two), strict=True)), two[0].light, 0)
    rgb, depth = render(both)
    assert rgb[0, 0, 20, 28] > 150
    assert rgb[0, 1, 20, 28] < 100
    assert depth[0, 0, 20, 28].item() / 255 == pytest.approx(0.2, abs=0.03)


def test_objects_stand_apart_at_different_depths() -> None:
    rng = np.random.default_rng(0)
    scenes = draw_scenes(rng, torch.ones(300, 5, dtype=torch.bool), distinct(rng, 300, 6, 5))
    ordered = scenes.depth.sort(dim=1).values
    assert ordered.diff(dim=1).min().item() > 0.02
    assert ordered.diff(dim=1)[:, 0].min().item() > 0.18
    distance = torch.cdist(scenes.centre, scenes.centre) + 99 * torch.eye(5)
    assert distance.min().item() > 11.9
    assert all(len(set(row)) == 5 for row in scenes.colour.tolist())


def test_depth_target_is_read_off_the_pixels(few: None) -> None:
    """The colour, in the image, of the darkest pixels of the depth map: what a method has to learn."""
    datamodule = ShapesDepth()
    hit = []
    for split in datamodule.splits.values():
        rows = torch.arange(len(split.target))
        rgb, depth = split.inputs["rgb"][rows], split.inputs["depth"][rows]
        assert rgb.shape == depth.shape == (len(rows), 3, SIZE, SIZE)
        assert 0 <= rgb.min() <= rgb.max() <= 1
        near = depth[:, 0] < depth[:, 0].flatten(1).min(dim=1).values[:, None, None] + 0.05
        mean = torch.stack([(image * mask).sum((1, 2)) / mask.sum() for image, mask in zip(rgb, near, strict=True)])
        hue = torch.nn.functional.normalize(mean, dim=1) @ torch.nn.functional.normalize(shapes._PALETTE, dim=1).T
        hit.append((hue.argmax(1) == split.target).float().mean())
    assert torch.stack(hit).min().item() > 0.95


def test_count_objects_are_where_and_what_they_are_said_to_be(few: None, drawn: list[Scenes]) -> None:
    datamodule = ShapesCount()
    split = datamodule.splits["train"]
    rows = torch.arange(len(split.target))
    image, question, scenes = split.inputs["image"][rows], split.inputs["question"], drawn[0]
    asked = question.argmax(dim=1)
    torch.testing.assert_close(scenes.colour[rows, 0], asked)
    centre = scenes.centre[rows].long()
    painted = image[rows[:, None], :, centre[..., 0], centre[..., 1]]  # [N, 6, 3]
    hue = torch.nn.functional.normalize(painted, dim=-1) @ torch.nn.functional.normalize(shapes._PALETTE, dim=1).T
    assert (hue.argmax(-1) == scenes.colour[rows]).float().mean().item() > 0.98
    ours = scenes.colour[rows] == asked[:, None]
    assert (ours.sum(1) == shapes_count.EACH).all()
    circles = ((scenes.shape[rows] == SHAPES.index("circle")) & ours).sum(1)
    assert torch.equal(circles, split.target)
    assert datamodule.spell("question", question[0]) == f"how many {COLOURS[int(asked[0])]} objects are circles?"
    assert datamodule.spell("image", image[0]) == ""


def test_the_answer_is_balanced_and_independent_of_the_other_colour(drawn: list[Scenes]) -> None:
    target = shapes_count.generate()["target"]
    others = (drawn[0].shape[:, shapes_count.EACH :] == SHAPES.index("circle")).sum(1)
    for n in range(4):
        share = torch.bincount(target[others == n], minlength=4) / (others == n).sum()
        assert (share - 0.25).abs().max().item() < 0.04
    # Who averages over all six objects knows the sum of two counts, and of each sum can be right for one answer.
    joint = torch.bincount(4 * (target + others) + target, minlength=28).reshape(7, 4)
    assert joint.amax(1).sum().item() / len(target) == pytest.approx(7 / 16, abs=0.02)


def test_cache_is_read_and_a_damaged_file_is_rebuilt(tmp_path) -> None:
    built = []

    def build() -> dict[str, torch.Tensor]:
        built.append(1)
        return {"x": torch.arange(5)}

    for _ in range(2):
        assert cached("t", build)["x"].tolist() == [0, 1, 2, 3, 4]
    assert len(built) == 1
    stored = tmp_path / "shapes" / "t.npz"
    stored.write_bytes(stored.read_bytes()[:-7])
    assert cached("t", build)["x"].tolist() == [0, 1, 2, 3, 4]
    assert len(built) == 2


@pytest.mark.slow
def test_depth_task_needs_both_modalities() -> None:
    """Either image alone stays below .75 and a good fusion reaches .95: the difficulty the dataset promises."""
    datamodule = ShapesDepth()
    recipe = {"width": 32, "epochs": 5, "batch_size": 64, "lr": 2e-3}

    def score(name: str, **options: str) -> float:
        seed_all("shapes_depth", 0, "init")
        method = build_method(name, options, datamodule.task, recipe)
        fit(method, datamodule)
        return sweep(method, datamodule, (Condition("clean"),)).conditions[0].score

    assert score("channel_exchange") >= 0.95
    assert score("unimodal", modality="rgb") < 0.75
    assert score("unimodal", modality="depth") < 0.75
    # The same network, with nothing exchanged between the modalities.
    assert score("channel_exchange", exchange="none") < 0.75


@pytest.mark.slow
@pytest.mark.parametrize("dataset", [ShapesDepth, ShapesCount])
def test_rows_are_the_published_ones(dataset: type) -> None:
    datamodule = dataset()
    assert datamodule.fingerprint() == datamodule.sha256
    again = dataset()  # from the cache
    assert again.fingerprint() == datamodule.sha256
