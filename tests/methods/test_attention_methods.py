"""The attention methods: masks, grids, queries, settings and the maps that are drawn of them."""

import pytest
import torch
from torch import Tensor

from benchmark.commands.attend import choose, parse_rows
from benchmark.pictures.attention_maps import density, draw_sheet, look, one_row
from datamodules.base import DataModule, Split, SplitName
from datamodules.spec import Batch, Modality, Task
from leaderboard.store import Store
from methods import Recipe, methods
from methods.functional.attention import cell_centers, gaussian_density, paraboloid_density
from methods.parts.attention import Attended, AttentionMethod, rbfs_of
from tests.methods.conftest import batch_of, build

NAMES = ("softmax_attention", "sparsemax_attention", "continuous_softmax", "continuous_sparsemax", "mixture_attention")
OPTIONS = [
    *(pytest.param(name, {}, id=name) for name in NAMES),
    pytest.param("softmax_attention", {"query": "constant", "heads": 2}, id="constant-query"),
    pytest.param("softmax_attention", {"align": "additive"}, id="additive"),
    pytest.param("mixture_attention", {"align": "multiplicative"}, id="multiplicative"),
    pytest.param("continuous_sparsemax", {"alpha": 1.5}, id="entmax"),
    pytest.param("continuous_softmax", {"setting": "direct"}, id="direct-softmax"),
    pytest.param("continuous_sparsemax", {"setting": "direct"}, id="direct-sparsemax"),
    pytest.param("mixture_attention", {"components": 2, "component": "paraboloid", "mixing": "sparse"}, id="sparse"),
    pytest.param("mixture_attention", {"select": True, "max_components": 3}, id="selected"),
]
RECIPE = Recipe(width=16)
IMAGE = Modality("image", "image", (3, 16, 16))
TEXT = Modality("question", "text", (6,), vocabulary=9)
TASK = Task("t", "1", (IMAGE, TEXT, Modality("v", "vector", (5,)), Modality("s", "sequence", (24, 3))), "multiclass", 4)


def make(name: str, options: dict) -> AttentionMethod:
    return build(name, TASK, recipe=RECIPE, **options)


def batch() -> tuple[dict[str, Tensor], Tensor]:
    rows = batch_of(TASK, 5)
    return {**rows.inputs, "image": rows.inputs["image"].sigmoid()}, rows.present


def attention_of(method: AttentionMethod, inputs: dict[str, Tensor], present: Tensor) -> dict[str, Attended]:
    return method.attention(method(inputs, present).tokens, present)


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_pool_is_the_attention_and_the_attention_asks_the_others(name: str, options: dict) -> None:
    method, (inputs, present) = make(name, options).eval(), batch()
    with torch.no_grad():
        out = method(inputs, present)
        attention = method.attention(out.tokens, present)
        other = dict(inputs, v=inputs["v"] + 3)
        moved = attention_of(method, other, present)
    assert set(attention) == {"image", "question", "s"}
    for i, modality in enumerate(TASK.names):
        if modality in attention:
            tokens = out.tokens[modality]
            x = tokens.x if tokens.mask is None else tokens.x * tokens.mask[..., None]
            pooled = torch.einsum("bl,bld->bd", attention[modality].weights, x)
            torch.testing.assert_close(out.z[:, i], pooled)
    changed = (moved["image"].weights - attention["image"].weights).abs().max().item()
    assert (changed > 1e-4) == (options.get("query") != "constant")


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_padding_gets_no_probability_and_does_not_matter(name: str, options: dict) -> None:
    method, (inputs, present) = make(name, options).eval(), batch()
    with torch.no_grad():
        out = method(inputs, present)
        seen = method.attention(out.tokens, present)["question"]
        if seen.scores is not None:
            assert (seen.scores[:, 4:] == 0).all()
            torch.testing.assert_close(seen.scores.sum(-1), torch.ones(5))
        # Other content under the mask, such as an encoder leaves there, must not reach the encodings.
        question = out.tokens["question"]
        assert question.mask is not None
        other = question._replace(x=torch.where(question.mask[..., None], question.x, 100.0))
        assert not torch.equal(other.x, question.x)
        again = method.complete({**out.tokens, "question": other}, present)
    torch.testing.assert_close(again.z, out.z)
    torch.testing.assert_close(again.logits, out.logits)


def test_sparsemax_attention_has_exact_zeros() -> None:
    method, (inputs, present) = make("sparsemax_attention", {"heads": 1}).eval(), batch()
    with torch.no_grad():
        for key in method.key.values():
            key.weight.mul_(6)
        weights = attention_of(method, inputs, present)["image"].weights
    assert (weights == 0).any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(5))


@pytest.mark.parametrize("name", ["continuous_softmax", "continuous_sparsemax", "mixture_attention"])
def test_density_has_the_moments_of_the_scores(name: str) -> None:
    method, (inputs, present) = make(name, {}).eval(), batch()
    with torch.no_grad():
        seen = attention_of(method, inputs, present)["image"]
    assert seen.scores is not None and seen.mixture is not None
    points = cell_centers(seen.grid).float()
    mean = (seen.mixture.pi.unsqueeze(-1) * seen.mixture.mu).sum(1)
    torch.testing.assert_close(mean, seen.scores @ points, atol=1e-4, rtol=0)
    torch.testing.assert_close(seen.mixture.pi.sum(-1), torch.ones(5), atol=1e-5, rtol=0)


def test_value_function_reproduces_the_tokens() -> None:
    """Concentrated attention on a cell returns about that cell's token: regression and density share one grid."""
    rbfs = rbfs_of((6, 6), None, 0.5, torch.device("cpu"))
    design = gaussian_density(cell_centers((6, 6)), rbfs.centers, rbfs.covs)  # [N, L]
    hat = design.T @ rbfs.operator.T
    torch.testing.assert_close(hat, torch.eye(36, dtype=torch.float64), rtol=0, atol=0.01)
    assert rbfs.operator.dtype == torch.float64


def test_selected_components_differ_between_training_and_test() -> None:
    method, (inputs, present) = make("mixture_attention", {"select": True, "max_components": 3}), batch()
    with torch.no_grad():
        fixed = attention_of(method, inputs, present)["image"].mixture
        chosen = attention_of(method.eval(), inputs, present)["image"].mixture
    assert fixed is not None
    assert chosen is not None
    assert (fixed.pi.shape[1], chosen.pi.shape[1]) == (4, 3)


def test_one_mode_in_training_and_many_at_test() -> None:
    options = {"components": 1, "select": True, "max_components": 3, "penalty": 0.0}
    method, (inputs, present) = make("mixture_attention", options), batch()
    with torch.no_grad():
        fixed = attention_of(method, inputs, present)["image"]
        chosen = attention_of(method.eval(), inputs, present)["image"]
    assert fixed.mixture is not None and chosen.mixture is not None
    assert fixed.mixture.pi.shape[1] == 1 and int((chosen.mixture.pi > 1e-3).sum(1).max()) > 1
    # The same floor in both: where one mode is chosen, it is the one of training.
    method.penalty = 1e6
    with torch.no_grad():
        single = attention_of(method, inputs, present)["image"]
    torch.testing.assert_close(single.weights, fixed.weights, rtol=0, atol=1e-5)


def test_heads_divide_the_width() -> None:
    with pytest.raises(ValueError, match="`heads` must divide the width 16, got 3"):
        make("softmax_attention", {"heads": 3})


def test_single_tokens_alone_are_refused() -> None:
    word = Modality("b", "text", (1,), vocabulary=5)
    task = Task("t", "1", (Modality("a", "vector", (3,)), word), "multiclass", 2)
    for name in NAMES:
        assert "several tokens" in (methods.get(name).applies_to(task, {}) or "")
        assert methods.get(name).applies_to(TASK, {}) is None


@pytest.mark.parametrize("shape", ["gaussian", "paraboloid"])
def test_drawn_density_is_the_mixture(shape: str) -> None:
    name, options = ("mixture_attention", {"component": shape})
    method, (inputs, present) = make(name, options).eval(), batch()
    with torch.no_grad():
        seen = one_row(attention_of(method, inputs, present)["image"], 2)
    points = cell_centers((40, 40))
    assert seen.mixture is not None
    one = paraboloid_density if shape == "paraboloid" else gaussian_density
    want = sum(pi * one(points, mu[None], cov[None])[0] for pi, mu, cov in zip(*seen.mixture, strict=True))
    torch.testing.assert_close(density(seen, points), want)


class Tiny(DataModule):
    """Rows for drawing."""

    def describe(self) -> Task:
        return TASK

    def load(self) -> dict[SplitName, Split]:
        inputs, _ = batch()
        split = Split({**inputs}, torch.tensor([0, 1, 2, 3, 0]))
        return {"train": split, "val": split, "test": split}


def test_sheet_is_drawn(tmp_path) -> None:
    datamodule = Tiny()
    rows = datamodule.ordered("test").take(torch.tensor([1, 3]))
    seen = [look(make(name, {}).eval(), rows, name) for name in NAMES]
    assert all(len(one.answers) == 2 for one in seen)
    path = draw_sheet(datamodule, [1, 3], seen, tmp_path / "maps" / "sheet.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 20_000


def test_methods_without_attention_are_refused() -> None:
    method = methods.get("concat")(TASK, RECIPE)
    inputs, present = batch()
    with pytest.raises(ValueError, match="no attention"):
        look(method, Batch(inputs, torch.zeros(5), present, torch.arange(5)), "concat")


def test_attend_says_what_is_wrong(tmp_path) -> None:
    assert parse_rows("3, 5") == [3, 5]
    for text in ("", "a", "-1"):
        with pytest.raises(ValueError, match="--rows"):
            parse_rows(text)
    store = Store(tmp_path)
    with pytest.raises(ValueError, match="CELL"):
        choose(store, [], None)
    with pytest.raises(ValueError, match="no successful cell"):
        choose(store, ["abc"], None)
    with pytest.raises(ValueError, match="no trained attention"):
        choose(store, [], "shapes_count")


@pytest.mark.parametrize("align", ["scaled_dot", "multiplicative", "additive"])
def test_alignment_models_against_loops(align: str) -> None:
    method, (inputs, present) = make("softmax_attention", {"align": align, "heads": 2}).eval(), batch()
    with torch.no_grad():
        tokens = method(inputs, present).tokens["image"]
        query = torch.randn(len(present), 16)
        found = method.scores("image", tokens, query)
        keys = tokens.x @ method.key["image"].weight.T  # pyright: ignore
        for b in range(2):
            for head in range(2):
                part = slice(8 * head, 8 * head + 8)
                for cell in (0, 7):
                    q, k = query[b, part], keys[b, cell, part]
                    expected = {
                        "scaled_dot": lambda q=q, k=k: (q @ k) / 8**0.5,
                        "multiplicative": lambda q=q, k=k: q @ k,
                        "additive": lambda q=q, k=k, h=head: method.weigh["image"][h] @ (q + k).tanh(),
                    }[align]()
                    torch.testing.assert_close(found[b, head, cell], expected)
