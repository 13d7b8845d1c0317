"""The score of attention: masses of cells, places of what is asked about, from a method to its record."""

import math
from types import SimpleNamespace

import pytest
import torch

from benchmark.attention import attention_scores, cell_masses, score_rows
from benchmark.commands.attend import told
from benchmark.conformance.probe import Probe
from datamodules import datasets, shapes_count, shapes_depth
from datamodules.sources import shapes
from methods import Recipe, methods
from methods.functional.attention import Mixture
from methods.parts.attention import Attended

GRID = (4, 6)


def one_gaussian(mu: tuple[float, float], sd: float) -> Attended:
    mixture = Mixture(torch.ones(1, 1), torch.tensor([[mu]]), (sd**2 * torch.eye(2))[None, None])
    return Attended(GRID, torch.zeros(1, 24), None, mixture, "gaussian")


def test_the_mass_of_a_density_is_its_integral_over_each_cell() -> None:
    def share(low: float, high: float, mu: float, sd: float) -> float:
        return 0.5 * (math.erf((high - mu) / sd / 2**0.5) - math.erf((low - mu) / sd / 2**0.5))

    mu, sd = (0.4, 0.9), 0.15
    expected = [
        share(i / 4, (i + 1) / 4, mu[0], sd) * share(j / 6, (j + 1) / 6, mu[1], sd) for i in range(4) for j in range(6)
    ]
    found = cell_masses(one_gaussian(mu, sd))[0]
    assert found.tolist() == pytest.approx(expected, abs=1e-3)
    assert sum(expected) < 0.8  # a part of it is beside the image, and in no cell
    assert float(cell_masses(one_gaussian((0.4, 0.5), 0.002)).sum()) <= 1 + 1e-6


def test_scores_of_known_attention() -> None:
    place = torch.zeros(2, 8, 12, dtype=torch.bool)
    place[0, :2, :4] = True  # the first two of 4 x 6 cells
    place[1, 7, 11] = True  # a quarter of the last cell
    weights = torch.zeros(2, 24)
    weights[0, 0], weights[0, 5], weights[1, 23] = 0.7, 0.3, 1.0
    found = score_rows(Attended(GRID, weights), place)
    assert found["asked"].tolist() == pytest.approx([0.7, 1.0])
    assert found["uniform"].tolist() == pytest.approx([2 / 24, 1 / 24])
    assert found["support"].tolist() == pytest.approx([2 / 24, 1 / 24])
    entropy = -(0.7 * math.log(0.7) + 0.3 * math.log(0.3)) / math.log(24)
    assert found["entropy"].tolist() == pytest.approx([entropy, 0.0], abs=1e-6)
    flat = score_rows(Attended(GRID, torch.full((2, 24), 1 / 24)), place)
    assert flat["asked"].tolist() == pytest.approx(flat["uniform"].tolist())
    assert flat["entropy"].tolist() == pytest.approx([1.0, 1.0])


def discs(scenes: shapes.Scenes, row: int, chosen: torch.Tensor, scale: float) -> torch.Tensor:
    """Pixels within a share of the radius of the chosen objects."""
    axis = torch.arange(shapes.SIZE) + 0.5
    found = torch.zeros(shapes.SIZE, shapes.SIZE, dtype=torch.bool)
    for k in chosen.nonzero().flatten().tolist():
        (y, x), r = scenes.centre[row, k], scenes.radius[row, k]
        found |= ((axis[:, None] - y) ** 2 + (axis[None, :] - x) ** 2).sqrt() < scale * r
    return found


@pytest.mark.parametrize(("module", "modality"), [(shapes_count, "image"), (shapes_depth, "depth")])
def test_places_are_where_the_scene_has_the_asked_objects(module, modality, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[shapes.Scenes] = []
    render = module.render
    monkeypatch.setattr(module, "SPLITS", {"train": 30, "val": 5, "test": 5})
    monkeypatch.setattr(module, "cached", lambda name, build: build())
    monkeypatch.setattr(module, "render", lambda scenes: (drawn.append(scenes), render(scenes))[1])
    data = {shapes_count: shapes_count.ShapesCount, shapes_depth: shapes_depth.ShapesDepth}[module]()
    places = data.places("train")[modality]
    (scenes,) = drawn
    for row in range(30):
        if module is shapes_count:
            question = data.splits["train"].inputs["question"][row]
            asked = scenes.colour[row] == question.argmax()
            assert int(asked.sum()) == 3
        else:
            depth = torch.where(scenes.there[row], scenes.depth[row], 2.0)
            asked = depth == depth.min()
        inner, outer = discs(scenes, row, asked, 0.4), discs(scenes, row, asked, 1.3)
        # Objects stand apart, but another may reach over the rim.
        assert float((places[row] & inner).sum() / inner.sum()) > 0.95
        assert float((places[row] & ~outer).sum() / places[row].sum()) < 0.05


def test_easy_vqa_knows_the_pixels_of_its_shape() -> None:
    data = datasets.get("easy_vqa")()
    places = data.places("test")["image"]
    image = data.splits["test"].inputs["image"][torch.arange(50)]
    share = places[:50].float().mean(dim=(1, 2))
    assert ((share > 0.005) & (share < 0.7)).all() and len(places) == len(data.splits["test"].target)
    for x, place in zip(image, places[:50], strict=True):
        assert float(x[:, ~place].std(dim=1).mean()) < 0.1 < float((x[:, place].mean() - x[:, ~place].mean()).abs())


class Placed(Probe):
    def places(self, split):
        found = torch.zeros(len(self.splits[split].target), 8, 8, dtype=torch.bool)
        found[:, :4] = True
        return {"image": found}


@pytest.mark.parametrize("name", ["softmax_attention", "mixture_attention", "continuous_sparsemax", "emma"])
def test_every_attention_method_is_scored_and_no_other(name: str) -> None:
    data = Placed(shape="image_text")
    torch.manual_seed(0)
    method = methods.get(name)(data.task, Recipe(width=8)).train(False)
    found = attention_scores(method, data, "test")
    if name == "emma":
        assert found == {}
        return
    assert set(found) == {f"attention/image/{key}" for key in ("asked", "uniform", "entropy", "support")}
    assert found["attention/image/uniform"] == pytest.approx(0.5)
    assert 0 <= found["attention/image/asked"] <= 1 and 0 < found["attention/image/entropy"] <= 1 + 1e-6
    assert attention_scores(method, Probe(shape="image_text"), "test") == {}


def test_attend_tells_the_scores() -> None:
    keys = ("asked", "uniform", "entropy", "support")
    summary = {f"attention/image/{key}": place / 4 for place, key in enumerate(keys)}
    found = SimpleNamespace(cell=SimpleNamespace(label="softmax_attention"), summary=summary)
    (line,) = told([found])  # type: ignore[list-item]
    assert "softmax_attention, image: 0% of the attention" in line
    assert "uniform: 25%" in line and "75% of the cells" in line
